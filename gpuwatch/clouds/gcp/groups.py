"""Managed instance groups in our words, zonal and regional ones. A group is known by its path, which names its project.

A group has no labels of its own. Its owner's consent is a label that the group sets on all its machines
(`allInstancesConfig`): `gcloud compute instance-groups managed all-instances-config update NAME
--labels=gpuwatch-fleet=FLEET`. A template's label does not do: several groups may share it. A group that an autoscaler
drives is the autoscaler's, and is left alone; one with its autoscaler switched off has that one's bounds.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.clouds.gcp.iam import (
    GET_GROUP,
    GET_TEMPLATE,
    GET_TYPE,
    LIST_AUTOSCALERS,
    LIST_GROUPS,
    LIST_MEMBERS,
    LIST_TYPES,
)
from gpuwatch.clouds.gcp.owners import tags_of
from gpuwatch.clouds.groups import Owned
from gpuwatch.clouds.tags import tags_in
from gpuwatch.model.fleet import GroupRefusal, NodeGroup
from gpuwatch.runtime.clock import Clock

# What machine types bring. Each is looked up once; one that is missing is asked for again, later and later.

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 60.0, 3600.0
_GPU = "nvidia"  # how the names of accelerators that are GPUs begin; the others are TPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """What a type brings by itself (a2, a3, g2, …). Source: machineTypes, accelerators and bundledLocalSsds."""

    gpu_count: int
    local_disks: bool


class MachineTypes:
    """Those that machines have, by name: a name means the same in every zone."""

    def __init__(self, clock: Clock) -> None:
        """Begin without a known machine type."""
        self._clock = clock
        self._known: dict[str, MachineType] = {}
        self._missing: dict[str, tuple[float, float]] = {}  # when to ask again, and the wait after that

    def get(self, client: Client, zone: str, name: str) -> MachineType | None:
        """One type as a zone has it; None: Compute Engine does not describe it.

        Raises:
            CloudError: no answer, and it was never known.

        """
        now = self._clock.monotonic()
        if name in self._known:
            return self._known[name]
        if name in self._missing and self._missing[name][0] > now:
            return None
        try:
            self._known[name] = _type_of(client.read(GET_TYPE, zone=zone, type=name))
        except NotFoundError:
            self._note_missing(name, now)
            return None
        if self._missing.pop(name, None) is not None:
            log.warning("Compute Engine describes the machine type %s now", name)
        return self._known[name]

    def _note_missing(self, name: str, now: float) -> None:
        wait = self._missing[name][1] if name in self._missing else _FIRST_RETRY_SECONDS
        if name not in self._missing:
            log.warning(
                "Compute Engine does not describe the machine type %s: its machines are left out, or left alone where "
                "they carry the fleet's label; it is asked again",
                name,
            )
        self._missing[name] = (now + wait, min(2 * wait, _LAST_RETRY_SECONDS))


def zones_with(client: Client, region: str, name: str) -> list[str]:
    """The region's zones that offer a type, in order. Source: machineTypes.aggregatedList.

    Raises:
        CloudError: no answer.

    """
    found = client.scopes(LIST_TYPES, query={"filter": f'name = "{name}"'})
    zones = [
        scope.removeprefix("zones/") for scope, types in found.items() if not isinstance(types, CloudError) and types
    ]
    return sorted(zone for zone in zones if region_of(zone) == region)


def gpus_among(accelerators: Iterable[Json]) -> int:
    """How many GPUs an instance's guestAccelerators, or a type's accelerators, are."""
    return sum(
        int(each.get("acceleratorCount", each.get("guestAcceleratorCount", 0)))
        for each in accelerators
        if str(each.get("acceleratorType") or each.get("guestAcceleratorType")).rpartition("/")[2].startswith(_GPU)
    )


def attached_to(type_has: MachineType | None, accelerators: Iterable[Json]) -> str:
    """The GPUs that are attached to a machine, such as 4xnvidia-tesla-v100; none where its type brings its own."""
    if type_has is None or type_has.gpu_count:
        return ""
    found = sorted(
        (str(each.get("acceleratorType") or "").rpartition("/")[2], int(each.get("acceleratorCount", 0)))
        for each in accelerators
    )
    return "+".join(f"{count}x{name}" for name, count in found if name.startswith(_GPU) and count > 0)


def region_of(zone: str) -> str:
    """Return the region of a zone, such as us-central1 of us-central1-a."""
    return zone.rpartition("-")[0]


def _type_of(described: Json) -> MachineType:
    ssds = described.get("bundledLocalSsds") or {}
    return MachineType(
        gpu_count=gpus_among(described.get("accelerators", ())), local_disks=bool(ssds.get("partitionCount"))
    )


MOST_MEMBERS = 2000  # of a group that has no bounds: Compute Engine's own limit
_PATH = re.compile(
    r"projects/(?P<project>[^/]+)/(?P<group>(?:zones|regions)/(?P<place>[^/]+)/instanceGroupManagers/[^/]+)"
)
_OFF = "OFF"
_SIZES = ("targetSize", "targetStoppedSize", "targetSuspendedSize")
_MAKES = frozenset({"CREATING", "CREATING_WITHOUT_RETRIES"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Group(Owned):
    """One group, as Compute Engine describes it; `path` begins with "zones/" or "regions/"."""

    id: str
    name: str
    path: str
    place: str
    desired: int
    places: int  # with those of machines that it keeps stopped or suspended
    zones: tuple[str, ...]
    tags: Mapping[str, str]
    templates: tuple[str, ...]
    bounds: tuple[int, int] = (0, MOST_MEMBERS)
    autoscaler: str | None = None  # that drives it

    @property
    def owner(self) -> str | None:
        """The other system that drives the group, whatever its labels consent to."""
        return None if self.autoscaler is None else f"autoscaler {self.autoscaler}"

    @property
    def region(self) -> str:
        """The region that it is in."""
        return self.place if self.path.startswith("regions/") else region_of(self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One place of a group; `action` is what the group does with it at this moment, NONE where it does nothing.

    `id` is empty where there is no machine, and `failed` is then why the last try to make one failed.
    """

    id: str
    name: str
    link: str
    action: str
    failed: str = ""

    @property
    def empty(self) -> bool:
        """Whether it waits for a machine."""
        return not self.id and self.action in _MAKES


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """What an instance template says of the machines made from it. Templates never change."""

    machine_type: str
    gpu_count: int
    labels: Mapping[str, str]
    accelerators: tuple[Json, ...] = ()


def every_group(
    client: Client, wanted: Callable[[str], bool], silent: dict[str, CloudError] | None = None
) -> dict[str, Group]:
    """The project's groups in the regions that are wanted, by id.

    `silent` gets the scopes that gave no answer ("zones/us-central1-a"): their groups are left out. None: it is an
    error.

    Sources: instanceGroupManagers.aggregatedList, autoscalers.aggregatedList.

    Raises:
        CloudError: the list could not be had.

    """
    missing: dict[str, CloudError] = {}
    found = _everywhere(client, LIST_GROUPS, wanted, missing)
    found = [each for each in found if _PATH.search(each.get("selfLink", ""))]
    autoscalers = _everywhere(client, LIST_AUTOSCALERS, wanted, missing) if found else []
    if silent is None:
        for error in missing.values():
            raise error
    else:
        silent |= missing
    drivers = {str(each.get("target", "")).rpartition("/projects/")[2]: each for each in autoscalers}
    groups = [_group(each, drivers) for each in found]
    return {group.id: group for group in groups if scope_of(group.id) not in missing}


def scope_of(group_id: str) -> str:
    """Return the scope in which lists have a group: "zones/us-central1-a" or "regions/us-central1"."""
    return "/".join(group_id.split("/")[2:4])


def one_group(client: Client, group_id: str) -> Group:
    """One group as it is now.

    Raises:
        NotFoundError: there is no such group.
        CloudError: no answer.

    """
    match = _PATH.fullmatch(group_id)
    if match is None or match["project"] != client.project:
        raise NotFoundError(f"{group_id!r} is no managed instance group of {client}", code="notFound")
    described = client.read(GET_GROUP, group=match["group"])
    drivers: Mapping[str, Json] = {}
    if described.get("status", {}).get("autoscaler"):
        missing: dict[str, CloudError] = {}
        every = _everywhere(client, LIST_AUTOSCALERS, lambda _: True, missing)
        if (error := missing.get(scope_of(group_id))) is not None:
            raise error
        drivers = {str(each.get("target", "")).rpartition("/projects/")[2]: each for each in every}
    return _group(described, drivers)


def project_of(group_id: str) -> str:
    """The project within a group's id.

    Raises:
        NotFoundError: it is no group's id.

    """
    match = _PATH.fullmatch(group_id)
    if match is None:
        raise NotFoundError(f"{group_id!r} is no path of a managed instance group", code="notFound")
    return match["project"]


def members(client: Client, group: Group) -> list[Member]:
    """Its machines, to the last page. Source: listManagedInstances.

    Raises:
        CloudError: the list could not be had whole.

    """
    found = client.items(LIST_MEMBERS, group=group.path)
    return [
        Member(
            id=str(each.get("id", "")),
            name=each["instance"].rpartition("/")[2],
            link=each["instance"],
            action=each.get("currentAction", ""),
            failed=_why_failed(each),
        )
        for each in found
        if each.get("instance")
    ]


class Templates:
    """Instance templates. One never changes, but another may come under its name: a launch reads it again."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Template] = {}

    def get(self, client: Client, path: str) -> Template:
        """One as it was read first, by its path: "global/instanceTemplates/NAME", or the same of a region.

        Raises:
            NotFoundError: there is no such template.
            CloudError: no answer.

        """
        known = self._known.get((client.project, path))
        return self.read(client, path) if known is None else known

    def read(self, client: Client, path: str) -> Template:
        """One as it is now; raises CloudError. Source: instanceTemplates.get."""
        properties = client.read(GET_TEMPLATE, template=path).get("properties", {})
        template = Template(
            machine_type=properties.get("machineType", "").rpartition("/")[2],
            gpu_count=gpus_among(properties.get("guestAccelerators", ())),
            labels=properties.get("labels", {}),
            accelerators=tuple(properties.get("guestAccelerators", ())),
        )
        self._known[client.project, path] = template
        return template


def as_node_group(
    client: Client, group: Group, *, fleet: str, now: datetime, members: Sequence[Member], types: frozenset[str]
) -> NodeGroup:
    """The group in our words; `types` are those of its templates."""
    why = next((each.failed for each in members if each.empty and each.failed), None)
    return NodeGroup(
        min_size=group.bounds[0],
        max_size=group.bounds[1],
        desired=group.desired,
        region=group.region,
        zones=group.zones,
        instance_type=next(iter(types)) if len(types) == 1 else None,
        account=client.project,
        node_ids=tuple(sorted(each.id for each in members if each.id)),
        refused=None if why is None else GroupRefusal(at=now, why=why),
        gives_back_places=True,
        **group.consent(fleet, now),
    )


def _why_failed(described: Json) -> str:
    """Why the last try to make a machine failed. Source: lastAttempt of listManagedInstances."""
    errors = described.get("lastAttempt", {}).get("errors", {}).get("errors") or ()
    first = next(iter(errors), None)
    return "" if first is None else f"{first.get('message', '')} ({first.get('code', '')})".strip()


def _everywhere(
    client: Client,
    call: Any,  # noqa: ANN401  a Call
    wanted: Callable[[str], bool],
    missing: dict[str, CloudError],
) -> list[Json]:
    """What all wanted scopes hold; `missing` gets those that gave no answer."""
    found: list[Json] = []
    for scope, content in client.scopes(call).items():
        kind, _, place = scope.partition("/")
        if not wanted(place if kind == "regions" else region_of(place)):
            continue
        if isinstance(content, CloudError):
            missing[scope] = content
        else:
            found += content
    return found


def _group(described: Json, drivers: Mapping[str, Json]) -> Group:
    group_id = described["selfLink"].rpartition("/projects/")[2]
    match = _PATH.fullmatch(f"projects/{group_id}")
    if match is None:
        raise NotFoundError(f"{described['selfLink']!r} is no managed instance group", code="notFound")
    driver = drivers.get(group_id, {})
    policy = driver.get("autoscalingPolicy", {})
    bounds = (policy.get("minNumReplicas", 0), policy.get("maxNumReplicas", MOST_MEMBERS)) if policy else None
    on = bool(described.get("status", {}).get("autoscaler")) and policy.get("mode", "ON") != _OFF
    zones = [each["zone"] for each in described.get("distributionPolicy", {}).get("zones", ())]
    versions = [each.get("instanceTemplate") for each in described.get("versions", ())]
    templates = filter(None, [*versions, described.get("instanceTemplate")])
    properties = described.get("allInstancesConfig", {}).get("properties", {})
    return Group(
        id=match[0],
        name=described["name"],
        path=match["group"],
        place=match["place"],
        desired=described.get("targetSize", 0),
        places=sum(int(described.get(each) or 0) for each in _SIZES),
        zones=tuple(sorted(zone.rpartition("/")[2] for zone in zones)) or (match["place"],),
        tags=tags_of(tags_in(properties.get("labels"))),
        templates=tuple(dict.fromkeys(path_in_project(link) for link in templates)),
        bounds=bounds or (0, MOST_MEMBERS),
        autoscaler=driver.get("name", "") or "unknown" if on else None,
    )


def path_in_project(link: str) -> str:
    """global/instanceTemplates/N of a template's link."""
    return link.rpartition("/projects/")[2].partition("/")[2]
