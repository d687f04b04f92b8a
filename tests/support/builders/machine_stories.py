"""What may have happened to a machine of a pool, as clouds' lists and the ledger tell it, and where it then counts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from gpuwatch.model.decision import (
    DECISION_TAG,
    Done,
    Intent,
    LedgerView,
    Observation,
    OpenIntent,
    Outcome,
    Status,
    Stopped,
    Verb,
)
from gpuwatch.model.fleet import CapacityType, Fleet, GroupRefusal, Node, NodeGroup, NodeState
from gpuwatch.model.life import End, Life
from tests.support.builders.fleet import NOW, a_node, a_stop
from tests.support.builders.guard_cases_gpus import TAKEN
from tests.support.builders.offers import SPOT_A, SURE
from tests.support.builders.past_steps import REASON, a_group

OFFERS = {"spot-a": replace(SPOT_A, gpus=1), "sure": replace(SURE, gpus=1)}
MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one machine has left in lists and ledger."""

    nodes: tuple[Node, ...] = ()
    groups: tuple[NodeGroup, ...] = ()
    opened: tuple[OpenIntent, ...] = ()
    recent: tuple[Done, ...] = ()
    stops: tuple[Stopped, ...] = ()
    lives: tuple[Life, ...] = ()
    ended: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One machine of the pool: its number, and whether it is spot."""

    number: int
    spot: bool = False

    @property
    def id(self) -> str:
        """Its cloud's name."""
        return f"i-{self.number}"

    @property
    def group_id(self) -> str:
        """The group that has it as its only member, where it is one."""
        return f"g-{self.number}"

    @property
    def asked(self) -> dict[str, str]:
        """What its launch asked for."""
        return SPOT_A.arguments("spot-a", "default") if self.spot else SURE.arguments("sure", "default")

    @property
    def tagged(self) -> dict[str, Any]:
        """The tag of its launch."""
        return {"tags": {DECISION_TAG: f"k-{self.number}-launch"}}

    def seen(self, state: NodeState = NodeState.RUNNING, **other: Any) -> Told:  # noqa: ANN401  of a Node
        """Listed in that state."""
        paid = CapacityType.SPOT if self.spot else CapacityType.ON_DEMAND
        return Told(nodes=(replace(a_node(self.id, capacity_type=paid, owner="ann", **other), state=state),))

    def place(self, desired: int = 1, *, member: bool = False, **other: Any) -> Told:  # noqa: ANN401  of a NodeGroup
        """A group for it alone."""
        ids = (self.id,) if member else ()
        return Told(groups=(a_group(id=self.group_id, desired=desired, node_ids=ids, **other),))

    def open(self, verb: Verb, status: Status | None, *, minutes: float = 5.0, detail: str = "", **other: Any) -> Told:  # noqa: ANN401  of an OpenIntent
        """An open intent, of which the ledger has this."""
        done = self._done(verb, minutes)
        intent = Intent(key=done.key, verb=verb, node_id=done.node_id, pool="default", at=done.at, reason=REASON, arguments=done.arguments)  # fmt: skip  # noqa: E501
        last = None if status is None else Outcome(key=intent.key, at=intent.at, status=status, detail=detail)
        return Told(opened=(OpenIntent(intent=intent, attempts=1, last=last, **other),))

    def did(self, verb: Verb, *, minutes: float = 5.0, **other: Any) -> Told:  # noqa: ANN401  of a Done
        """A settled action."""
        return Told(recent=(replace(self._done(verb, minutes), **other),))

    def _done(self, verb: Verb, minutes: float) -> Done:
        target = {Verb.LAUNCH: f"new:default:{self.number}", Verb.GROW: self.group_id}.get(verb, self.id)
        asked = {Verb.LAUNCH: self.asked, Verb.GROW: {"size": "1", "adds": "1"}}.get(verb, {})
        detail = f"the cloud shows {self.id}" if verb is Verb.LAUNCH else ""
        return Done(key=f"k-{self.number}-{verb}", verb=verb, node_id=target, pool="default", status=Status.SETTLED, at=NOW - minutes * MINUTE, arguments=asked, detail=detail)  # fmt: skip  # noqa: E501


def together(parts: Sequence[Told]) -> Told:
    """All of it."""
    names = ("nodes", "groups", "opened", "recent", "stops", "lives", "ended")
    return Told(**{name: tuple(each for part in parts for each in getattr(part, name)) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happened to a machine, and the places in which it counts; a member's place is its group's to fill."""

    places: tuple[str, ...]
    told: Callable[[Machine], Sequence[Told]]


def _in(*places: str) -> Callable[[Callable[[Machine], Sequence[Told]]], Story]:
    return lambda told: Story(places=places, told=told)


UP, DOWN, PENDING, UNKNOWN, ENDED = (
    NodeState.RUNNING,
    NodeState.STOPPED,
    NodeState.PENDING,
    NodeState.UNKNOWN,
    NodeState.TERMINATED,
)
LAUNCH, START, STOP, END, GROW = Verb.LAUNCH, Verb.START, Verb.STOP, Verb.TERMINATE, Verb.GROW
YES, NO, LATER = Status.ACCEPTED, Status.THROTTLED, Status.INTERRUPTED
_DOUBT: dict[str, Any] = {"reached": True, "reached_at": NOW - 5 * MINUTE}
_OVER: dict[str, Any] = {"reached": True, "reached_at": NOW - 11 * MINUTE}
_NEVER: dict[str, Any] = {
    "minutes": 11,
    "detail": "the cloud launched i-x, and it does not appear: the cloud does not show it",
}
_SHORT: dict[str, Any] = {"short_since": NOW, "refused": GroupRefusal(at=NOW, why="none")}
_PRESENT, _LEAVING, _TAKEN, _NONE = _in("present"), _in("leaving"), _in("taken"), _in()
_COMING, _DOUBTFUL, _LATE, _STOPPED = _in("coming"), _in("doubtful"), _in("late"), _in("stopped")


def _stopped_itself(m: Machine) -> Told:
    at = NOW - 5 * MINUTE
    return Told(lives=(Life(key="k", pool="default", at=at, node_id=m.id, end=End.STOPPED, ended_at=at),))


STORIES = {
    "it runs": _PRESENT(lambda m: [m.seen()]),
    "it begins": _PRESENT(lambda m: [m.seen(PENDING)]),
    "its state is not known": _PRESENT(lambda m: [m.seen(UNKNOWN)]),
    "its stop is accepted": _LEAVING(lambda m: [m.seen(), m.open(STOP, YES)]),
    "its stop has no answer": _LEAVING(lambda m: [m.seen(), m.open(STOP, None)]),
    "its stop was throttled": _PRESENT(lambda m: [m.seen(), m.open(STOP, NO)]),
    "its cloud takes it": _TAKEN(lambda m: [m.seen(cloud_notice=TAKEN)]),
    "its cloud takes it while we stop it": _LEAVING(lambda m: [m.seen(cloud_notice=TAKEN), m.open(STOP, YES)]),
    "we stopped it": _NONE(lambda m: [m.seen(DOWN), Told(stops=(a_stop(m.id),))]),
    "it is its owner's": _NONE(lambda m: [m.seen(enrolled=False)]),
    "it has ended": _NONE(lambda m: [m.seen(ENDED)]),
    "its launch begins": _COMING(lambda m: [m.open(LAUNCH, None)]),
    "its launch is accepted": _COMING(lambda m: [m.open(LAUNCH, YES)]),
    "its launch has no answer": _COMING(lambda m: [m.open(LAUNCH, Status.UNAVAILABLE, **_DOUBT)]),
    "its launch is shown": _PRESENT(lambda m: [m.seen(**m.tagged), m.open(LAUNCH, YES)]),
    "its launch is shown by its id": _PRESENT(
        lambda m: [m.seen(), m.open(LAUNCH, YES, detail=f"the cloud launches {m.id}")]
    ),
    "it is shown without the fleet's tag": _COMING(lambda m: [m.seen(enrolled=False), m.open(LAUNCH, YES)]),
    "its launch was throttled": _NONE(lambda m: [m.open(LAUNCH, NO)]),
    "its launch may have happened": _DOUBTFUL(lambda m: [m.open(LAUNCH, LATER, **_DOUBT)]),
    "its launch has happened after all": _PRESENT(lambda m: [m.seen(**m.tagged), m.open(LAUNCH, LATER, **_DOUBT)]),
    "its launch has not happened": _NONE(lambda m: [m.open(LAUNCH, LATER, **_OVER)]),
    "it does not turn into a node": _COMING(lambda m: [m.open(LAUNCH, Status.UNSEEN, detail="the cloud launched i-x")]),
    "its cloud never shows it": _LATE(lambda m: [m.open(LAUNCH, Status.UNSEEN, **_NEVER)]),
    "its cloud shows it very late": _PRESENT(lambda m: [m.seen(**m.tagged), m.open(LAUNCH, Status.UNSEEN, **_NEVER)]),
    "it has come": _PRESENT(lambda m: [m.seen(**m.tagged), m.did(LAUNCH)]),
    "it has come, and a list leaves it out": _COMING(lambda m: [m.did(LAUNCH)]),
    "it has come, and a list lacks its tags": _COMING(lambda m: [m.seen(enrolled=False), m.did(LAUNCH)]),
    "it has come, and a list has another pool": _COMING(lambda m: [m.seen(pool="other"), m.did(LAUNCH)]),
    "it came and ended": _NONE(lambda m: [m.did(LAUNCH), Told(ended=(m.id,))]),
    "it came and we removed it": _NONE(lambda m: [m.did(LAUNCH), m.did(END, minutes=4)]),
    "it came and its cloud took it": _NONE(lambda m: [m.did(LAUNCH), m.did(Verb.LOST, minutes=4)]),
    "it came and stopped itself": _STOPPED(lambda m: [m.seen(DOWN), m.did(LAUNCH), _stopped_itself(m)]),
    "it stopped itself long ago": _STOPPED(lambda m: [m.seen(DOWN, **m.tagged)]),
    "its start is accepted": _COMING(lambda m: [m.seen(DOWN), m.open(START, YES)]),
    "its start is shown": _PRESENT(lambda m: [m.seen(), m.open(START, YES)]),
    "it ended while we started it": _NONE(lambda m: [m.seen(ENDED), m.open(START, YES)]),
    "its start was throttled": _NONE(lambda m: [m.seen(DOWN), m.open(START, NO), Told(stops=(a_stop(m.id),))]),
    "it was started, and a list is late": _COMING(lambda m: [m.seen(DOWN), m.did(START)]),
    "it was launched and started, and a list is late": _COMING(lambda m: [m.seen(DOWN, **m.tagged), m.did(START)]),
    "it was started twice, and a list is late": _COMING(lambda m: [m.seen(DOWN), m.did(START, key="k"), m.did(START)]),
    "it is a member": _PRESENT(lambda m: [m.seen(group=m.group_id), m.place(member=True)]),
    "it is a place": _COMING(lambda m: [m.place()]),
    "it is a place without stock": _LATE(lambda m: [m.place(**_SHORT)]),
    "it is a place that is asked for": _COMING(lambda m: [m.place(0), m.open(GROW, YES)]),
    "it is a place that a list does not show": _COMING(lambda m: [m.place(0), m.did(GROW, minutes=3)]),
    "it is a member that we end": _LEAVING(
        lambda m: [m.seen(group=m.group_id), m.place(member=True), m.open(END, YES)]
    ),
    "it is a member that its cloud takes": _in("taken", "coming")(
        lambda m: [m.seen(group=m.group_id, cloud_notice=TAKEN), m.place(member=True)]
    ),
    "it is a place of its owner's group": _NONE(lambda m: [m.place(enrolled=False)]),
}


def observed(named: Sequence[tuple[str, bool]]) -> Observation:
    """A pool in which each of these stories happened to a machine, spot or not."""
    machines = [(STORIES[name], Machine(number=number, spot=spot)) for number, (name, spot) in enumerate(named)]
    told = together([part for story, machine in machines for part in story.told(machine)])
    ledger = LedgerView(open_intents=told.opened, recent=told.recent, stopped=told.stops)
    fleet = Fleet(observed_at=NOW, nodes=told.nodes, groups=told.groups, named=("default",), ended=told.ended)
    return Observation(now=NOW, fleet=fleet, ledger=ledger, lives=told.lives)
