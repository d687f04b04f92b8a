"""Lists of the fake of Google Cloud that are of a whole project: machine types, regions, snapshots, images."""

from collections.abc import Iterable, Mapping

from tests.support.clouds.gcp.machines import TYPES, ZONES, Project, Resource
from tests.support.clouds.gcp.parts import page_of
from tests.support.clouds.server import Request

_BEGINNING = "1969-12-31T16:00:00.000-08:00"  # when Google says that these were made


def listed(project: Project, kind: str, found: list[Resource], request: Request) -> Resource:
    """A list in pages; an empty one has no items."""
    path = request.path.rpartition(f"/projects/{project.name}/")[2]
    page, token = page_of(found, request.query)
    head = {"kind": f"compute#{kind}List", "id": f"projects/{project.name}/{path}", "selfLink": project.link(path)}
    return {**head, **({"items": page} if page else {}), **token}


def regions(project: Project, at: Mapping[str, str], request: Request) -> Resource:
    """All regions, with their quotas."""
    del at
    found = [
        {
            "kind": "compute#region",
            "id": str(1000 + number),
            "creationTimestamp": _BEGINNING,
            "name": name,
            "status": "UP",
            "selfLink": project.link(f"regions/{name}"),
            "quotas": [
                {"metric": "NVIDIA_L4_GPUS", "limit": 8.0, "usage": gpus_in(project, name)},
                {"metric": "NVIDIA_T4_GPUS", "limit": 0.0, "usage": 0.0},
                {"metric": "COMMITTED_NVIDIA_L4_GPUS", "limit": 8.0, "usage": 0.0},
                {"metric": "CPUS", "limit": 96.0, "usage": 12.0},
            ],
        }
        for number, name in enumerate(sorted({zone.rpartition("-")[0] for zone in ZONES}))
    ]
    return listed(project, "region", found, request)


def types_of(project: Project) -> list[Resource]:
    """Every machine type of each zone; one is not to be used any more."""
    return [
        {
            "kind": "compute#machineType",
            "id": str(10**6 + 100 * place + number),
            "creationTimestamp": _BEGINNING,
            "name": name,
            "zone": zone,
            "selfLink": project.link(f"zones/{zone}/machineTypes/{name}"),
            **({"accelerators": [{"guestAcceleratorType": kind, "guestAcceleratorCount": count}]} if count else {}),
            **({"deprecated": {"state": "DEPRECATED"}} if name == "e2-standard-2" else {}),
            **({"bundledLocalSsds": {"partitionCount": ssds, "defaultInterface": "NVME"}} if ssds else {}),
        }
        for place, zone in enumerate(ZONES)
        for number, (name, (kind, count, ssds)) in enumerate(TYPES.items())
    ]


def gpus_in(project: Project, region: str) -> float:
    """How many GPUs are in a region; "": in all."""
    machines: Iterable[Resource] = (machine.told for machine in project.machines.values())
    kinds = [each["machineType"].rpartition("/")[2] for each in machines if f"zones/{region}" in each["zone"]]
    return float(sum(TYPES[kind][1] for kind in kinds))
