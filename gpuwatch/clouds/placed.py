"""What the adapters of all clouds have in common: a cloud of places, each of which is asked by itself.

A place is a region of an account, a subscription or a project. A cloud's own `cloud.py` says how one place is asked,
and keeps `node`, `stop`, `start`, `terminate` and `launch`, in which clouds differ most. Clouds of accounts and
regions have more in common: `clouds/regions.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import ClassVar, Generic, Protocol, TypeVar

from gpuwatch.clouds import CloudError, Leftover, NotFoundError, refuse_foreign_tags
from gpuwatch.clouds.disks import by_id, in_use
from gpuwatch.clouds.groups import Refusals
from gpuwatch.clouds.permissions import Needs, Permission, Quota
from gpuwatch.clouds.places import AnyPlace, Place, Views, attempt, everywhere, gather_from
from gpuwatch.clouds.silence import Outlook, Recall
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.runtime.clock import Clock


class Consenting(Protocol):
    """A group as its cloud describes it."""

    def is_enrolled(self, fleet: str) -> bool:
        """Whether its owner consents to this fleet's controller."""
        ...


Group = TypeVar("Group", bound=Consenting)
Where_contra = TypeVar("Where_contra", bound=Place, contravariant=True)


class Acts(Protocol[Where_contra]):
    """What a cloud's module `actions` has for the base; each is sent once, while its permit holds."""

    def grow(self, place: Where_contra, group_id: str, size: int, *, key: str, fleet: str) -> None:
        """Raise a group's desired size, where it is smaller at this moment."""
        ...

    def shrink(self, place: Where_contra, group_id: str, size: int, *, key: str, fleet: str) -> None:
        """Take a group's desired size back, where no member can go for it."""
        ...


class PlacedCloud(ABC, Generic[AnyPlace, Group]):
    """A cloud as `gpuwatch.clouds.Cloud`, but for what each cloud does in its own way."""

    SERVICE: ClassVar[str]  # whose machines they are, for people
    NO_GROUP: ClassVar[str]
    acts: Acts[AnyPlace]  # its module `actions`

    def __init__(self, *, fleet: str, clock: Clock) -> None:
        """Nothing is sent yet."""
        self._fleet, self._clock = fleet, clock
        self._views: Views[AnyPlace] = Views(clock, cloud=self.SERVICE)
        self._refusals = Refusals(clock)
        self._homes: dict[str, AnyPlace] = {}  # by the id of a node
        self._group_homes: dict[str, AnyPlace] = {}

    # How one place is asked: a cloud's own.

    @property
    @abstractmethod
    def _all(self) -> Sequence[AnyPlace]:
        """Every place, in the order of the settings; the first is where a launch goes that names none."""

    @abstractmethod
    def _place_of(self, region: str | None, account: str | None) -> AnyPlace:
        """Find the first place of that region and account, where they are given; raises NotFoundError."""

    @abstractmethod
    def _nodes(self, place: AnyPlace) -> list[Node]:
        """List the place's GPU machines; what was there before and is not listed is asked for by its id."""

    @abstractmethod
    def _ids(self, place: AnyPlace) -> Collection[str]:
        """List the ids of all machines of a place, past every filter."""

    @abstractmethod
    def _find_launched(self, place: AnyPlace, key: str) -> Node | None:
        """Look for the machine in a place that was launched with that key."""

    @abstractmethod
    def _listed_groups(self, place: AnyPlace) -> Iterable[Group]:
        """List every group of the place."""

    @abstractmethod
    def _known_group(self, place: AnyPlace, group_id: str) -> Group:
        """Look at one group as it is now; raises NotFoundError where the place does not have it."""

    @abstractmethod
    def _has_gpus(self, place: AnyPlace, group: Group) -> bool:
        """Whether the machines of a group are known to have GPUs."""

    @abstractmethod
    def _group_in_our_words(self, place: AnyPlace, group: Group) -> NodeGroup:
        """Put a group into our words, with why it lacks members."""

    @abstractmethod
    def _list_unused(self, place: AnyPlace, stopped: frozenset[str], now: datetime) -> Iterable[Leftover]:
        """List what is billed in the place and used by no running machine; `stopped` are machines of all places."""

    @abstractmethod
    def _disks_in_use(self, place: AnyPlace, node_ids: frozenset[str]) -> Iterable[Leftover]:
        """List the place's disks of these machines."""

    def _quotas(self, place: AnyPlace) -> Iterable[Quota]:
        """List the place's limits on GPU machines; none where `quotas` is the cloud's own."""
        del place
        return ()

    @abstractmethod
    def _no_gpu(self, arguments: Mapping[str, str]) -> str | None:
        """Say why a launch would bring no node; None also where nobody can tell before it."""

    @abstractmethod
    def _may_read(self, place: AnyPlace) -> Iterable[Permission]:
        """Try what is read in a place."""

    @abstractmethod
    def _may_act(self, place: AnyPlace, needs: Needs) -> Iterable[Permission]:
        """Try what is done in a place; nothing is carried out."""

    def _may_beyond(self, place: AnyPlace, node_ids: Sequence[str]) -> Iterable[Permission]:
        """Try what would change one of these machines of others; none where the cloud cannot try it."""
        del place, node_ids
        return ()

    @abstractmethod
    def _may_launch(self, arguments: Mapping[str, str]) -> Iterable[Permission]:
        """Try a launch; nothing is carried out."""

    @abstractmethod
    def _protect(self, node_id: str, group_id: str, *, on: bool) -> None:
        """Set a member's protection against its group's own scale-in, or lift it."""

    @abstractmethod
    def _tag(self, node_id: str, tags: Mapping[str, str]) -> None:
        """Set tags; the others stay."""

    def _unencrypted_disks(self, place: AnyPlace, node_ids: frozenset[str]) -> Iterable[str]:
        """List disks of these machines that are not encrypted; none where the cloud encrypts every disk."""
        del place, node_ids
        return ()

    def _ended_launch(self, key: str) -> Node | None:
        """Find the machine of a key that no place shows any more, where its end is known."""
        del key
        return None

    @staticmethod
    def _without_gpu(arguments: Mapping[str, str], name: str | None) -> str:
        """Say that a template's machine type would bring no node."""
        return f"the launch template {arguments['template']} makes a machine of type {name}, which has no GPU of NVIDIA"

    # Reading.

    def nodes(self) -> Sequence[Node]:
        """All GPU machines that exist, in every place; of a silent one as last seen."""
        listed: dict[str, Node] = {}
        for place, nodes in self._everywhere():
            for node in nodes:
                listed[node.id] = node
                self._homes[node.id] = place
        self._remember(listed)
        return tuple(listed[node_id] for node_id in sorted(listed))

    def _everywhere(self) -> Iterator[tuple[AnyPlace, list[Node]]]:
        """What each place shows, or showed last."""
        return self._views.nodes(self._all, self._nodes)

    def _remember(self, listed: Mapping[str, Node]) -> None:
        """Keep what a whole list has; a cloud that shows no machine after its end remembers more."""
        self._homes = {node_id: home for node_id, home in self._homes.items() if node_id in listed}

    def lacks(self, node: Node) -> bool:
        """Whether a whole list of its place is without it."""
        return node.id not in self._ids(self._place_of(node.region, node.account))

    def find(self, key: str, arguments: Mapping[str, str] | None = None) -> Node | None:
        """The machine launched with that key, by what the cloud itself knows of the launch; tags may be anybody's."""
        places = self._all
        answers = everywhere(places, lambda place: attempt(lambda: self._find_launched(place, key)))
        for place, found in zip(places, answers, strict=True):
            if isinstance(found, Node):
                self._homes[found.id] = place
                return found
        home = self._place_named(arguments or {})
        for place, found in zip(places, answers, strict=True):
            if isinstance(found, CloudError) and home in {None, place}:
                raise found
        return self._ended_launch(key)

    def _place_named(self, arguments: Mapping[str, str]) -> AnyPlace | None:
        """Find the place that the arguments of a launch name; None: they name none, or one that is not there now."""
        if not arguments.get("region"):
            return None
        try:
            return self._place_of(arguments["region"], arguments.get("account") or None)
        except CloudError:
            return None

    def groups(self) -> Sequence[NodeGroup]:
        """The groups of this fleet, and all others that have GPU machines."""
        found: list[NodeGroup] = []
        for place, groups in self._views.groups(self._all, self._groups):
            self._group_homes |= {group.id: place for group in groups}
            found += groups
        return tuple(sorted(found, key=lambda group: group.id))

    def _groups(self, place: AnyPlace) -> list[NodeGroup]:
        shown = [
            self._group_in_our_words(place, group)
            for group in self._listed_groups(place)
            if group.is_enrolled(self._fleet) or self._has_gpus(place, group)
        ]
        return self._views.keep_groups(place, shown)

    def group(self, group_id: str) -> NodeGroup:
        """One group as it is now."""
        place = self._home_of_group(group_id)
        return self._group_in_our_words(place, self._known_group(place, group_id))

    def leftovers(self) -> Sequence[Leftover]:
        """What no running machine uses, in every place."""
        stopped, now = frozenset(each.id for each in self.nodes() if each.state is NodeState.STOPPED), self._clock.now()
        return by_id(gather_from(self._all, lambda place: self._list_unused(place, stopped, now)))

    def disks(self) -> Sequence[Leftover]:
        """Disks of machines in use, in every place."""
        running = in_use(self.nodes())
        return by_id(gather_from(self._all, lambda place: self._disks_in_use(place, running)))

    # Places that give no answer.

    def recall(self, past: Recall) -> None:
        """Ask this for what a place had that has shown nothing yet."""
        self._views.recall(past)

    def outlook(self) -> Outlook:
        """What the newest lists rest on."""
        return self._views.outlook()

    # Acting.

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Raise a group's desired size."""
        self.acts.grow(self._home_of_group(group_id), group_id, size, key=key, fleet=self._fleet)

    def shrink(self, group_id: str, size: int, key: str) -> None:
        """Take back what a group lacks."""
        self.acts.shrink(self._home_of_group(group_id), group_id, size, key=key, fleet=self._fleet)

    def protect(self, node_id: str, group_id: str, key: str, *, on: bool) -> None:
        """Set a member's protection against its group's own scale-in, or lift it."""
        del key
        self._protect(node_id, group_id, on=on)

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of the allow-list."""
        del key
        refuse_foreign_tags(tags)
        self._tag(node_id, tags)

    # Our own standing; nothing is carried out.

    def may(self, needs: Needs) -> Iterator[Permission]:
        """Whether what the settings will make the controller do is allowed, in every place."""
        for place in self._all:
            yield from self._may_read(place)
            if needs.act:
                yield from self._may_act(place, needs)
        for arguments in needs.launches:
            yield from self._may_launch(arguments)

    def may_beyond(self, node_ids: Sequence[str]) -> Iterator[Permission]:
        """Whether changes of machines that are not the fleet's are allowed, in every place that has one of these."""
        return (each for place in self._all for each in self._may_beyond(place, node_ids))

    def unfit(self, launches: Sequence[Mapping[str, str]]) -> Iterator[str]:
        """Why templates do not fit: their machine type has no GPU that the agent can read."""
        return (why for arguments in launches if (why := self._no_gpu(arguments)) is not None)

    def unencrypted_disks(self, node_ids: Sequence[str]) -> Sequence[str]:
        """Disks of these machines, in every place."""
        wanted = frozenset(node_ids)
        return tuple(gather_from(self._all, lambda place: self._unencrypted_disks(place, wanted)))

    def quotas(self) -> Sequence[Quota]:
        """Limits on GPU machines, in every place."""
        found = gather_from(self._all, self._quotas)
        return tuple(sorted(found, key=lambda each: (each.region, each.name)))

    # Which place.

    def _home_of_group(self, group_id: str) -> AnyPlace:
        """Find the place of a group; where its id does not name one, each is asked."""
        if group_id in self._group_homes:
            return self._group_homes[group_id]
        for place in self._all:
            try:
                self._known_group(place, group_id)
            except NotFoundError:
                continue
            self._group_homes[group_id] = place
            return place
        raise NotFoundError(f"there is no group {group_id} in {self._names}", code=self.NO_GROUP)

    @property
    def _names(self) -> str:
        """The names of all places, for people."""
        return ", ".join(place.name for place in self._all)
