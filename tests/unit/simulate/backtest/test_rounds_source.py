"""A history from the ledger's rounds: what the controller saw is what was, also of nodes that it stopped itself."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.decision import LedgerView, Observation
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.simulate.backtest.gaps import History
from gpuwatch.simulate.backtest.sources.nodes import Kind
from gpuwatch.simulate.backtest.sources.rounds import ledger_history
from gpuwatch.simulate.backtest.sources.window import SourceError
from gpuwatch.simulate.fleet.options import STORY_BEGINS, Options
from gpuwatch.simulate.fleet.play import play, stage_play
from gpuwatch.simulate.fleet.workloads import demo_fleet
from tests.support.builders.fleet import NOW, a_node, a_stop, a_verdict

HOURS = 8.0
NODES = {"batch-1": True, "forgotten-1": True, "silent-1": False}  # whether they leave memory free when they rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Was:
    """A node in a round: what its agent says and for how long it has been so, or what its cloud says."""

    state: State | NodeState | None  # None: the round lacks it
    held: float = 0.0
    ours: bool = False
    launched: float | None = None


def idle(held: float) -> Was:
    """An idle node."""
    return Was(state=State.IDLE, held=held)


def busy(held: float) -> Was:
    """A working node."""
    return Was(state=State.BUSY, held=held)


def a_round(at: float, was: Was) -> Observation:
    """A round with one node, so many seconds after NOW."""
    now = NOW + timedelta(seconds=at)
    node = replace(a_node("n"), pool="p")
    if isinstance(was.state, NodeState):
        node = replace(node, state=was.state)
    if was.launched is not None:
        node = replace(node, launched_at=NOW + timedelta(seconds=was.launched))
    if isinstance(was.state, State) and node.verdict is not None:
        evidence = Evidence(name="sm_activity", says=was.state, observed=0.97, limit=0.01, unit="ratio", source="GPM")
        activity = replace(node.activity, state=was.state, held_seconds=was.held, evidence=(evidence,))
        verdict = replace(node.verdict, age_seconds=0.0, activity=activity)
        node = replace(node, signal=replace(node.signal, verdict=verdict))
    elif was.state is not None:
        node = replace(node, signal=replace(node.signal, verdict=None, failure="it does not answer"))
    stopped = (a_stop("n", at=now),) if was.ours else ()
    nodes: Sequence[Node] = () if was.state is None else (node,)
    return Observation(now=now, fleet=Fleet(observed_at=now, nodes=tuple(nodes)), ledger=LedgerView(stopped=stopped))


def a_history(rounds: dict[float, Was], **given: object) -> History:
    """The history of a ledger that keeps these."""
    ledger = Ledger.in_memory()
    for at, was in rounds.items():
        ledger.record_round(a_round(at, was))
    return ledger_history(ledger, Options(), None, NOW + timedelta(days=1), **given)  # type: ignore[arg-type]


def gaps_of(history: History) -> list[tuple[float, float, bool]]:
    """Begin, end, needed."""
    return [(gap.begin, gap.end, gap.needed) for gap in history.gaps]


STOPPED = Was(state=NodeState.STOPPED, ours=True)
STORIES: dict[str, tuple[dict[float, Was], list[tuple[float, float, bool]]]] = {
    "begins and ends when the agent says": (
        {0: busy(500), 60: idle(23), 120: idle(83), 180: busy(12)},
        [(37, 168, True)],
    ),
    "work between two rounds": (
        {0: idle(9), 60: idle(69), 120: idle(20), 180: idle(80)},
        [(0, 60, True), (100, 180, False)],
    ),
    "idle since before the first round": ({0: idle(7200), 60: idle(7260)}, [(0, 60, False)]),
    "stalled is no idleness": ({0: idle(9), 60: Was(state=State.STALLED, held=20)}, [(0, 40, True)]),
    "occupied is no idleness": ({0: idle(9), 60: Was(state=State.OCCUPIED, held=20)}, [(0, 40, True)]),
    "parked is no idleness": ({0: idle(9), 60: Was(state=State.PARKED, held=20)}, [(0, 40, True)]),
    "unknown ends a gap without a need": (
        {0: idle(9), 60: Was(state=NodeState.RUNNING), 120: idle(200), 180: busy(60)},
        [(60, 120, True)],
    ),
    "a round without the node is silence": (
        {0: idle(9), 60: idle(69), 120: Was(state=None), 180: idle(300), 240: idle(360)},
        [(0, 60, False), (180, 240, False)],
    ),
    "a hole between rounds is silence": (
        {0: idle(9), 60: idle(69), 120: idle(129), 480: idle(489), 540: idle(549)},
        [(0, 120, False), (480, 540, False)],
    ),
    "stopped by us and started again: needed at the start": (
        {0: idle(9), 60: idle(69), 120: STOPPED, 180: STOPPED, 240: Was(state=NodeState.RUNNING, launched=200)},
        [(0, 200, True)],
    ),
    "stopped by us and idle again after its start": (
        {0: idle(9), 60: STOPPED, 120: replace(idle(10), launched=80), 180: idle(70)},
        [(0, 80, True), (120, 180, False)],
    ),
    "stopped by us and never started": ({0: idle(9), 60: STOPPED, 120: STOPPED, 180: STOPPED}, [(0, 180, False)]),
    "stopped by somebody else": (
        {0: idle(9), 60: idle(69), 120: Was(state=NodeState.STOPPED), 180: Was(state=NodeState.STOPPED)},
        [(0, 60, False)],
    ),
    "terminated": ({0: idle(9), 60: idle(69), 120: Was(state=NodeState.TERMINATED)}, [(0, 60, False)]),
    "a clock that was set back: work counts": (
        {0: idle(9), 60: idle(69), 30: busy(10), 120: idle(129)},
        [(0, 20, True), (30, 120, False)],
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_each_story_has_its_gaps(story: str) -> None:
    """By what was said in the rounds, in seconds from the first."""
    rounds, gaps = STORIES[story]

    assert gaps_of(a_history(rounds)) == gaps


def test_only_time_in_sight_is_paid_for_and_a_stop_of_ours_is() -> None:
    """Without us it would have run: what is saved is measured against that."""
    silent, _ = STORIES["a round without the node is silence"]
    stopped, _ = STORIES["stopped by us and never started"]

    assert a_history(silent).node_seconds == {"n": 120.0}
    assert a_history(stopped).node_seconds == {"n": 180.0}


def test_evidence_says_since_when_and_after_what() -> None:
    """The agent's words of then."""
    history = a_history({0: busy(500), 60: idle(20), 120: idle(80)})

    assert history.evidence == {("n", 40.0): "idle since 2026-03-02 12:00:40 UTC, after sm_activity of 0.97 ratio"}
    assert history.begins_at == NOW
    assert [(life.name, life.pool, life.instance_type) for life in history.lives] == [
        ("n", "p", a_node("n").instance_type)
    ]


def test_held_memory_may_count_as_idle() -> None:
    """Then a gap begins where the work ends."""
    rounds: dict[float, Was] = {0: busy(9), 60: Was(state=State.PARKED, held=30), 120: idle(10)}

    assert gaps_of(a_history(rounds)) == [(110, 120, False)]
    assert gaps_of(a_history(rounds, parked_is=Kind.IDLE)) == [(30, 120, False)]


@pytest.mark.parametrize("state", [State.PARKED, State.OCCUPIED])
def test_somebodys_time_may_count_as_idle_after_a_while(state: State) -> None:
    """As long as the rules let such nodes be for longer than idle ones, it counts as work."""
    rounds: dict[float, Was] = {0: busy(9)}
    rounds |= {60.0 * number: Was(state=state, held=60.0 * number - 30) for number in range(1, 6)}
    history = a_history(rounds, parked_is=Kind.IDLE, parked_after=120.0)

    assert gaps_of(history) == [(150, 300, False)]
    assert ("memory held" if state is State.PARKED else "occupied") in history.evidence["n", 150]
    assert gaps_of(a_history(rounds, parked_is=Kind.IDLE, parked_after=400.0)) == []
    assert gaps_of(a_history(rounds, parked_after=120.0)) == []


def test_one_gpu_too_few_is_unknown() -> None:
    """As the guard has it: an idle node must show all of its GPUs."""
    node = a_node("n")
    rounds = {0: idle(9), 60: idle(69)}
    ledger = Ledger.in_memory()
    for at, was in rounds.items():
        seen = a_round(at, was)
        verdict = a_verdict("n")
        assert verdict.gpus
        fewer = tuple(replace(each, gpu_count=len(verdict.gpus) + 1) for each in seen.fleet.nodes)
        ledger.record_round(replace(seen, fleet=replace(seen.fleet, nodes=fewer)))
    history = ledger_history(ledger, Options(), None, NOW + timedelta(days=1))

    assert node.gpu_count == len(verdict.gpus)
    assert gaps_of(history) == []


@pytest.mark.parametrize(
    ("rounds", "given", "sentence"),
    [
        ({}, {}, "keeps 0 rounds of that time whole, and a backtest needs two"),
        ({0: idle(9)}, {}, "keeps 1 rounds"),
        ({0: idle(9), 60: idle(69)}, {"pool": "q"}, "shows no node of the pool 'q'"),
        ({0: Was(state=None), 60: Was(state=None)}, {}, "shows no node in two rounds within 300 s of each other"),
    ],
)
def test_a_ledger_without_a_history_says_why(rounds: dict[float, Was], given: dict[str, object], sentence: str) -> None:
    """One sentence."""
    with pytest.raises(SourceError, match=sentence):
        a_history(rounds, **given)


def test_a_played_fleet_is_found_again_in_its_ledger(tmp_path: Path) -> None:
    """The real controller stops idle nodes, users start them when they need them: gaps end when work truly began."""
    options = Options(hours=HOURS, seed=3)
    lives = [life for life in demo_fleet(options.seed, HOURS * 3600) if life.name in NODES]
    ledger = Ledger.connect(LedgerSettings(path=str(tmp_path / "ledger.db")))
    parts, world = stage_play(options, lives, HOURS * 3600, ledger)
    play(parts, world, options, HOURS * 3600)
    history = ledger_history(ledger, Options(), None, STORY_BEGINS + timedelta(days=1))
    ledger.close()
    first = (history.begins_at or datetime.fromtimestamp(0, UTC)) - STORY_BEGINS

    assert world.stops
    assert world.restarts
    for node_id, host in world.hosts.items():
        gaps = [gap for gap in history.gaps if gap.node_id == node_id]
        for gap in gaps:
            begin, end = (at + first.total_seconds() for at in (gap.begin, gap.end))
            work = host.demand.overlap(begin, end - options.sample)
            assert work == 0, f"{host.life.name} worked for {work} s while it counts as idle from {begin} to {end}"
            assert gap.needed is (host.demand.end_of_interval(end + options.sample) is not None), host.life.name
        if NODES[host.life.name]:
            rest = HOURS * 3600 - host.demand.overlap(0, HOURS * 3600)
            assert sum(gap.seconds for gap in gaps) > 0.95 * rest - 600, host.life.name
