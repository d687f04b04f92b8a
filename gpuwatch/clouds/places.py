"""What every cloud shares that has several places: asking all of them, and what a silent one showed last.

A place is what is asked by itself: a region, of one account or project or subscription. A machine that a list leaves
out may still run, and one of a place that gives no answer probably does: both stay in the fleet as last seen, in an
unknown state. So they count as capacity, keep their notices, and are left alone.
"""

import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from gpuwatch.clouds.errors import CloudError
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

_AT_ONCE = 8  # places that are asked at the same time
_FORGET_SECONDS = 900.0  # for which a machine that its cloud shows neither as there nor as gone counts as there


class Place(Hashable, Protocol):
    """A part of a cloud that is asked by itself. The same part is the same object, or an equal one, in every round."""

    @property
    def name(self) -> str:
        """For messages: the region, and the account where there are several."""
        ...


AnyPlace = TypeVar("AnyPlace", bound=Place)
Answer = TypeVar("Answer")


def attempt(ask: Callable[[], Answer]) -> Answer | CloudError:
    """The answer, or the error instead of it."""
    try:
        return ask()
    except CloudError as error:
        return error


def everywhere(places: Sequence[AnyPlace], ask: Callable[[AnyPlace], Answer]) -> list[Answer]:
    """Each place's answer, in the order of the places, several asked at a time; none at all if one place failed.

    Raises:
        CloudError: of the first place, in their order, that failed.

    """
    if len(places) <= 1:
        return [ask(place) for place in places]
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(places))) as pool:
        return list(pool.map(ask, places))


def anywhere(
    places: Sequence[AnyPlace],
    ask: Callable[[AnyPlace], list[Answer]],
    last: Callable[[AnyPlace, CloudError], list[Answer]],
) -> Iterator[tuple[AnyPlace, list[Answer]]]:
    """Each place's answer, or what it showed last; where none answers, nobody sees anything.

    Raises:
        CloudError: of the first place that failed, if all did, or if it has never answered.

    """
    answers = everywhere(places, lambda place: attempt(lambda: ask(place)))
    failed = [each for each in answers if isinstance(each, CloudError)]
    if failed and len(failed) == len(answers):
        raise failed[0]
    for place, answer in zip(places, answers, strict=True):
        yield place, last(place, answer) if isinstance(answer, CloudError) else answer


class Views(Generic[AnyPlace]):
    """What each place showed last, for a round in which it shows less, or nothing.

    It lasts as long as its process: a controller that has just begun sees a whole fleet once before it sees a part of
    one. `cloud` is the cloud's name in the log.
    """

    def __init__(self, clock: Clock, *, cloud: str) -> None:
        """Nothing was seen yet."""
        self._clock = clock
        self._cloud = cloud
        self._nodes: dict[AnyPlace, dict[str, Node]] = {}
        self._groups: dict[AnyPlace, list[NodeGroup]] = {}
        self._missing_since: dict[str, float] = {}
        self._silent: set[AnyPlace] = set()

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
                found[node_id] = replace(node, state=NodeState.UNKNOWN)
            else:
                log.warning("%s in %s no longer lists %s: it counts as gone", self._cloud, place.name, node_id)
        for node_id in self._missing_since.keys() & (answered | (self._nodes.get(place, {}).keys() - found.keys())):
            del self._missing_since[node_id]
        self._nodes[place] = found
        self._answers(place)
        return list(found.values())

    def last_nodes(self, place: AnyPlace, error: CloudError) -> list[Node]:
        """What a place without an answer showed last.

        Raises:
            CloudError: it has shown nothing yet.

        """
        if place not in self._nodes:
            raise error
        if place not in self._silent:
            self._silent.add(place)
            log.warning("%s; its machines count as they were and are left alone", error)
        return [replace(node, state=NodeState.UNKNOWN) for node in self._nodes[place].values()]

    def keep_groups(self, place: AnyPlace, groups: Sequence[NodeGroup]) -> list[NodeGroup]:
        """The groups that a place shows now."""
        self._groups[place] = list(groups)
        return self._groups[place]

    def last_groups(self, place: AnyPlace, error: CloudError) -> list[NodeGroup]:
        """The groups that a place without an answer showed last, protected from every change; raises likewise."""
        if place not in self._groups:
            raise error
        return [replace(group, protected=f"its region gave no answer ({error})") for group in self._groups[place]]

    def _answers(self, place: AnyPlace) -> None:
        """Say once that a place answers again."""
        if place in self._silent:
            self._silent.discard(place)
            log.warning("%s in %s answers again", self._cloud, place.name)
