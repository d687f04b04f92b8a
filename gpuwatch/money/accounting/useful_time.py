"""PURE: what a machine and its GPUs did in a stretch of billed time, by what its agent says at its end.

Rules, all of them:

1. What the agent counted in between counts, to scale; what it did not count, beyond the slack, is unknown.
2. Without a tally: its present state since when it says so; before that the state of the round before. What it does not
   date began half way. Seen in one use other than useful that began again in between, it is unknown until then.
3. Where all GPUs of a node are unknown and the node is not, the GPUs count as the node does.
4. A machine that its cloud shows stopped and bills on does nothing: it is down, since half way from the round before.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from gpuwatch.model.activity import Activity, State, Tally
from gpuwatch.model.fleet import GpuVerdict, Node, NodeState, NodeVerdict
from gpuwatch.model.health import Health
from gpuwatch.model.usage import GPU, JOULES, MEASURED, USES, Use, milliseconds
from gpuwatch.money.accounting.slices import apportion

_USE_OF = {
    State.BUSY: Use.USEFUL,
    State.IDLE: Use.IDLE,
    State.OCCUPIED: Use.IDLE,  # the books have no column of its own: somebody left it, and it does nothing
    State.PARKED: Use.PARKED,
    State.STALLED: Use.STALLED,
    State.UNKNOWN: Use.UNKNOWN,
}
_INDEX = {state: USES.index(use) for state, use in _USE_OF.items()}
_PLACE = {state.value: USES.index(use) for state, use in _USE_OF.items()} | {"down": USES.index(Use.DOWN)}
_IDLE, _SHOWN = USES.index(Use.IDLE), tuple(State.BUSY.value if use is Use.USEFUL else use.value for use in USES)
# What GPUs do that are seen and of no use, by the names of `gpu_uses`, in the order in which people read them.
OF_NO_USE = (State.PARKED.value, State.STALLED.value, State.OCCUPIED.value, State.IDLE.value, Use.DOWN.value)
_USEFUL, UNKNOWN, SILENT, _DOWN = (USES.index(use) for use in (Use.USEFUL, Use.UNKNOWN, Use.SILENT, Use.DOWN))
_SLACK_MS = 5_000  # by which two hosts may differ on when something was
_SLACK_RATIO = 0.01  # the same, as a part of a stretch of time
_MOST = 1e15  # of anything that was counted: more is no count


class Was(StrEnum):
    """How a machine was last seen. Gone is no longer listed after it ran."""

    RUNNING = "running"
    PENDING = "pending"
    OFF = "off"
    GONE = "gone"


_WAS = {NodeState.RUNNING: Was.RUNNING, NodeState.PENDING: Was.PENDING}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Up to when a node is metered (ms since 1970), under which terms, and what its agent reported then.

    `node` and `gpus` are places among USES, the latter one for each GPU.
    """

    until: int
    was: Was
    terms: int
    node: int = UNKNOWN
    gpus: tuple[int, ...] = ()
    tally: Tally | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Billed time under the terms of `valid`; `before` is what was last seen, where the machine has run since then."""

    begin: int
    end: int
    valid: Mark
    before: Mark | None = None
    seen: bool = True  # whether the present verdict may speak of it


def used_amounts(stretch: Stretch, verdict: NodeVerdict, mark: Mark) -> dict[tuple[int, int], dict[int, int]]:
    """Amounts, by their place among AMOUNTS, by begin and end; they add up to the stretch and to that of each GPU."""
    length, count = stretch.end - stretch.begin, len(stretch.valid.gpus)
    counted = _counted_tally(stretch, verdict, length)
    if counted is None:
        return _judged_amounts(stretch, verdict, mark)
    amounts = {
        **_shares(counted.node_seconds, length, 1, 0),
        **_shares(counted.gpu_seconds, length, count, GPU),
        **_energy(counted, length * count),
    }
    return {(stretch.begin, stretch.end): amounts}


def stopped_amounts(stretch: Stretch, mark: Mark) -> dict[tuple[int, int], dict[int, int]]:
    """Amounts of a machine that is down by its cloud's word (rule 4), in which no agent can say anything."""
    parts: dict[tuple[int, int], dict[int, int]] = {}
    for first, was in [(0, stretch.valid.node), *((GPU, each) for each in stretch.valid.gpus)]:
        for begin, end, use in _pieces(stretch, None if stretch.before is None else was, mark.node, None):
            amounts = parts.setdefault((begin, end), {})
            amounts[first + use] = amounts.get(first + use, 0) + end - begin
    return parts


def measured_energy(stretch: Stretch, verdict: NodeVerdict) -> dict[int, int]:
    """The energy alone: the GPUs' counters went on between the rounds."""
    length = stretch.end - stretch.begin
    counted = _counted_tally(stretch, verdict, length)
    return {} if counted is None else _energy(counted, length * len(stretch.valid.gpus))


def _energy(counted: Tally, most: int) -> dict[int, int]:
    return {JOULES: int(counted.joules), MEASURED: min(int(counted.joules_gpu_seconds * 1000), most)}


def _judged_amounts(stretch: Stretch, verdict: NodeVerdict, mark: Mark) -> dict[tuple[int, int], dict[int, int]]:
    """Return amounts by the agent's verdicts (rule 2)."""
    throughout, length = (stretch.begin, stretch.end), stretch.end - stretch.begin
    parts: dict[tuple[int, int], dict[int, int]] = {throughout: {}}

    def note(first: int, was: int | None, place: int, since: int | None) -> None:
        if was == place and (since is None or since - stretch.begin <= _SLACK_MS):  # by far the most common
            parts[throughout][first + place] = parts[throughout].get(first + place, 0) + length
            return
        for begin, end, use in _pieces(stretch, was, place, since):
            amounts = parts.setdefault((begin, end), {})
            amounts[first + use] = amounts.get(first + use, 0) + end - begin

    before = stretch.before
    if before is not None and _held_throughout(before, mark, verdict, stretch):
        gpus = {GPU + mark.node: length * len(stretch.valid.gpus)} if stretch.valid.gpus else {}
        return {throughout: {mark.node: length, **gpus}}
    whole = _state_began(verdict.activity, verdict, stretch.end)
    note(0, None if before is None else before.node, mark.node, whole)
    alike = all(_gpu_place(gpu) == UNKNOWN for gpu in verdict.gpus)
    for position in range(len(stretch.valid.gpus)):
        was = None if before is None else before.gpus[position]
        if alike:
            note(GPU, was, mark.node, whole)
        elif position < min(len(verdict.gpus), len(mark.gpus)):
            place = mark.gpus[position]
            note(GPU, was, place, _gpu_since(verdict.gpus[position], place, verdict, stretch.end))
        else:
            note(GPU, was, UNKNOWN, None)
    return parts


def _held_throughout(before: Mark, mark: Mark, verdict: NodeVerdict, stretch: Stretch) -> bool:
    """Whether the node and each of its GPUs do one and the same since before the stretch: true of most, at once."""
    place, count, gpus = mark.node, len(stretch.valid.gpus), verdict.gpus
    alike = (place,) * count
    if before.node != place or before.gpus != alike or mark.gpus != alike or len(gpus) != count:
        return False
    if place in (UNKNOWN, _DOWN):
        return False
    least = max((stretch.end - stretch.begin - _SLACK_MS) / 1000 - verdict.age_seconds, 0.0)
    if verdict.activity.held_seconds <= least:
        return False
    for gpu in gpus:  # noqa: SIM110  asked of each GPU in each round, where a generator costs as much again
        if gpu.health is not None or gpu.activity.held_seconds <= least:
            return False
    return True


def _counted_tally(stretch: Stretch, verdict: NodeVerdict, length: int) -> Tally | None:
    """What the agent counted in the stretch; None where it reports no counts, or impossible ones."""
    tally = verdict.tally
    before = None if stretch.before is None else stretch.before.tally
    if tally is None:
        return None
    if before is None or before.since != tally.since:
        if milliseconds(tally.since) < stretch.begin - _SLACK_MS:
            return None
        before = Tally(since=tally.since, node_seconds={}, gpu_seconds={})
        if sum(tally.node_seconds.values()) * 1000 > length + _slack(length):
            return None
    counted = Tally(
        since=tally.since,
        node_seconds=_less(tally.node_seconds, before.node_seconds),
        gpu_seconds=_less(tally.gpu_seconds, before.gpu_seconds),
        joules=int(tally.joules) - int(before.joules),
        joules_gpu_seconds=tally.joules_gpu_seconds - before.joules_gpu_seconds,
    )
    amounts = (
        *counted.node_seconds.values(),
        *counted.gpu_seconds.values(),
        counted.joules,
        counted.joules_gpu_seconds,
    )
    return counted if all(0 <= each < _MOST for each in amounts) else None


def _less(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: now.get(name, 0.0) - before.get(name, 0.0) for name in now.keys() | before.keys()}


def _slack(length: int) -> int:
    return _SLACK_MS + int(_SLACK_RATIO * length)


def _shares(seconds: Mapping[str, float], length: int, count: int, first: int) -> dict[int, int]:
    """So many machines' or GPUs' time in the stretch by what was counted; a shortfall beyond the slack is unknown."""
    counted: dict[int, int] = {}
    for name, each in seconds.items():
        if name in _PLACE:  # two states may be one use
            place = first + _PLACE[name]
            counted[place] = counted.get(place, 0) + int(each * 1000)
    whole, counted_ms = length * count, sum(counted.values())
    known = whole if counted_ms >= whole - _slack(length) * count else counted_ms
    amounts = apportion(known, counted)
    amounts[first + UNKNOWN] = amounts.get(first + UNKNOWN, 0) + whole - sum(amounts.values())
    return amounts


def _pieces(stretch: Stretch, was: int | None, place: int, since: int | None) -> Iterator[tuple[int, int, int]]:
    """Rule 2 where it did not hold throughout: begin, end and use. `since` is when the present use began, if known."""
    begin, end = stretch.begin, stretch.end
    if since is None:
        if was is None or place == UNKNOWN:
            cut, first = end, UNKNOWN
        else:
            cut, first = (begin + end) // 2, was
    else:
        cut = min(max(since, begin), end)
        first = UNKNOWN if was is None or (was == place != _USEFUL) else was
    if cut > begin:
        yield begin, cut, first
    if end > cut:
        yield cut, end, place


def _state_began(activity: Activity, verdict: NodeVerdict, end: int) -> int | None:
    """When a state began: by the agent's own count, which knows no jumps; an unknown one by the agent's clock."""
    if activity.state is State.UNKNOWN:
        return None if activity.since is None else milliseconds(activity.since)
    if activity.held_seconds == 0 and activity.since is None:
        return None
    return end - int((verdict.age_seconds + activity.held_seconds) * 1000)


def _gpu_since(gpu: GpuVerdict, place: int, verdict: NodeVerdict, end: int) -> int | None:
    """When the state of one GPU began, or since when it is ill."""
    if place == _DOWN and gpu.health is not None and gpu.health.since is not None:
        return milliseconds(gpu.health.since)
    return _state_began(gpu.activity, verdict, end)


def mark_of(node: Node, now: int, terms: int) -> Mark:
    """What is to be remembered of a node that was seen now."""
    was = _WAS.get(node.state, Was.OFF)
    if node.billed_though_stopped or node.owned:
        was = Was.RUNNING
    if is_held_down(node):
        return Mark(until=now, was=was, terms=terms, node=_DOWN, gpus=(_DOWN,) * node.known_gpus)
    verdict = node.verdict
    if verdict is None:
        return Mark(until=now, was=was, terms=terms, gpus=(UNKNOWN,) * node.known_gpus)
    whole = _INDEX[verdict.activity.state]
    places = [
        _INDEX[gpu.activity.state] if gpu.health is None else _gpu_place(gpu) for gpu in verdict.gpus[: node.known_gpus]
    ]
    if set(places) <= {UNKNOWN}:  # a source that does not distinguish a node's GPUs
        places = [whole] * node.known_gpus
    places += [UNKNOWN] * (node.known_gpus - len(places))
    return Mark(until=now, was=was, terms=terms, node=whole, gpus=tuple(places), tally=verdict.tally)


def is_held_down(node: Node) -> bool:
    """Whether its cloud shows it stopped and goes on billing it; a host of one's own may run without an answer."""
    return node.billed_though_stopped and not node.owned


def gpu_uses(node: Node, now: int) -> tuple[str, ...]:
    """What each GPU of a machine does now, as it is billed: the name of its state, or `down` (`OF_NO_USE` is waste).

    Where the number of GPUs is not known, one counts, and does what the machine does.
    """
    mark = mark_of(node, now, 0)
    idle = State.OCCUPIED if node.activity.state is State.OCCUPIED else State.IDLE
    return tuple(idle.value if place == _IDLE else _SHOWN[place] for place in mark.gpus or (mark.node,))


def usd_by_use(usd: Decimal, uses: Sequence[str]) -> dict[str, Decimal]:
    """A machine's price by what its GPUs do."""
    return {use: usd * count / len(uses) for use, count in Counter(uses).items()}


def _gpu_place(gpu: GpuVerdict) -> int:
    """Busy is useful, however ill; what is failing and does nothing is down."""
    if gpu.activity.state is not State.BUSY and gpu.health is not None and gpu.health.state is Health.FAILING:
        return _DOWN
    return _INDEX[gpu.activity.state]
