"""What every cloud shares that has several places: asking all of them, and what a silent one showed last.

A place is what is asked by itself: a region, of one account or project or subscription. A machine that a list leaves
out may still run, and one of a place that gives no answer probably does: both stay in the fleet as last seen, in an
unknown state. So they count as capacity, keep their notices, and are left alone.
"""

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from gpuwatch.clouds.errors import CloudError, CloudUnavailableError
from gpuwatch.clouds.silence import Outlook, Past, Recall, as_last_seen, note_silence
from gpuwatch.model.fleet import Node, NodeGroup
from gpuwatch.model.sight import Silence
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

_LONGEST = 300  # characters of an error that quotes an answer
_AT_ONCE = 8  # places that are asked at the same time
_FORGET_SECONDS = 900.0  # for which a machine that its cloud shows neither as there nor as gone counts as there


class Place(Hashable, Protocol):
    """A part of a cloud that is asked by itself. The same part is the same object, or an equal one, in every round."""

    @property
    def name(self) -> str:
        """For messages: the region, and the account where there are several."""
        ...

    def holds(self, thing: Node | NodeGroup) -> bool:
        """Whether a machine or group that was seen earlier is, or may be, in it; nothing is asked."""
        ...


AnyPlace = TypeVar("AnyPlace", bound=Place)
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


def attempt(ask: Callable[[], Answer]) -> Answer | CloudError:
    """The answer, or the error instead; a mistake of ours in reading one place's answer counts as no answer."""
    try:
        return ask()
    except CloudError as error:
        return error
    except Exception as error:
        log.exception("The answer of a place cannot be read")
        kind = type(error).__name__
        return CloudUnavailableError(f"its answer cannot be read ({kind}: {error})"[:_LONGEST], code=kind)


def everywhere(places: Sequence[Asked], ask: Callable[[Asked], Answer]) -> list[Answer]:
    """Each place's answer, in the order of the places, several asked at a time; none at all if one place failed.

    Raises:
        CloudError: of the first place, in their order, that failed.

    """
    if len(places) <= 1:
        return [ask(place) for place in places]
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(places))) as pool:
        return list(pool.map(ask, places))


def gather_from(places: Sequence[AnyPlace], ask: Callable[[AnyPlace], Iterable[Answer]]) -> list[Answer]:
    """What all places have; within `partial` without those that give no answer, unless none does.

    Raises:
        CloudError: of the first place that failed, if all did, or if the list must not lack any.

    """
    answers = everywhere(places, lambda place: attempt(lambda: list(ask(place))))
    failed = [each for each in answers if isinstance(each, CloudError)]
    if failed and len(failed) == len(answers):
        raise failed[0]
    found: list[Answer] = []
    for place, answer in zip(places, answers, strict=True):
        if isinstance(answer, CloudError):
            note_silence(Silence(where=place.name, reason=str(answer), known=False), answer)
        else:
            found += answer
    return found


def anywhere(
    places: Sequence[AnyPlace],
    ask: Callable[[AnyPlace], list[Answer]],
    last: Callable[[AnyPlace, CloudError], list[Answer]],
    fails: Callable[[AnyPlace, CloudError], object] = lambda _place, _error: None,
) -> Iterator[tuple[AnyPlace, list[Answer]]]:
    """Each place's answer, or what it showed last; where none answers, nobody sees anything. `fails` hears of each.

    Raises:
        CloudError: of the first place that failed, if all did, or if nothing may be said of it (`last`).

    """
    answers = everywhere(places, lambda place: attempt(lambda: ask(place)))
    for place, answer in zip(places, answers, strict=True):
        if isinstance(answer, CloudError):
            fails(place, answer)
    failed = [each for each in answers if isinstance(each, CloudError)]
    if failed and len(failed) == len(answers):
        raise failed[0]
    for place, answer in zip(places, answers, strict=True):
        yield place, last(place, answer) if isinstance(answer, CloudError) else answer


def in_doubt(group: NodeGroup, error: CloudError) -> NodeGroup:
    """A group that cannot be looked into now, protected from every change."""
    return replace(group, protected=f"nobody can say who is in it ({error})", seen_now=False)


class Views(Generic[AnyPlace]):
    """What each place showed last, for a round in which it shows less, or nothing.

    It lasts as long as its process. Of a place that has shown nothing yet, `recall` gives what was seen before that.
    `cloud` is the cloud's name in the log.
    """

    def __init__(self, clock: Clock, *, cloud: str) -> None:
        """Nothing was seen yet."""
        self._clock = clock
        self._cloud = cloud
        self._recall: Recall | None = None
        self._past: Past | None = None
        self._answered: set[str] = set()  # the names of places that have shown what they have, now or before
        self._nodes: dict[AnyPlace, dict[str, Node]] = {}
        self._groups: dict[AnyPlace, list[NodeGroup]] = {}
        self._missing_since: dict[str, float] = {}
        self._silent: dict[AnyPlace, str] = {}  # why
        self._told: set[AnyPlace] = set()  # the silent ones that the log has
        self._no_groups: dict[AnyPlace, str] = {}  # places whose groups could not be listed

    # What is shown.

    def nodes(
        self, places: Sequence[AnyPlace], ask: Callable[[AnyPlace], list[Node]]
    ) -> Iterator[tuple[AnyPlace, list[Node]]]:
        """Each place's machines; of a silent one as last seen, except those that another place shows now; raises."""
        found = list(anywhere(places, ask, self.last_nodes, self._lacks_nodes))
        shown = {node.id for place, nodes in found if place not in self._silent for node in nodes}
        for place, nodes in found:
            yield place, [node for node in nodes if node.id not in shown] if place in self._silent else nodes

    def groups(
        self, places: Sequence[AnyPlace], ask: Callable[[AnyPlace], list[NodeGroup]]
    ) -> Iterator[tuple[AnyPlace, list[NodeGroup]]]:
        """Each place's groups; of a silent one as last seen; raises CloudError."""
        return anywhere(places, ask, self.last_groups, self._lacks_groups)

    def left_out(self, place: AnyPlace, listed: Collection[str]) -> list[str]:
        """The machines that were there before and are not among these."""
        return sorted(self._nodes.get(place, {}).keys() - set(listed))

    def keep(self, place: AnyPlace, nodes: Iterable[Node], answered: Collection[str]) -> list[Node]:
        """What the place shows now, and the machines that its answer left out; `answered` are the ids in it."""
        now, found = self._clock.monotonic(), {node.id: node for node in nodes}
        answered = set(answered)
        for node_id, node in self._nodes.get(place, {}).items():
            if node_id in answered:
                continue
            since = self._missing_since.setdefault(node_id, now)
            if now - since <= _FORGET_SECONDS:
                found[node_id] = as_last_seen(node, f"the list of {place.name} leaves it out")
            else:
                log.warning("%s in %s no longer lists %s: it counts as gone", self._cloud, place.name, node_id)
        for node_id in self._missing_since.keys() & (answered | (self._nodes.get(place, {}).keys() - found.keys())):
            del self._missing_since[node_id]
        self._nodes[place] = found
        self._answered.add(place.name)
        self._silent.pop(place, None)
        if place in self._told:
            self._told.discard(place)
            log.warning("%s in %s answers again", self._cloud, place.name)
        return list(found.values())

    def last_nodes(self, place: AnyPlace, error: CloudError) -> list[Node]:
        """What a place without an answer showed last, in this process or before it.

        Raises:
            CloudError: nobody can say, and nobody has asked for a list that may lack it (`partial`).

        """
        self._lacks_nodes(place, error)
        if place not in self._nodes:
            if self._recall is None:
                note_silence(Silence(where=place.name, reason=str(error), known=False), error)
                return []
            self._nodes[place] = {node.id: node for node in self.past.nodes if place.holds(node)}
        if place not in self._told:
            self._told.add(place)
            log.warning("%s; its machines count as they were and are left alone", error)
        return [as_last_seen(node, str(error)) for node in self._nodes[place].values()]

    def keep_groups(
        self,
        place: AnyPlace,
        groups: Sequence[NodeGroup],
        lost: Callable[[NodeGroup], CloudError | None] = lambda _: None,
        silent: Mapping[str, CloudError] = MappingProxyType({}),
    ) -> list[NodeGroup]:
        """The groups that a place shows now, and those of its parts that gave no answer (`silent`), as last seen.

        `lost` is why a group's part gave none.

        Raises:
            CloudError: of a part that gave no answer, where nobody knows what the place had.

        """
        kept: list[NodeGroup] = []
        if silent:
            error = next(iter(silent.values()))
            kept = [each for each in self._known_groups(place, error) if lost(each) is not None]
        self._groups[place] = [*groups, *kept]
        self._no_groups.pop(place, None)
        return [
            *groups,
            *(replace(each, protected=f"its zone gave no answer ({lost(each)})", seen_now=False) for each in kept),
        ]

    def last_groups(self, place: AnyPlace, error: CloudError) -> list[NodeGroup]:
        """The groups that a place without an answer showed last, protected from every change; raises CloudError."""
        self._lacks_groups(place, error)
        why = f"its region gave no answer ({error})"
        return [replace(group, protected=why, seen_now=False) for group in self._known_groups(place, error)]

    def last_group(self, place: AnyPlace, group_id: str, error: CloudError) -> NodeGroup | None:
        """A group that cannot be looked into, as its place showed it last; None: it never did."""
        known = self._groups.get(place, self.past.groups)
        return next((in_doubt(each, error) for each in known if each.id == group_id), None)

    def _known_groups(self, place: AnyPlace, error: CloudError) -> list[NodeGroup]:
        """The groups that a place showed last, in this process or before it; raises the error where nobody knows."""
        if place not in self._groups:
            if self._recall is None:
                raise error
            self._groups[place] = [group for group in self.past.groups if place.holds(group)]
        return self._groups[place]

    # What is known of places that have shown nothing yet.

    def recall(self, past: Recall) -> None:
        """Ask this for what a place had before this process began."""
        self._recall, self._past = past, None

    @property
    def past(self) -> Past:
        """What was seen before; asked for once, when it is first needed."""
        if self._past is None:
            self._past = Past() if self._recall is None else self._recall()
        return self._past

    @property
    def recalls(self) -> bool:
        """Whether `recall` was called: there is a memory of what places had before this process began."""
        return self._recall is not None

    def outlook(self) -> Outlook:
        """The places that have shown what they have, and those that gave no answer to the newest lists."""
        before = self.past.places if self._silent or self._no_groups else frozenset[str]()
        silent = [
            Silence(where=place.name, reason=why, known=self._knows(place))
            for place, why in (self._no_groups | self._silent).items()
        ]
        return Outlook(
            places=frozenset(self._answered) | (before & {each.where for each in silent}),
            silent=tuple(sorted(silent, key=lambda each: each.where)),
        )

    def _knows(self, place: AnyPlace) -> bool:
        """Whether what it had was ever shown, if it were nothing."""
        return {place.name} <= self._answered | self.past.places or any(map(place.holds, self.past.nodes))

    def _lacks_nodes(self, place: AnyPlace, error: CloudError) -> None:
        self._silent[place] = str(error)

    def _lacks_groups(self, place: AnyPlace, error: CloudError) -> None:
        self._no_groups[place] = str(error)
