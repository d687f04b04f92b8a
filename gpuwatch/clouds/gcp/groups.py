"""Managed instance groups in our words, zonal and regional ones. A group is known by its path, which names its project.

A group has no labels of its own. Its owner's consent is a label that the group sets on all its machines
(`allInstancesConfig`): `gcloud compute instance-groups managed all-instances-config update NAME
--labels=gpuwatch-fleet=FLEET`. A template's label does not do: several groups may share it. A group that an autoscaler
drives is the autoscaler's, and is left alone; one with its autoscaler switched off has that one's bounds.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuwatch.clouds import FLEET_TAG, CloudError, NotFoundError
from gpuwatch.clouds.gcp.calls import GET_GROUP, GET_TEMPLATE, LIST_AUTOSCALERS, LIST_GROUPS, LIST_MEMBERS
from gpuwatch.clouds.gcp.client import Client, Json
from gpuwatch.clouds.gcp.labels import tags_of
from gpuwatch.clouds.gcp.machine_types import gpus_among, region_of
from gpuwatch.clouds.tags import claims
from gpuwatch.model.fleet import GroupRefusal, NodeGroup

MOST_MEMBERS = 2000  # of a group that has no bounds: Compute Engine's own limit
_PATH = re.compile(
    r"projects/(?P<project>[^/]+)/(?P<group>(?:zones|regions)/(?P<place>[^/]+)/instanceGroupManagers/[^/]+)"
)
_OFF = "OFF"
_MAKES = frozenset({"CREATING", "CREATING_WITHOUT_RETRIES"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One group, as Compute Engine describes it; `path` begins with "zones/" or "regions/"."""

    id: str
    name: str
    path: str
    place: str
    desired: int
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

    def enrolled(self, fleet: str) -> bool:
        """Whether its owner consents to this fleet's controller."""
        return self.tags.get(FLEET_TAG) == fleet and self.owner is None


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
    """What an instance template says of the machines that are made of it. Templates never change."""

    machine_type: str
    gpu_count: int
    labels: Mapping[str, str]


def listed(client: Client, wanted: Callable[[str], bool]) -> dict[str, Group]:
    """The project's groups in the regions that are wanted, by id.

    Sources: instanceGroupManagers.aggregatedList, autoscalers.aggregatedList.

    Raises:
        CloudError: the list could not be had whole.

    """
    found = [each for each in _everywhere(client, LIST_GROUPS, wanted) if _PATH.search(each.get("selfLink", ""))]
    if not found:
        return {}
    drivers = {str(each.get("target", "")).rpartition("/projects/")[2]: each for each in _autoscalers(client, wanted)}
    groups = [_group(each, drivers) for each in found]
    return {group.id: group for group in groups}


def known(client: Client, group_id: str) -> Group:
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
        every = _autoscalers(client, lambda _: True)
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
            failed=_failed(each),
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
        """One as it is now; raises likewise. Source: instanceTemplates.get."""
        properties = client.read(GET_TEMPLATE, template=path).get("properties", {})
        template = Template(
            machine_type=properties.get("machineType", "").rpartition("/")[2],
            gpu_count=gpus_among(properties.get("guestAccelerators", ())),
            labels=properties.get("labels", {}),
        )
        self._known[client.project, path] = template
        return template


def as_node_group(
    client: Client, group: Group, *, fleet: str, now: datetime, members: Sequence[Member], types: frozenset[str]
) -> NodeGroup:
    """The group in our words; `types` are those of its templates."""
    claimed = claims(group.tags, fleet=fleet, now=now)
    why = next((each.failed for each in members if each.empty and each.failed), None)
    return NodeGroup(
        id=group.id,
        name=group.name,
        pool=claimed["pool"],
        min_size=group.bounds[0],
        max_size=group.bounds[1],
        desired=group.desired,
        region=group.region,
        zones=group.zones,
        enrolled=group.enrolled(fleet),
        protected=claimed["protected"],
        instance_type=next(iter(types)) if len(types) == 1 else None,
        account=client.project,
        node_ids=tuple(sorted(each.id for each in members if each.id)),
        refused=None if why is None else GroupRefusal(at=now, why=why),
        gives_back_places=True,
    )


def _failed(described: Json) -> str:
    """Why the last try to make a machine failed. Source: lastAttempt of listManagedInstances."""
    errors = described.get("lastAttempt", {}).get("errors", {}).get("errors") or ()
    first = next(iter(errors), None)
    return "" if first is None else f"{first.get('message', '')} ({first.get('code', '')})".strip()


def _autoscalers(client: Client, wanted: Callable[[str], bool]) -> list[Json]:
    return _everywhere(client, LIST_AUTOSCALERS, wanted)


def _everywhere(client: Client, call: Any, wanted: Callable[[str], bool]) -> list[Json]:  # noqa: ANN401  a Call
    """What all wanted scopes hold; a scope that is missing fails the list."""
    found: list[Json] = []
    for scope, content in client.scopes(call).items():
        kind, _, place = scope.partition("/")
        if not wanted(place if kind == "regions" else region_of(place)):
            continue
        if isinstance(content, CloudError):
            raise content
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
        zones=tuple(sorted(zone.rpartition("/")[2] for zone in zones)) or (match["place"],),
        tags=tags_of(properties.get("labels", {})),
        templates=tuple(dict.fromkeys(path_in_project(link) for link in templates)),
        bounds=bounds or (0, MOST_MEMBERS),
        autoscaler=driver.get("name", "") or "unknown" if on else None,
    )


def path_in_project(link: str) -> str:
    """global/instanceTemplates/N of a template's link."""
    return link.rpartition("/projects/")[2].partition("/")[2]
