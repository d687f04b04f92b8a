"""The rounds that a ledger keeps whole as a history: what the controller saw of each node, with the reported times.

Between two rounds a node is what the later one says, from when it says; before that, what the earlier one said. Rounds
that lie too far apart leave silence. A node that gpuwatch itself had stopped stays idle until somebody starts it, for
then it was needed: without gpuwatch it would have run idle until then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import Activity, State
from gpuwatch.model.decision import Observation, Verb
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.simulate.backtest.gaps import History
from gpuwatch.simulate.backtest.sources.nodes import Kind, NodeObservation, history_of_nodes
from gpuwatch.simulate.backtest.sources.window import SourceError
from gpuwatch.simulate.fleet.options import Options

_HOLE_INTERVALS = 5  # as for samples in a file
_HOLE_SECONDS = 1800.0  # however seldom rounds are kept
_NEWEST = 50  # rounds that tell the interval: of older ones some may have been dropped
_SAME_SECONDS = 2.0  # by which two reports of the same begin may differ
_KINDS = {
    State.BUSY: Kind.BUSY,
    State.STALLED: Kind.BUSY,
    State.PARKED: Kind.PARKED,
    State.OCCUPIED: Kind.PARKED,
    State.IDLE: Kind.IDLE,
}
_RESTS = frozenset({Kind.IDLE, Kind.PARKED})
_DOWN = frozenset({NodeState.STOPPING, NodeState.STOPPED})


class Seen(NamedTuple):
    """One node in one round; `stopped` by gpuwatch and not running since. Times are Unix time."""

    kind: Kind
    since: float
    launched: float
    stopped: bool
    words: str


@dataclass(kw_only=True)
class Rounds:
    """Folds rounds, oldest first. `hole` is how far apart two may lie; `pool` limits it to one."""

    hole: float
    pool: str | None = None
    parked_is: Kind = Kind.BUSY
    parked_after: float = 0.0
    nodes: dict[str, NodeObservation] = field(default_factory=dict)
    _at: float | None = None
    _origin: float = 0.0
    _seen: dict[str, Seen] = field(default_factory=dict)
    _worked: dict[str, str] = field(default_factory=dict)

    def add(self, observation: Observation) -> None:
        """Add one more round of the ledger."""
        at, before = observation.now.timestamp(), self._at
        if before is None:
            self._origin = at
        elif at == before:
            return
        seen = {}
        for node in observation.fleet.nodes:
            if self.pool in {None, node.pool} and (found := self._judge_node(node, observation)) is not None:
                seen[node.id] = found
                seen_node = self.nodes.get(node.id)
                if seen_node is None:
                    seen_node = self.nodes[node.id] = NodeObservation(
                        name=node.id,
                        parked_is=self.parked_is,
                        parked_after=self.parked_after,
                        gpus=node.known_gpus,
                    )
                seen_node.pool, seen_node.instance_type = node.pool, node.instance_type
        if before is not None and at - before <= self.hole:
            for name in seen.keys() & self._seen.keys():
                for begin, end, kind in _kinds_between(before, self._seen[name], at, seen[name]):
                    self.nodes[name].add(begin - self._origin, end - self._origin, kind, words=seen[name].words)
        self._at, self._seen = at, seen

    @property
    def began(self) -> datetime:
        """Return the time of the first round."""
        return datetime.fromtimestamp(self._origin, UTC)

    @property
    def seconds(self) -> float:
        """From the first round to the last."""
        return 0.0 if self._at is None else self._at - self._origin

    def _judge_node(self, node: Node, observation: Observation) -> Seen | None:
        """What is known about it; None where it does not run, and not because of us."""
        launched = 0.0 if node.launched_at is None else node.launched_at.timestamp()
        if node.state in _DOWN:
            open_ = observation.ledger.open_for(node.id)
            ours = open_ is not None and open_.intent.verb is Verb.STOP
            if not ours and observation.ledger.stop_of(node.id) is None:
                return None
            last = self._seen.get(node.id)
            kind = last.kind if last is not None and last.kind in _RESTS else Kind.IDLE
            return Seen(kind, 0.0, launched, stopped=True, words="stopped by gpuwatch")
        if node.state is not NodeState.RUNNING and node.state is not NodeState.PENDING:
            return None
        activity, verdict = node.activity, node.verdict
        kind = _KINDS.get(activity.state, Kind.UNKNOWN)
        if verdict is None or (kind is Kind.IDLE and 0 < len(verdict.gpus) < node.known_gpus):
            return Seen(Kind.UNKNOWN, 0.0, launched, stopped=False, words="")
        since = observation.fleet.observed_at.timestamp() - verdict.age_seconds - activity.held_seconds
        return Seen(kind, since, launched, stopped=False, words=self._words(node.id, kind, activity, since))

    def _words(self, name: str, kind: Kind, activity: Activity, since: float) -> str:
        """Why it counts as idle."""
        if kind is Kind.BUSY:
            evidence = next((each for each in activity.evidence if each.says is State.BUSY), None)
            if evidence is not None and evidence.observed is not None:
                self._worked[name] = f", after {evidence.name} of {evidence.observed:.3g} {evidence.unit}".rstrip()
            return ""
        word = "memory held" if activity.state is State.PARKED else activity.state.value
        return f"{word} since {format_time(since, seconds=True)}{self._worked.get(name, '')}"


def _kinds_between(before: float, earlier: Seen, at: float, later: Seen) -> Iterator[tuple[float, float, Kind]]:
    """What a node did between two rounds."""
    if later.stopped:
        yield before, at, earlier.kind if earlier.stopped or earlier.kind not in _RESTS else later.kind
    elif earlier.stopped:
        started = later.launched if before < later.launched < at else before
        yield before, started, earlier.kind
        yield started, at, Kind.BUSY  # somebody asked for it
    elif later.kind is Kind.UNKNOWN:
        yield before, at, Kind.UNKNOWN
    else:
        began_anew = later.since > before and not (
            later.kind is earlier.kind and abs(later.since - earlier.since) <= _SAME_SECONDS
        )
        middle = min(later.since, at) if began_anew else before
        yield before, middle, Kind.BUSY if earlier.kind is later.kind else earlier.kind
        yield middle, at, later.kind


def ledger_history(  # noqa: PLR0913  what may be chosen of a history
    ledger: Ledger,
    options: Options,
    since: datetime | None,
    until: datetime,
    *,
    pool: str | None = None,
    parked_is: Kind = Kind.BUSY,
    parked_after: float = 0.0,
    place: str = "the ledger",
) -> History:
    """The rounds from one moment to another that a ledger keeps whole; without `since` from the first on.

    Raises:
        SourceError: there are fewer than two, or no round shows a node.
        LedgerError: one of them cannot be read.

    """
    kept = ledger.whole_rounds(since, until)
    if options.hours is not None and kept:
        last = kept[0][1] + timedelta(hours=options.hours)
        kept = tuple(each for each in kept if each[1] <= last)
    if len(kept) < 2:  # noqa: PLR2004  what lies between two rounds
        raise SourceError(
            f"{place} keeps {len(kept)} rounds of that time whole, and a backtest needs two "
            "(ledger.quiet_round_retention, ledger.retention); `gpuwatch rounds` lists them"
        )
    hole = _hole([at for _, at in kept])
    rounds = Rounds(hole=hole, pool=pool, parked_is=parked_is, parked_after=parked_after)
    for round_id, _ in kept:
        rounds.add(ledger.observation(round_id))
    if not any(node.runs for node in rounds.nodes.values()):
        named = "" if pool is None else f" of the pool {pool!r}"
        raise SourceError(f"{place} shows no node{named} in two rounds within {rounds.hole:.0f} s of each other")
    return history_of_nodes(rounds.nodes.values(), rounds.seconds, rounds.began, options)


def _hole(times: Sequence[datetime]) -> float:
    """How far apart rounds may lie before what is between them is silence."""
    apart = [(after - before).total_seconds() for before, after in pairwise(times[-_NEWEST:])]
    return min(_HOLE_SECONDS, _HOLE_INTERVALS * median(apart))
