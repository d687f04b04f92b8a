"""PURE: idle nodes that are kept although their wait is over, as they are about to be needed.

Rules, all of them:

1. A window of the schedule that opens within a restart's cost (and, before a notice, its grace) keeps as many running
   nodes as it will ask for, of idle ones those idle the shortest: they would be started again at once.
2. Work that began to wait for the pool less than a restart's cost ago keeps its idle nodes, for up to four restarts of
   idleness. What waits for longer does not fit them. A learned wait has its own way with it, out of what it saved.
   Where pods of Kubernetes are all that waits, each keeps the node that it can use, and pods of one workload what is
   gathered for it, for a day (`policies.kubernetes.gathering`).
3. What is kept gets no notice either; a notice that it has stays.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation, Proposal, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.proposal import Steps, changing
from gpuwatch.policies import machines, schedule
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout.break_even import LONGEST
from gpuwatch.policies.idle_timeout.demand import DEMAND
from gpuwatch.policies.idle_timeout.node_wait import learns, restart_of
from gpuwatch.policies.idle_words import count_steps
from gpuwatch.policies.kubernetes import gathering, pending_pods
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.sizes import NODES, Sizes

_ENDS = frozenset({Verb.NOTICE, Verb.STOP, Verb.TERMINATE})


def keep_warm(
    observation: Observation,
    proposal: Proposal,
    rules: IdleRules,
    windows: Mapping[str, Window],
    sizes: Sizes = NODES,
) -> Proposal:
    """The idle policy's proposal with holds in the place of such steps."""
    changes, find = changing(proposal.steps), observation.fleet.find
    ending = [
        (step, node)
        for step in changes
        if step.verb in _ENDS and (node := find(step.node_id)) is not None and node.state is NodeState.RUNNING
    ]
    if not ending:
        return proposal
    held = {step.node_id: step for step in _keep_for_queue(observation, proposal.pool, rules, ending)}
    left = [(step, node) for step, node in ending if step.node_id not in held]
    held |= {step.node_id: step for step in _keep_for_schedule(observation, proposal.pool, rules, windows, left, sizes)}
    if not held:
        return proposal
    others = [step for step in changes if step.node_id not in held]
    steps = Steps.one_per_target([held.get(step.node_id, step) for step in proposal.steps], others)
    return replace(proposal, steps=steps, reason=count_steps(others, len(steps)))


def _keep_for_queue(
    observation: Observation, pool: str, rules: IdleRules, ending: list[tuple[Step, Node]]
) -> Iterator[Step]:
    """Yield holds of nodes that waiting work needs (rule 2)."""
    if pending_pods.waiting(observation.fleet, pool) and not _others_wait(observation, pool, rules):
        yield from _keep_for_pods(observation, pool, rules, ending)
        return
    queued = observation.queued.get(pool)
    if queued is None:
        return
    sentence = f"work has waited for the pool for {format_duration(queued)}, which it may take"
    for step, node in ending:
        restart = restart_of(observation, pool, rules, observation.price(node))
        if restart is None or node.activity.state is not State.IDLE or learns(node, observation, rules):
            continue
        if queued < restart.seconds and node.activity.held_seconds < LONGEST * restart.seconds:
            yield _hold_step(step, "queued", sentence, "No work that waits, or work that waits for longer.")


def _keep_for_pods(
    observation: Observation, pool: str, rules: IdleRules, ending: list[tuple[Step, Node]]
) -> Iterator[Step]:
    """Yield holds of the nodes that pods need, which wait for GPUs."""
    idle = [(step, node) for step, node in ending if node.activity.state is State.IDLE]
    needed = gathering.needed_nodes(observation, pool, [node for _, node in idle])
    for step, node in idle:
        need = needed.get(node.id)
        if need is None:
            continue
        if need.gathered:
            yield _hold_step(step, "gathered", need.sentence, "Their start, or their end.")
            continue
        restart = restart_of(observation, pool, rules, observation.price(node))
        if restart is None or learns(node, observation, rules):
            continue
        if need.waited_seconds < restart.seconds and node.activity.held_seconds < LONGEST * restart.seconds:
            yield _hold_step(step, "queued", need.sentence, "No pod that waits, or one that waits for longer.")


def _others_wait(observation: Observation, pool: str, rules: IdleRules) -> bool:
    """Whether work waits that is no pod: by a number of the pool's own, all of its nodes may be needed."""
    found = (observation.measure(pool, f"{DEMAND}{name}") for name in rules.demand)
    return any(each is not None and each.doubt is None and (each.value or 0.0) > 0 for each in found)


def _keep_for_schedule(
    observation: Observation,
    pool: str,
    rules: IdleRules,
    windows: Mapping[str, Window],
    ending: list[tuple[Step, Node]],
    sizes: Sizes,
) -> Iterator[Step]:
    """Yield holds of nodes that a window needs soon (rule 1)."""
    prices = {observation.price(node) for _, node in ending} if windows else set()
    costs = [cost.seconds for price in prices if (cost := restart_of(observation, pool, rules, price)) is not None]
    if not costs:
        return
    ahead = {
        notice: schedule.coming(windows, observation.now, max(costs) + rules.grace_period * notice)
        for notice in (False, True)
    }
    count = machines.there(observation, pool, sizes)
    for step, node in sorted(ending, key=lambda each: -each[1].activity.held_seconds):
        found, size = ahead[step.verb is Verb.NOTICE], sizes.node(node) or 0
        if found is None or count - size >= found[2]:
            count -= size
            continue
        name, at, floor = found
        left = format_duration((at - observation.now).total_seconds())
        sentence = (
            f"the window {name} opens in {left} and asks for {floor} {sizes.unit}: it would be started again at once"
        )
        yield _hold_step(step, "window_ahead", sentence, f"A lower min_{sizes.key} of that window.")


def _hold_step(step: Step, code: str, why: str, change: str) -> Step:
    """The step turned into a hold."""
    reason = replace(step.reason, code=code, sentence=f"{step.reason.sentence.removesuffix('.')}; {why}.")
    return replace(step, verb=Verb.HOLD, reason=reason, change=change)
