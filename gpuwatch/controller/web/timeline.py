"""The last day by use, of the fleet and of one node, as page and API show it. Where nobody looked there is a gap."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gpuwatch.controller import explain
from gpuwatch.controller.web.call import Call
from gpuwatch.ledger.use_history import GONE, OFF, SLOT_SECONDS, FleetSlot, slot
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb

USES = (*(state.value for state in State), OFF)
_INTERVALS = 3  # rounds farther apart than this leave a gap


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkCount:
    """How many notices, stops and so on the cloud showed done in the slot that begins at `at`."""

    at: datetime
    verb: Verb
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The fleet's GPUs by use from `since` to `until`, in slots of `slot_seconds`.

    Each of `gpus` is a slot: means over its rounds, in the order of `uses`; null: there was no round, so nothing is
    known.
    """

    since: datetime
    until: datetime
    slot_seconds: int
    uses: tuple[str, ...]
    gpus: tuple[tuple[float, ...] | None, ...]
    marks: tuple[MarkCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A time of one use; null: there was no round, or the node was not listed."""

    begin: datetime
    end: datetime
    use: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that the cloud showed done to the node, and why."""

    at: datetime
    verb: Verb
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTimeline:
    """What a node was used for from `since` to `until`, exact to `slot_seconds`; the stretches follow each other."""

    node: str
    since: datetime
    until: datetime
    slot_seconds: int
    stretches: tuple[Stretch, ...]
    marks: tuple[Mark, ...]


def fleet(call: Call) -> Timeline:
    """The fleet's last hours."""
    since, until = _window(call)
    uses = call.state.ledger.uses
    slots = uses.fleet(since, until)
    return Timeline(
        since=since,
        until=until,
        slot_seconds=SLOT_SECONDS,
        uses=USES,
        gpus=tuple(
            None
            if each is None
            else tuple([round(each.gpus.get(name, 0) / each.rounds, 2) if each.rounds else 0.0 for name in USES])
            for each in _fill_slots(slots, since, until, call.state.interval_seconds)
        ),
        marks=tuple(
            MarkCount(at=_utc(begin), verb=verb, count=count)
            for (begin, verb), count in sorted(uses.counts(since, until).items())
        ),
    )


def node(call: Call) -> NodeTimeline:
    """A node's last hours.

    Raises:
        UnknownNodeError: the last round has no such node.

    """
    found = explain.find_node(call.state.last(), call.named["node"])
    since, until = _window(call)
    uses = call.state.ledger.uses
    looked = _fill_slots(uses.fleet(since, until), since, until, call.state.interval_seconds)
    return NodeTimeline(
        node=found.id,
        since=since,
        until=until,
        slot_seconds=SLOT_SECONDS,
        stretches=tuple(_stretches(uses.node(found.id, since), [each is not None for each in looked], since, until)),
        marks=tuple(Mark(at=each.at, verb=each.verb, why=each.why) for each in uses.marks(found.id, since, until)),
    )


def _window(call: Call) -> tuple[datetime, datetime]:
    """From the begin of a slot to the last round."""
    until = call.state.last().observation.now
    return _utc(slot(until - timedelta(hours=call.query.hours)) + SLOT_SECONDS), until


def _fill_slots(
    slots: Sequence[FleetSlot], since: datetime, until: datetime, interval_seconds: float
) -> list[FleetSlot | None]:
    """Every slot; one without a round of its own has that before it, unless rounds ceased."""
    by_begin, reach = {each.begin: each for each in slots}, _INTERVALS * interval_seconds
    found: list[FleetSlot | None] = []
    last: FleetSlot | None = None
    for begin in range(slot(since), slot(until) + 1, SLOT_SECONDS):
        last = by_begin.get(begin, last)
        found.append(last if last is not None and begin - last.begin <= max(0.0, reach - SLOT_SECONDS) else None)
    return found


def _stretches(
    uses: Sequence[tuple[int, str]], looked: Sequence[bool], since: datetime, until: datetime
) -> Iterator[Stretch]:
    """Equal neighbours as one."""
    changes, use, begin, said = list(uses), None, since, None
    for index, seen in enumerate(looked):
        at = since + timedelta(seconds=index * SLOT_SECONDS)
        while changes and changes[0][0] <= at.timestamp():
            use = changes.pop(0)[1]
        now = use if seen and use != GONE else None
        if index and now != said:
            yield Stretch(begin=begin, end=at, use=said)
            begin = at
        said = now
    if until > begin:
        yield Stretch(begin=begin, end=until, use=said)


def _utc(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
