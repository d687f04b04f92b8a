"""What a controller does with a recorded day, by profile: the real rounds, guard and confirmation, in memory.

The day was recorded once: the machine goes on as if nobody had stopped it, and each profile is asked when it would.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from gpuwatch.clouds import FLEET_TAG, POOL_TAG
from gpuwatch.clouds.permit import Permit
from gpuwatch.config import load
from gpuwatch.config.settings import Settings
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.observe.scrape import read_answer
from gpuwatch.controller.round import step
from gpuwatch.guard import Rulebook
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState, NodeVerdict
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.model.stops import StopAnswer
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.answers import ENOUGH, Answer, AnswerHistory
from gpuwatch.policies.idle_timeout.break_even import MINIMUM_WAIT_SECONDS
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.cloud import SimulatedCloud
from gpuwatch.simulate.memory_ledger import InMemoryLedger
from tests.lives.agent import NODE_ID
from tests.lives.folder import BEGIN_UNIX

ROUND_SECONDS = 60.0
PROFILES = ("cautious", "balanced", "eager")
_POOL, _FLEET = "default", "default"
_NEVER_REMOVES = frozenset({State.BUSY, State.UNKNOWN})
_SHORTEST_WAIT_SECONDS = 290.0  # idle.timeout is never below five minutes
_DECODER = msgspec.json.Decoder(NodeVerdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The agent's answers, one for each round; None: it does not answer."""

    answers: tuple[bytes | None, ...]
    gpus: int  # that the type has
    instance_type: str
    instance_store: bool
    begin_seconds: float = 0.0  # after the days before the life


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """When a profile would have stopped the machine; None: never, and what it says of it in the end."""

    stopped_after: float | None
    says: str


class _Told:
    """The agent's recorded answers as a source of signals; a confirmation gets those of the same moment."""

    def __init__(self, recording: Recording, clock: ManualClock) -> None:
        self._recording = recording
        self._clock = clock
        self.round = 0

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """The fleet with the round's answer."""
        asked = tuple(replace(node, signal=self._report(node)) for node in nodes)
        return Fleet(observed_at=self._clock.now(), nodes=asked)

    def confirm(self, node: Node) -> NodeReport:
        """All signals were looked at in the cycle that ended just now, so the answer rests on nothing older."""
        report = self._report(node)
        if report.verdict is None:
            return report
        return replace(report, verdict=replace(report.verdict, looked_seconds=0.0))

    def measure(self, fleet: Fleet, queries: Sequence[MetricQuery]) -> tuple[MetricValue, ...]:
        """Nothing else is measured."""
        return tuple(
            MetricValue(pool=query.pool, name=query.name, at=fleet.observed_at, value=None, doubt="not measured")
            for query in queries
        )

    def _report(self, node: Node) -> NodeReport:
        if node.state is not NodeState.RUNNING:
            return NodeReport(failure=f"it is {node.state.value}")
        body = self._recording.answers[self.round]
        if body is None:
            return NodeReport(failure="its agent did not answer within 5s")
        return read_answer(body, node, self._clock.now(), 30.0)


class _Cloud(SimulatedCloud):
    """Keeps the moment of the first stop or termination."""

    stopped_at: float | None = None

    def stop(self, node_id: str, key: str, *, permit: Permit) -> StopAnswer:
        """As asked."""
        answer = super().stop(node_id, key, permit=permit)
        self.stopped_at = self._clock.monotonic()
        return answer

    def terminate(self, node_id: str, key: str, *, permit: Permit, group: str | None = None) -> None:
        """As asked."""
        super().terminate(node_id, key, permit=permit, group=group)
        self.stopped_at = self._clock.monotonic()


@cache
def rules_of(profile: str) -> PoolRules:
    """A pool with nothing set but its profile.

    Where there are no profiles: eager is the boldest that one could set, the others are the defaults.
    """
    if "profile" in {each.name for each in fields(PoolRules)}:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "gpuwatch.yaml"
            file.write_text(f"mode: enforce\npools: {{{_POOL}: {{profile: {profile}}}}}\n")
            return load(file, {}).rulebook.pool(_POOL)
    rules = PoolRules()
    if profile != "eager":
        return rules
    bold = replace(rules.idle, parked="stop", stalled="stop", instance_store="discard")
    return replace(rules, idle=bold)


def knowing(*, own: bool, answered: bool = False) -> GapHistory:
    """A pool that learns its waits and would rather wait for nobody: all its pauses were long, and savings abound.

    `own`: those of the played machine, too. `answered`: enough of its notices ran out unanswered, so that no notice is
    a question any more.
    """
    history, at = GapHistory(), BEGIN_UNIX - 60 * 8 * 3600.0
    names = ("gpu-2", "gpu-3", NODE_ID) if own else ("gpu-2", "gpu-3")
    while at < BEGIN_UNIX - 8 * 3600.0:
        for name in names:
            history = gaps.went_idle(history, name, at, 600.0)
        for hour in range(6):
            history = gaps.after_time(gaps.after_look(history, at + hour * 3600.0), at + hour * 3600.0)
        for name in names:
            history = gaps.need_node(gaps.reclaim_node(history, name, at + 600.0), name, at + 6 * 3600.0)
        at += 8 * 3600.0
    passed = tuple([Answer(at=BEGIN_UNIX - (1 + number) * 86400.0) for number in range(ENOUGH)])
    answers = AnswerHistory(newest=passed) if answered else AnswerHistory()
    return replace(history, saved=1e9, answers=answers)


def asked_before() -> GapHistory:
    """A pool that knows nothing but that the first notice of the played machine ran out unanswered: two days ago."""
    at = BEGIN_UNIX - 2 * 86400.0
    return GapHistory(answers=AnswerHistory(newest=(Answer(at=at),), passed={NODE_ID: at}))


def judge(
    recording: Recording, profile: str, *, knows: GapHistory | None = None, restarts: Collection[int] = ()
) -> Judged:
    """One profile's rounds over the recorded day, until it stops the machine.

    `knows` is what the pool has learned before; without it, it is a fresh one. Before the rounds of `restarts` the
    controller begins anew.
    """
    clock = ManualClock(wall=datetime.fromtimestamp(BEGIN_UNIX + recording.begin_seconds, UTC))
    cloud = _Cloud(fleet=_FLEET, clock=clock, pending_seconds=1.0, stopping_seconds=1.0)
    cloud.add(
        Node(
            id=NODE_ID,
            name="gpu-1",
            pool=_POOL,
            state=NodeState.RUNNING,
            instance_type=recording.instance_type,
            gpu_count=recording.gpus,
            region="us-east-1",
            zone="us-east-1a",
            launched_at=clock.now() - timedelta(days=3),
            instance_store=recording.instance_store,
            tags={"Name": "gpu-1", FLEET_TAG: _FLEET, POOL_TAG: _POOL},
        )
    )
    told, ledger = _Told(recording, clock), InMemoryLedger()
    shortest = _SHORTEST_WAIT_SECONDS
    if knows is not None:
        nobody = Fleet(observed_at=clock.now(), nodes=())
        ledger.record_round(Observation(now=clock.now(), fleet=nobody), gaps={_POOL: knows})
        shortest = MINIMUM_WAIT_SECONDS - 1.0

    def begin() -> ControllerContext:
        return ControllerContext(
            clock=clock,
            cloud=cloud,
            signals=told,
            ledger=ledger,
            rules=Rulebook(pools={_POOL: rules_of(profile)}, limits=Settings().limits, enforce=True),
            interval_seconds=ROUND_SECONDS,
        )

    parts = begin()
    says, reported = "", None
    told_all = activities(recording)
    for number, (state, held) in enumerate(told_all):
        told.round = number
        parts = begin() if number in restarts else parts
        # Nothing can come of these rounds: the node is not to be removed, was still for less than any pool may wait,
        # or its pool only reports this state.
        settled = state in _NEVER_REMOVES or held < shortest or state is reported
        if settled and number not in {0, len(told_all) - 1} and not ledger.view(clock.now()).notices:
            reported = reported if state is reported else None
            clock.advance(ROUND_SECONDS)
            continue
        done = step(parts)
        if cloud.stopped_at is not None:
            return Judged(stopped_after=cloud.stopped_at, says=says)
        found = next((each for decision in done.decisions for each in decision.steps), None)
        says = "" if found is None else found.reason.sentence
        reported = state if found is not None and found.reason.code == f"{state.value}_report" else None
        refused = [each.sentence for review in done.reviews for each in getattr(review, "refusals", ())]
        says += f" Refused: {refused[0]}" if refused else ""
        clock.advance(ROUND_SECONDS)
    return Judged(stopped_after=None, says=says)


@lru_cache(maxsize=2)
def activities(recording: Recording) -> tuple[tuple[State, float], ...]:
    """The node's state in each round, and for how many seconds it has held."""
    found = []
    for answer in recording.answers:
        activity = None if answer is None else _DECODER.decode(answer).activity
        found.append((State.UNKNOWN, 0.0) if activity is None else (activity.state, activity.held_seconds))
    return tuple(found)


def states_of(recording: Recording) -> Mapping[str, float]:
    """Hours that the recorded node was in each state."""
    hours: dict[str, float] = {}
    for answer, (known, _) in zip(recording.answers, activities(recording), strict=True):
        state = "unreachable" if answer is None else known.value
        hours[state] = hours.get(state, 0.0) + ROUND_SECONDS / 3600.0
    return hours


def busy_because(recording: Recording) -> str:
    """What kept it busy last, as an operator would be told."""
    for answer in reversed(recording.answers):
        verdict = None if answer is None else _DECODER.decode(answer)
        if verdict is not None and verdict.activity.state is not State.IDLE:
            shown = [each for each in verdict.activity.evidence if each.says is verdict.activity.state]
            first = verdict.activity.doubt or (_phrase(shown[0]) if shown else "")
            return f"{verdict.activity.state.value}: {first}"
    return ""


def _phrase(evidence: object) -> str:
    found = msgspec.to_builtins(evidence)
    owner = found.get("owner") or {}
    whose = " ".join(str(owner[key]) for key in ("user", "process", "unit") if owner.get(key))
    amount = "" if found["observed"] is None else f"={found['observed']:.3g}"
    return (
        f"{found['name']}{amount}" + (f" ({found['note']})" if found["note"] else "") + (f" [{whose}]" if whose else "")
    )
