"""The machines of one project, zone by zone: whole, or as last seen where a zone gave no answer."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuwatch.clouds import FLEET_TAG, AuthFailedError, CloudError, NotFoundError
from gpuwatch.clouds.gcp import groups as gcp_groups
from gpuwatch.clouds.gcp.actions import Home, being_deleted, describe_instance, ended_machine
from gpuwatch.clouds.gcp.client import Client
from gpuwatch.clouds.gcp.groups import Group, region_of
from gpuwatch.clouds.gcp.iam import LIST_INSTANCES
from gpuwatch.clouds.gcp.instances import Instance, Translator
from gpuwatch.clouds.gcp.owners import tags_of
from gpuwatch.clouds.places import Views
from gpuwatch.clouds.silence import as_last_seen, note_silence
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.model.sight import Silence

log = logging.getLogger(__name__)

_ZONE = "zones/"


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone of one project: the part of Google Cloud that fails by itself."""

    project: str
    zone: str

    @property
    def name(self) -> str:
        """Return the zone's name for messages."""
        return f"{self.zone} of project {self.project}"

    def holds(self, thing: Node | NodeGroup) -> bool:
        """Whether it is of this zone."""
        zones = (thing.zone,) if isinstance(thing, Node) else thing.zones
        return thing.account == self.project and self.zone in zones


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """What is known of the fleet's machines that name no group, by id: their metadata may have been replaced.

    `groups` are the path and the name of the group that has them all the same, `alone` are in none, and `doubts` are
    why nobody can say. All others are not looked at yet.
    """

    groups: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    alone: frozenset[str] = frozenset()
    doubts: Mapping[str, str] = field(default_factory=dict)


class Memberships:
    """The project's groups of this fleet, and who is in them; asked for at most once in a round, where it matters."""

    def __init__(self, client: Client, wanted: Callable[[str], bool], fleet: str) -> None:
        """Nothing is asked yet."""
        self._client, self._wanted, self._fleet = client, wanted, fleet
        self._groups: dict[str, Group] | None = None
        self._silent: dict[str, CloudError] = {}  # scopes with groups that are not known
        self._members: dict[str, frozenset[str] | CloudError] = {}  # each group is asked once

    def groups(self, instances: Iterable[Instance]) -> Mapping[str, Group]:
        """By path; none where no instance says that a group made it."""
        return self._every_group() if any(instance.group for instance in instances) else {}

    def _every_group(self) -> Mapping[str, Group]:
        if self._groups is None:
            # A member whose group is not known is its group's: it is left alone.
            found = gcp_groups.every_group(self._client, self._wanted, self._silent)
            self._groups = {group.path: group for group in found.values()}
        return self._groups

    def find_hidden(self, instances: Sequence[Instance], before: Bare) -> Bare:
        """Who is in a group without saying so.

        A group makes a member again that is stopped by itself. Only groups with more places than machines that name
        them are asked for their members. Where Compute Engine reaches a group or its members not, `before` holds; of
        who is not in it nobody can say.

        Raises:
            CloudError: no answer.

        """
        bare = {each.id: each for each in instances if not each.group and self._is_ours(each)}
        if not bare:
            return Bare()
        zones = {zone for each in bare.values() for zone in (each.zone, region_of(each.zone))}
        named = Counter(each.group[0] for each in instances if each.group)
        groups: dict[str, tuple[str, str]] = {}
        silent: dict[str, tuple[CloudError, Collection[str]]] = {}  # why, and where: paths of groups, scopes, or all
        try:
            every = self._every_group()
        except AuthFailedError:
            raise
        except CloudError as error:
            every, silent = {}, {"": (error, zones)}
        silent |= {scope: (error, {scope.rpartition("/")[2]}) for scope, error in self._silent.items()}
        for group in every.values():
            if group.places <= named[group.path] or not zones & {*group.zones}:
                continue
            try:
                groups |= dict.fromkeys(bare.keys() & self._ids_in(group), (group.path, group.name))
            except CloudError as error:
                silent[group.path] = (error, group.zones)
        for node_id in bare.keys() & (before.groups.keys() - groups.keys()):
            path = before.groups[node_id][0]
            if silent.keys() & {"", path, "/".join(path.split("/")[:2])}:
                groups[node_id] = before.groups[node_id]
        doubts = {
            node_id: f"whether it is in a group is not known ({error})"
            for error, where in silent.values()
            for node_id in bare.keys() - groups.keys() - before.alone
            if {bare[node_id].zone, region_of(bare[node_id].zone)} & {*where}
        }
        return Bare(groups=groups, alone=frozenset(bare.keys() - groups.keys() - doubts.keys()), doubts=doubts)

    def _is_ours(self, instance: Instance) -> bool:
        return tags_of(instance.labels).get(FLEET_TAG) == self._fleet

    def _ids_in(self, group: Group) -> frozenset[str]:
        if group.path not in self._members:
            try:
                self._members[group.path] = frozenset(each.id for each in gcp_groups.members(self._client, group))
            except CloudError as error:
                self._members[group.path] = error
        found = self._members[group.path]
        if isinstance(found, CloudError):
            raise found
        return found

    def has(self, groups: Mapping[str, Group], instance: Instance) -> bool:
        """Whether its group still has it; where the group's owner does not consent, nobody asks.

        Raises:
            CloudError: the group's members cannot be listed.

        """
        group = groups.get(instance.group[0]) if instance.group is not None else None
        if group is None or not group.is_enrolled(self._fleet):
            return True
        return instance.id in self._ids_in(group)


class Listing:
    """One project's machines, with what each zone showed last."""

    def __init__(
        self, client: Client, translator: Translator, views: Views[Zone], wanted: Callable[[str], bool]
    ) -> None:
        """Nothing is asked yet; `wanted` says which regions are looked at."""
        self.client, self.wanted = client, wanted
        self._translator, self._views = translator, views
        self._zones: set[Zone] = set()
        self._silence: CloudError | None = None
        self.homes: dict[str, Home] = {}
        self._bare = Bare()

    @property
    def name(self) -> str:
        """Return the zone's name for messages."""
        return self.client.name

    def nodes(self) -> list[Node]:
        """The project's GPU machines.

        Raises:
            CloudError: the list could not be had, or that of a zone that has shown nothing yet.

        """
        scopes = self.client.scopes(LIST_INSTANCES)
        self._silence = None
        answers: dict[Zone, list[Instance] | CloudError] = {}
        for scope, content in scopes.items():
            zone = scope.removeprefix(_ZONE)
            if scope.startswith(_ZONE) and self.wanted(region_of(zone)):
                place = Zone(self.client.project, zone)
                answers[place] = content if isinstance(content, CloudError) else self._instances(content)
        answers = {**{place: [] for place in self._zones if place not in answers}, **answers}
        memberships = Memberships(self.client, self.wanted, self._translator.fleet)
        listed = [each for answer in answers.values() if not isinstance(answer, CloudError) for each in answer]
        self._find_hidden(memberships, listed)
        memberships.groups(listed)  # without them nothing is known of the project; what else fails is of a zone alone
        found: list[Node] = []
        for place, answer in answers.items():
            try:
                found += self._of_zone(place, answer, memberships)
            except CloudError as error:
                found += self._views.last_nodes(place, error)
            self._zones.add(place)
        return found

    def ids(self) -> set[str]:
        """The ids of all machines of the project; raises CloudError where any zone gave no answer."""
        found: set[str] = set()
        for content in self.client.scopes(LIST_INSTANCES).values():
            if isinstance(content, CloudError):
                raise content
            found |= {str(each.get("id")) for each in content}
        return found

    def last_nodes(self, error: CloudError) -> list[Node]:
        """What a project without an answer showed last.

        Raises:
            CloudError: it has shown nothing yet.

        """
        zones = self._known_zones
        if not zones and not self._views.recalls:
            note_silence(self._silence_of(error), error)
        return [
            node for place in sorted(zones, key=lambda each: each.zone) for node in self._views.last_nodes(place, error)
        ]

    def holds(self, thing: Node | NodeGroup) -> bool:
        """Whether it is of this project."""
        return thing.account == self.client.project

    def note_silence(self, error: CloudError) -> None:
        """The whole project gave no answer."""
        self._silence = error

    @property
    def silent(self) -> tuple[Silence, ...]:
        """The project, where it gave no answer as a whole."""
        return () if self._silence is None else (self._silence_of(self._silence),)

    def _silence_of(self, error: CloudError) -> Silence:
        return Silence(where=self.name, reason=str(error), known=bool(self._known_zones))

    @property
    def _known_zones(self) -> set[Zone]:
        """The zones that have shown what they have, now or before this process began."""
        project, past = self.client.project, self._views.past
        if self._zones:
            return self._zones
        suffix = f" of project {project}"
        names = {node.zone for node in past.nodes if node.account == project}
        names |= {each.removesuffix(suffix) for each in past.places if each.endswith(suffix)}
        return {Zone(project, name) for name in names if self.wanted(region_of(name))}

    def one(self, instance: Instance) -> Node:
        """One machine, with its group and what is being done to it."""
        memberships = Memberships(self.client, self.wanted, self._translator.fleet)
        return self._translate_instances([instance], memberships)[0]

    def remember(self, instance: Instance) -> None:
        """Remember in which zone a machine is."""
        self.homes[instance.id] = Home(client=self.client, zone=instance.zone, name=instance.name)

    def _find_hidden(self, memberships: Memberships, listed: Sequence[Instance]) -> None:
        """Who is in a group without saying so; where no answer comes, that is what was known before."""
        try:
            self._bare = memberships.find_hidden(listed, self._bare)
        except CloudError as error:
            log.info("%s: machines that name no group are taken for what they were before", error)

    def _instances(self, content: Iterable[Mapping[str, object]]) -> list[Instance]:
        return [Instance(described=each, project=self.client.project) for each in content]

    def _of_zone(self, place: Zone, answer: list[Instance] | CloudError, memberships: Memberships) -> list[Node]:
        if isinstance(answer, CloudError):
            return self._views.last_nodes(place, answer)
        listed = [instance.id for instance in answer]
        gone = []
        for node_id in self._views.left_out(place, listed):
            home = self.homes.get(node_id)
            if home is None:  # it was seen before this process began
                continue
            try:
                answer.append(describe_instance(home, node_id))
            except NotFoundError:
                if ended_machine(self.client, node_id, home.zone) is not None:
                    gone.append(node_id)
        for instance in answer:
            self.remember(instance)
        nodes = [node for node in self._translate_instances(answer, memberships) if _is_shown(node)]
        return self._views.keep(place, nodes, [*(instance.id for instance in answer), *gone])

    def _translate_instances(self, instances: list[Instance], memberships: Memberships) -> list[Node]:
        instances = [replace(each, found_in=self._bare.groups.get(each.id)) for each in instances]
        groups = memberships.groups(instances)
        stopping = {instance.zone for instance in instances if instance.state is NodeState.STOPPING}
        leaving = {node_id for zone in sorted(stopping) for node_id in being_deleted(self.client, zone)}
        return [self._node(each, groups, memberships, leaving=leaving) for each in instances]

    def _node(
        self, instance: Instance, groups: Mapping[str, Group], memberships: Memberships, *, leaving: Collection[str]
    ) -> Node:
        """One machine; as last seen where nobody can say whether it is in a group."""
        doubt, member = self._bare.doubts.get(instance.id), True
        try:
            member = memberships.has(groups, instance)
        except CloudError as error:
            doubt = str(error)
        node = self._translator.node(
            self.client,
            instance,
            groups,
            leaving=instance.id in leaving and instance.state is NodeState.STOPPING,
            member=member,
        )
        return node if doubt is None else as_last_seen(node, doubt)


def _is_shown(node: Node) -> bool:
    """GPU machines, and machines of the fleet of which nobody knows what they have."""
    return node.known_gpus > 0 or (node.gpu_count is None and node.enrolled)
