"""Places that give no answer: what is known of them from before, and lists for people that go on without them.

Decisions need every machine, so a list is whole or an error, with one exception: of a place that gives no answer the
machines count as they were seen last, in an unknown state. Who seeks that also for places that have never answered in
this process calls `recall`, and must then look at `outlook`: of some places nobody may know anything. Lists that people
read may lack a place, if they say so: `partial`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from gpuwatch.clouds.errors import CloudError
from gpuwatch.model.fleet import Node, NodeGroup, NodeReport, NodeState
from gpuwatch.model.sight import Silence


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What was seen before this process began; `places` are those that had shown what they have, also if nothing.

    `accepted` are the machines of which a stop was accepted or ended since then, and no round has seen them.
    """

    nodes: tuple[Node, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    places: frozenset[str] = frozenset()
    accepted: frozenset[str] = frozenset()

    def of_cloud(self, name: str) -> "Past":
        """The part of one of several clouds, by the names that this cloud itself gives."""
        return Past(
            nodes=tuple(node for node in self.nodes if node.cloud == name),
            groups=tuple(group for group in self.groups if group.cloud == name),
            places=frozenset(place.removeprefix(f"{name}: ") for place in self.places if place.startswith(f"{name}: ")),
            accepted=self.accepted,
        )


Recall = Callable[[], Past]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What the newest lists rest on: the places that have shown what they have, and those that gave no answer now."""

    places: frozenset[str] = frozenset()
    silent: tuple[Silence, ...] = ()

    def of_cloud(self, name: str) -> "Outlook":
        """The same, as a part of several clouds."""
        return Outlook(
            places=frozenset(f"{name}: {place}" for place in self.places),
            silent=tuple(replace(each, cloud=name) for each in self.silent),
        )


@runtime_checkable
class Recalling(Protocol):
    """A cloud that can go on without a place that has never answered in this process."""

    def recall(self, past: Recall) -> None:
        """From now on `past` is asked for what such a place has; it is asked when that is first needed."""
        ...

    def outlook(self) -> Outlook:
        """What the newest lists of nodes and groups rest on."""
        ...


@runtime_checkable
class Listed(Protocol):
    """A cloud that can be asked whether a whole list of a machine's place is without it."""

    def lacks(self, node: Node) -> bool:
        """Ask for the list of the region and account in which the machine was, past every filter, and look for its id.

        Raises:
            NotFoundError: the settings have no such place, or its account is another one now.
            CloudError: the list could not be had whole.

        """
        ...


def as_last_seen(node: Node, why: str) -> Node:
    """A machine that its cloud does not show now, for that reason."""
    last = node.last_shown if node.state is NodeState.UNKNOWN else node.state
    return replace(node, state=NodeState.UNKNOWN, last_shown=last, unseen=why, signal=NodeReport())


def of_cloud(cloud: object) -> Outlook:
    """What the newest lists of a cloud rest on; nothing where it cannot say."""
    return cloud.outlook() if isinstance(cloud, Recalling) else Outlook()


# Lists for people.


@dataclass(slots=True)
class Missed:
    """The places that a list goes on without."""

    silent: list[Silence] = field(default_factory=list)


_MISSED: ContextVar[Missed | None] = ContextVar("gpuwatch_missed_places", default=None)


@contextmanager
def partial() -> Iterator[list[Silence]]:
    """Within, lists go on without the places that give no answer, unless none does; yields these places."""
    missed = Missed()
    token = _MISSED.set(missed)
    try:
        yield missed.silent
    finally:
        _MISSED.reset(token)


def partial_here() -> bool:
    """Whether a list may lack places."""
    return _MISSED.get() is not None


def note_silence(silence: Silence, error: CloudError) -> None:
    """Note a place without an answer, each once.

    Raises:
        CloudError: nobody has asked for a list that may lack places.

    """
    found = _MISSED.get()
    if found is None:
        raise error
    if (silence.cloud, silence.where) not in {(each.cloud, each.where) for each in found.silent}:
        found.silent.append(silence)
