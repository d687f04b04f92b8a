"""One round: settle · observe · propose · resolve · review · intend · confirm · act. `step` is the only implementation.

The live controller, `plan`, the demo and every replay call it; `plan` stops before the intent. It keeps nothing between
rounds: what it must know of the past is in the ledger.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from gpuwatch import guard, policies
from gpuwatch.clouds import CloudError
from gpuwatch.controller import interruptions
from gpuwatch.controller.act import Executed, execute
from gpuwatch.controller.context import Act, ControllerContext, Round
from gpuwatch.controller.launched import record_ends
from gpuwatch.controller.observation import observe
from gpuwatch.controller.settle import reconcile
from gpuwatch.controller.startup_pause import begin, cautious
from gpuwatch.controller.target_workload import remember_workloads, steps_for_workloads
from gpuwatch.guard import Rulebook
from gpuwatch.model.decision import Decision, Intent, Observation, Proposal, Review, Step, Verb
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.policies.idle import StepsOf, each_step
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.timeouts import time_round

__all__ = ["Act", "ControllerContext", "Round", "decide", "explain_step", "observe", "step"]


def step(parts: ControllerContext, *, act: bool = True) -> Round:
    """One round. With `act=False` (plan) it ends before anything is written down."""
    if act:
        begin(parts)
    settled = tuple(reconcile(parts)) if act else ()
    try:
        observation = cautious(parts, observe(parts), act=act)
        observation, gaps = _with_times(parts, observation)
    except CloudError as error:
        blind = Observation(now=parts.clock.now(), fleet=Fleet(observed_at=parts.clock.now(), nodes=()))
        return Round(observation=blind, settled=settled, trouble=f"The cloud gave no whole picture: {error}")
    done: Executed | None = None
    records: tuple[Intent, ...] = ()
    with _without_collections():
        proposals, decisions = decide(observation, parts.rules, parts.idle_steps)
        workloads = steps_for_workloads(parts, observation)
        reviews = guard.review(observation, decisions, parts.rules, workloads)
        if act:
            remember_workloads(parts, workloads)
            round_id = parts.ledger.record_round(observation, proposals, decisions, reviews, parts.rules, gaps=gaps)
    if act:
        records = (*interruptions.record(parts, observation, round_id), *record_ends(parts, observation, round_id))
        done = execute(parts, observation, reviews, round_id, decisions)
    return Round(
        observation=observation,
        proposals=proposals,
        decisions=decisions,
        workloads=workloads,
        reviews=reviews,
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


def _with_times(parts: ControllerContext, observation: Observation) -> tuple[Observation, dict[str, GapHistory]]:
    """The observation with what pools know of their restarts, queues and waits, and what is to be kept of that."""
    before = {pool: GapHistory() for pool in observation.fleet.pools} | parts.ledger.gaps()
    timings = {
        pool: time_round(observation, pool, parts.rules.pool(pool), before[pool]) for pool in observation.fleet.pools
    }
    observation = replace(
        observation,
        restarts={pool: each.restarts for pool, each in timings.items()},
        queued={pool: each.queued for pool, each in timings.items() if each.queued is not None},
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
