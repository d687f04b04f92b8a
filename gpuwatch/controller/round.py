"""One round: settle · observe · propose · resolve · review · intend · confirm · act. `step` is the only implementation.

The live controller, `plan`, the demo and every replay call it; `plan` stops before the intent. It keeps nothing between
rounds: what it must know of the past is in the ledger.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from gpuwatch import guard, policies
from gpuwatch.clouds import CloudError
from gpuwatch.controller import interruptions
from gpuwatch.controller.act import Executed, execute
from gpuwatch.controller.answers import ends_the_round
from gpuwatch.controller.context import Act, ControllerContext, Round
from gpuwatch.controller.isolation import judge_apart
from gpuwatch.controller.launched import record_ends, record_rests
from gpuwatch.controller.observation import observe
from gpuwatch.controller.sensors import keep_sensors
from gpuwatch.controller.settle import reconcile
from gpuwatch.controller.startup_pause import begin, cautious
from gpuwatch.controller.target_workload import remember_workloads, steps_for_workloads
from gpuwatch.controller.undone import record_disagreements
from gpuwatch.controller.withheld_starts import record_withheld_starts
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import snapshots
from gpuwatch.model.decision import Decision, Intent, Observation, Proposal, Review, Step, Verb
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.policies.idle import StepsOf, each_step
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.timeouts import time_round
from gpuwatch.policies.kubernetes.idle_pods import WorkloadStep

__all__ = ["Act", "ControllerContext", "Round", "decide", "explain_step", "observe", "step"]


def step(parts: ControllerContext, *, act: bool = True) -> Round:
    """One round. With `act=False` (plan) it ends before anything is written down."""
    if act:
        begin(parts)
    settled = tuple(reconcile(parts)) if act else ()
    try:
        seen = cautious(parts, observe(parts), act=act)
    except CloudError as error:
        blind = Observation(now=parts.clock.now(), fleet=Fleet(observed_at=parts.clock.now(), nodes=()))
        return Round(observation=blind, settled=settled, trouble=f"The cloud gave no whole picture: {error}")
    known = parts.ledger.gaps()
    done: Executed | None = None
    records: tuple[Intent, ...] = ()
    with _without_collections():
        judged = judge_apart(seen, lambda each: _judge(parts, each, known), parts.memory.sick["decide"])
        if act:
            judged, round_id = _record(parts, seen, judged, known)
            keep_sensors(parts)
            remember_workloads(parts, judged.workloads)
    if act:
        observation = judged.observation
        records = interruptions.record(parts, observation, round_id)
        records += record_ends(parts, observation, round_id) + record_rests(parts, observation, round_id)
        records += record_disagreements(parts, observation, round_id)
        records += record_withheld_starts(parts, observation, judged.decisions, judged.reviews, round_id)
        done = execute(parts, observation, judged.reviews, round_id, judged.decisions)
    return Round(
        observation=judged.observation,
        proposals=judged.proposals,
        decisions=judged.decisions,
        workloads=judged.workloads,
        reviews=judged.reviews,
        settled=settled,
        acts=() if done is None else done.acts,
        unreached=None if done is None else done.unreached,
        records=records,
    )


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage: deciding about a large fleet makes millions of objects, and none of them is in a cycle."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What follows from an observation; `gaps` is what pools know from now on of their idle gaps."""

    observation: Observation
    gaps: Mapping[str, GapHistory]
    proposals: tuple[Proposal, ...]
    decisions: tuple[Decision, ...]
    workloads: tuple[WorkloadStep, ...]
    reviews: tuple[Review, ...]


def _judge(parts: ControllerContext, seen: Observation, known: Mapping[str, GapHistory]) -> _Judged:
    """Decide about all that was seen."""
    observation, gaps = _with_times(parts, seen, known)
    proposals, decisions = decide(observation, parts.rules, parts.idle_steps)
    workloads = steps_for_workloads(parts, observation)
    return _Judged(
        observation=observation,
        gaps=gaps,
        proposals=proposals,
        decisions=decisions,
        workloads=workloads,
        reviews=guard.review(observation, decisions, parts.rules, workloads),
    )


def _record(
    parts: ControllerContext, seen: Observation, judged: _Judged, known: Mapping[str, GapHistory]
) -> tuple[_Judged, int]:
    """Write the round down; what the ledger cannot hold is decided about again, as unknown. Gives the round's id."""

    def write(each: _Judged) -> int:
        said = (each.proposals, each.decisions, each.reviews)
        return parts.ledger.record_round(each.observation, *said, parts.rules, gaps=each.gaps)

    def judge_writable(each: Observation) -> _Judged:
        made = _judge(parts, each, known)
        snapshots.encode(made.observation, parts.rules, made.proposals, made.decisions, made.reviews)
        return made

    try:
        number = write(judged)
    except Exception as error:
        if ends_the_round(error):
            raise
        judged = judge_apart(seen, judge_writable, parts.memory.sick["record"])
        number = write(judged)
    else:
        parts.memory.sick["record"].clear()
    return judged, number


def _with_times(
    parts: ControllerContext, observation: Observation, known: Mapping[str, GapHistory]
) -> tuple[Observation, dict[str, GapHistory]]:
    """The observation with what pools know of their restarts, queues and waits, and what is to be kept of that."""
    before = {pool: GapHistory() for pool in observation.fleet.pools} | dict(known)
    timings = {
        pool: time_round(observation, pool, parts.rules.pool(pool), before[pool]) for pool in observation.fleet.pools
    }
    observation = replace(
        observation,
        restarts={pool: each.restarts for pool, each in timings.items()},
        queued={pool: each.queued for pool, each in timings.items() if each.queued is not None},
        answers={pool: each.answers for pool, each in timings.items()},
        fresh={pool: each.fresh for pool, each in timings.items() if each.fresh is not None},
        waits={node_id: wait for each in timings.values() for node_id, wait in each.waits.items()},
    )
    return observation, {pool: each.history for pool, each in timings.items() if each.history != before[pool]}


def decide(
    observation: Observation, rulebook: Rulebook, steps_of: StepsOf = each_step
) -> tuple[tuple[Proposal, ...], tuple[Decision, ...]]:
    """All proposals, and one decision for each pool that has nodes or groups."""
    proposals: list[Proposal] = []
    decisions: list[Decision] = []
    for pool in observation.fleet.pools:
        rules = rulebook.pool(pool)
        proposed = policies.propose(observation, pool, rules, doubt=rulebook.doubt(pool), steps_of=steps_of)
        proposals.extend(proposed)
        decisions.append(policies.resolve(observation, pool, proposed, rules))
    return tuple(proposals), tuple(decisions)


def explain_step(
    observation: Observation, decisions: tuple[Decision, ...], node: Node, rulebook: Rulebook
) -> tuple[Step, Review]:
    """A node's step in a round, and every guard rule's answer had it been a removal."""
    found = next(each for decision in decisions for each in decision.steps if each.node_id == node.id)
    verb = Verb.TERMINATE if rulebook.pool(node.pool).idle.action == "terminate" else Verb.STOP
    frozen = guard.find_bursts(observation, rulebook.limits)
    case = guard.case_of(replace(found, verb=verb), observation, node.pool, rulebook, frozen=frozen)
    return found, guard.judge(case)
