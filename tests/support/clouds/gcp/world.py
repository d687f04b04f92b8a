"""Google Cloud over HTTP with people, time and faults around it: for the contract suite, and for the fault matrix."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from google.auth.credentials import AnonymousCredentials

from gpuwatch.clouds import (
    AuthFailedError,
    Cloud,
    CloudError,
    InsufficientCapacityError,
    ProtectedError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.clouds.gcp.cloud import GcpCloud
from gpuwatch.clouds.gcp.owners import labels_of, tags_of
from gpuwatch.model.fleet import NodeState
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.fault_worlds import CANNOT
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.gcp.machines import SECONDS, Group, Machine, Project, fingerprint
from tests.support.clouds.gcp.service import FakeGcp
from tests.support.clouds.server import CloudServer, serving
from tests.support.fakes.cloud_worlds import FLEET, Words

REGION, ZONE, PROJECT = "us-central1", "us-central1-a", "gpu-lab"
TEMPLATE, CPU_TEMPLATE, SPOT_TEMPLATE, RESERVED_TEMPLATE = "gpu-node", "cpu-node", "spot-node", "reserved-node"
_API = "compute.instances."
CALLS = {
    "stop": f"{_API}stop",
    "start": f"{_API}start",
    "terminate": f"{_API}delete",
    "tag": f"{_API}setLabels",
    "launch": f"{_API}insert",
    "grow": "compute.instanceGroupManagers.resize",
    "protect": "compute.instanceGroupManagers.get",
}
# Status, Google's word, and its sentence where the word alone does not tell.
REFUSALS: Mapping[type[CloudError], tuple[int, str, str]] = {
    ProtectedError: (400, "invalidResourceUsage", "Resource cannot be deleted if it's protected against deletion."),
    InsufficientCapacityError: (503, "ZONE_RESOURCE_POOL_EXHAUSTED", "does not have enough resources available"),
    QuotaExceededError: (403, "quotaExceeded", "Quota 'NVIDIA_L4_GPUS' exceeded. Limit: 8.0 in region us-central1."),
    ThrottledError: (403, "rateLimitExceeded", "Rate Limit Exceeded"),
    AuthFailedError: (403, "forbidden", "Required 'compute.instances.stop' permission"),
}


def add_templates(project: Project) -> None:
    """Of a machine with a GPU, of one without, of a spot machine, and of one in a reservation."""
    held = {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "googleapis.com/reservation-name", "values": ["r"]}
    paid: dict[str, dict[str, object]] = {
        SPOT_TEMPLATE: {"scheduling": {"provisioningModel": "SPOT"}},
        RESERVED_TEMPLATE: {"reservationAffinity": held},
    }
    for name in (TEMPLATE, CPU_TEMPLATE, SPOT_TEMPLATE, RESERVED_TEMPLATE):
        kind = "e2-standard-2" if name == CPU_TEMPLATE else "g2-standard-4"
        path = f"global/instanceTemplates/{name}"
        project.templates[path] = {
            "kind": "compute#instanceTemplate",
            "id": project.new_id(),
            "name": name,
            "creationTimestamp": project.stamp(),
            "selfLink": project.link(path),
            "properties": {
                "machineType": kind,
                "disks": [{"kind": "compute#attachedDisk", "type": "PERSISTENT", "boot": True}],
                "scheduling": {"onHostMaintenance": "TERMINATE", "preemptible": False},
                "labels": {"team": "vision"} if name == "labelled" else {},
                **paid.get(name, {}),
            },
        }


def run_machine(project: Project, zone: str, tags: Mapping[str, str], *, kind: str = "g2-standard-4") -> Machine:
    """Somebody launches a machine; it is running."""
    project.tick()
    labels = labels_of({key: value for key, value in tags.items() if key != "Name"})
    name = tags.get("Name") or f"gpu-{project.new_id()}"
    return project.add(zone, name, {"machineType": kind, "labels": labels}, status="RUNNING")


class GcpWorld:
    """`GcpCloud` for one project of the fake."""

    words = Words(
        provider="gcp",
        region=REGION,
        zone=ZONE,
        account=PROJECT,
        machine_type="g2-standard-4",
        larger_type="g2-standard-24",
        template=TEMPLATE,
        cpu_template=CPU_TEMPLATE,
        no_template="nobody",
        nowhere="4242424242424242424",
        no_group=f"projects/{PROJECT}/zones/{ZONE}/instanceGroupManagers/nobody",
        volume_type="pd-balanced",
        unknown_id="notFound",
        wrong_state=frozenset({"resourceNotReady"}),
        group_kind="managed instance group",
        has_processes=False,
        protects_members=False,
        always_named=True,
        time="{:%Y-%m-%dT%H:%M:%SZ}".format,
        refusals={kind: code for kind, (_, code, _) in REFUSALS.items()},
    )

    def __init__(self, clock: ManualClock, fake: FakeGcp, server: CloudServer) -> None:
        """An empty project."""
        self.clock, self.fake, self.server = clock, fake, server
        self.project = fake.projects[PROJECT]
        self.credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]
        add_templates(self.project)
        self.cloud: Cloud = self.anew()

    def anew(self, *regions: str, page_size: int = 500) -> GcpCloud:
        """The same project for a controller that has just begun."""
        return GcpCloud(
            fleet=FLEET,
            clock=self.clock,
            regions=regions or [REGION],
            projects=[PROJECT],
            credentials=self.credentials,
            endpoint_url=self.server.url,
            page_size=page_size,
        )

    def told(self, node_id: str) -> dict[str, Any]:
        """The machine as the fake has it."""
        return self.project.machines[node_id].told

    def calls(self, name: str) -> int:
        """How often a method of Compute Engine was asked for."""
        return self.fake.asked_for.count(f"compute.{name}")

    def launch(self, tags: Mapping[str, str], *, gpus: bool = True) -> str:
        """A machine that runs; its name is its number's where nobody gave one, as node names fall back to ids."""
        kind = self.words.machine_type if gpus else "e2-standard-2"
        machine = run_machine(self.project, ZONE, tags, kind=kind)
        return str(machine.told["id"])

    def terminate(self, node_id: str) -> None:
        """The machine goes."""
        self.project.delete(self.project.machines[node_id])

    def never_made(self, node_id: str) -> None:
        """Its operation fails, and nothing is left of it."""
        self.project.fail_insert(node_id, *REFUSALS[InsufficientCapacityError][1:])

    def set_tags(self, node_id: str, tags: Mapping[str, str]) -> None:
        """By hand, in the console."""
        told = self.project.machines[node_id].told
        labels = {**told["labels"], **labels_of(tags)}
        told.update(labels=labels, labelFingerprint=fingerprint(labels))

    def settle(self, node_id: str) -> None:
        """A minute passes."""
        del node_id
        self.clock.advance(SECONDS.total_seconds())
        self.project.tick()

    def add_group(
        self, name: str, tags: Mapping[str, str], *, size: int, suspended: Collection[str] = (), **bounds: int
    ) -> str:
        """With the bounds of an autoscaler that is switched off, where there are any."""
        assert not suspended, "a managed instance group has no processes that could be suspended"
        group = add_group(self.project, name, tags, size=size, **bounds)
        self.project.tick()
        self.settle("")
        return str(group.told["selfLink"]).partition("/compute/v1/")[2]

    def no_stock(self, group_id: str) -> None:
        """ZONE_RESOURCE_POOL_EXHAUSTED, again and again."""
        group = self.project.groups[group_id.partition("/")[2].partition("/")[2]]
        group.stock = len(group.members)

    def add_volume(self) -> str:
        """Attached to nothing."""
        return add_disk(self.project, "left-behind", gigabytes=8)

    def refuse(self, call: str, kind: type[CloudError]) -> None:
        """Compute Engine answers with an error."""
        self.fake.refuse(CALLS[call], *REFUSALS[kind])

    def lose_response(self, call: str) -> None:
        """The connection breaks after the effect."""
        self.server.plan.strike(Fault.RESET_AFTER, when(operation=CALLS[call]))


def add_group(project: Project, name: str, tags: Mapping[str, str], *, size: int, **bounds: int) -> Group:
    """A zonal group; `tags` are the labels that it sets on all its machines."""
    path = f"zones/{ZONE}/instanceGroupManagers/{name}"
    template = project.link(f"global/instanceTemplates/{TEMPLATE}")
    group = Group(
        {
            "kind": "compute#instanceGroupManager",
            "id": project.new_id(),
            "name": name,
            "creationTimestamp": project.stamp(),
            "zone": project.link(f"zones/{ZONE}"),
            "selfLink": project.link(path),
            "baseInstanceName": name,
            "instanceTemplate": template,
            "versions": [{"instanceTemplate": template, "targetSize": {"calculated": size}}],
            "targetSize": size,
            "allInstancesConfig": {"properties": {"labels": labels_of(tags)}},
            "status": {"isStable": True},
        }
    )
    if bounds:
        add_autoscaler(project, group, bounds.get("MinSize", 0), bounds.get("MaxSize", 10), mode="OFF")
    project.groups[path] = group
    return group


def add_autoscaler(project: Project, group: Group, least: int, most: int, *, mode: str) -> None:
    """A group's autoscaler."""
    path = f"zones/{ZONE}/autoscalers/{group.told['name']}"
    group.told["status"]["autoscaler"] = project.link(path)
    group.autoscaler = {
        "kind": "compute#autoscaler",
        "id": project.new_id(),
        "name": group.told["name"],
        "creationTimestamp": project.stamp(),
        "status": "ACTIVE",
        "zone": project.link(f"zones/{ZONE}"),
        "selfLink": project.link(path),
        "target": group.told["selfLink"],
        "autoscalingPolicy": {"minNumReplicas": least, "maxNumReplicas": most, "mode": mode},
    }


def add_disk(project: Project, name: str, *, gigabytes: int) -> str:
    """A disk that nothing uses; gives its id."""
    path, own = f"zones/{ZONE}/disks/{name}", project.new_id()
    project.disks[path] = {
        "kind": "compute#disk",
        "id": own,
        "name": name,
        "creationTimestamp": project.stamp(),
        "zone": project.link(f"zones/{ZONE}"),
        "type": project.link(f"zones/{ZONE}/diskTypes/pd-balanced"),
        "sizeGb": str(gigabytes),
        "status": "READY",
        "selfLink": project.link(path),
    }
    return own


@contextmanager
def a_world(clock: ManualClock) -> Iterator[GcpWorld]:
    """An empty project over HTTP."""
    fake = FakeGcp(clock, {PROJECT: REGION})
    with serving(fake, clock=clock) as server:
        yield GcpWorld(clock, fake, server)


_STATES = {
    "PROVISIONING": NodeState.PENDING,
    "STAGING": NodeState.PENDING,
    "RUNNING": NodeState.RUNNING,
    "STOPPING": NodeState.STOPPING,
    "TERMINATED": NodeState.STOPPED,
}


class GcpFaultWorld:
    """`GcpCloud` for two projects, each with its machines in one region: a project is what gives an answer, or none."""

    regions = ("us-central1", "europe-west4")
    zones: ClassVar[Mapping[str, str]] = {"us-central1": ZONE, "europe-west4": "europe-west4-a"}
    projects: ClassVar[Mapping[str, str]] = {"lab-america": "us-central1", "lab-europe": "europe-west4"}
    calls: ClassVar[Mapping[str, str]] = {
        **{verb: name for verb, name in CALLS.items() if verb != "protect"},
        "nodes": f"{_API}aggregatedList",
        "end_member": "compute.instanceGroupManagers.deleteInstances",
    }
    arguments: ClassVar[Mapping[str, str]] = {"template": TEMPLATE, "pool": "train", "account": "lab-america"}
    page = 5
    totals = False
    cannot: ClassVar[Mapping[str, str]] = CANNOT["gcp"]

    def __init__(self, clock: ManualClock, fake: FakeGcp, server: CloudServer) -> None:
        """Two empty projects."""
        self.clock, self.fake, self.server = clock, fake, server
        for project in fake.projects.values():
            add_templates(project)
        self.cloud = self.anew()

    def anew(self) -> Cloud:
        """A process that has just begun."""
        return GcpCloud(
            fleet=FLEET,
            clock=self.clock,
            regions=self.regions,
            projects=list(self.projects),
            credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
            endpoint_url=self.server.url,
            page_size=self.page,
        )

    def launch(self, tags: Mapping[str, str], *, region: str) -> str:
        """A machine that runs."""
        project = next(name for name, own in self.projects.items() if own == region)
        return str(run_machine(self.fake.projects[project], self.zones[region], tags).told["id"])

    def add_group(self, name: str, tags: Mapping[str, str], *, size: int) -> str:
        """A zonal group; its members run."""
        project = self.fake.projects["lab-america"]
        group = add_group(project, name, tags, size=size)
        project.tick()
        self.settle("")
        project.tick()
        return str(group.told["selfLink"]).partition("/compute/v1/")[2]

    def state(self, node_id: str) -> NodeState | None:
        """The fake's own; a machine on its way out is told by the operation."""
        for project in self.fake.projects.values():
            project.tick()
            machine = project.machines.get(node_id)
            if machine is not None:
                leaving = any(
                    each["operationType"] == "delete" and each["targetId"] == node_id for each in project.operations
                )
                return NodeState.TERMINATING if leaving else _STATES[machine.told["status"]]
        return None

    def tags(self, node_id: str) -> Mapping[str, str]:
        """The fake's own."""
        machines = {key: value for project in self.fake.projects.values() for key, value in project.machines.items()}
        return tags_of(machines[node_id].told["labels"])

    def ids(self) -> Collection[str]:
        """The fake's own."""
        return frozenset(node_id for project in self.fake.projects.values() for node_id in project.machines)

    def settle(self, node_id: str) -> None:
        """A minute passes."""
        del node_id
        self.clock.advance(SECONDS.total_seconds())


@contextmanager
def fault_world(folder: Path) -> Iterator[GcpFaultWorld]:
    """Two empty projects over HTTP; the client waits a fraction of a second for answers."""
    del folder
    clock = ManualClock()
    fake = FakeGcp(clock, GcpFaultWorld.projects)
    with serving(fake, clock=clock) as server:
        yield GcpFaultWorld(clock, fake, server)
