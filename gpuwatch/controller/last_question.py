"""The last question before a machine may be stopped: cloud, cluster, Slurm and agent say how it is at this moment.

Policies and guard judge those answers afresh. A part that objects, does not answer, or answers late, keeps the machine.
"""

from dataclasses import replace

from gpuwatch import guard, policies
from gpuwatch.clouds import CloudError, NotFoundError
from gpuwatch.controller import target_cluster_node
from gpuwatch.controller.answers import note_silence
from gpuwatch.controller.circuits import Server
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.observe.own_hosts import with_own_hosts
from gpuwatch.controller.slurm import target as target_slurm_node
from gpuwatch.controller.startup_pause import with_foreign
from gpuwatch.model.activity import Preparing
from gpuwatch.model.decision import Observation, Review, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Fleet, Node, NodeGroup, NodeState, NodeVerdict
from gpuwatch.model.proposal import step_for
from gpuwatch.model.readable import how_many
from gpuwatch.policies.kubernetes.steps import PODS
from gpuwatch.policies.lost_gpus import judge_node

_FRESH_INTERVALS = 3  # of its own sampling


def objection_to(
    parts: ControllerContext, observation: Observation, review: Review, tried: tuple[Step, ...]
) -> str | None:
    """Say why a step about a machine is not to be taken after all; None: nobody objects.

    `tried` are the changes made earlier in this round: they count against the limits.
    """
    node_id, asked_at = review.step.node_id, parts.clock.monotonic()
    seen = observation.fleet.find(node_id)
    try:
        node = parts.cloud.node(node_id)
        group = None if node is None or node.group is None else parts.cloud.group(node.group)
    except NotFoundError as error:
        return f"the cloud does not know it: {error}"
    except CloudError as error:
        note_silence(parts, Server() if seen is None else Server.that_has(seen), error, asked_at)
        return f"the cloud gives no answer about it: {error}"
    if node is None:
        return "the cloud no longer lists it"
    asked = target_cluster_node.machine_in_cluster(parts, node, None if seen is None else seen.kubernetes)
    if not isinstance(asked, str):
        asked = target_slurm_node.machine_in_slurm(
            parts, asked, None if seen is None else seen.slurm, observation.fleet
        )
    if isinstance(asked, str):
        return asked
    node, signal = asked, asked.signal
    if node.state is not NodeState.STOPPED:
        signal = parts.signals.confirm(node)
        if signal.verdict is not None and (late := lateness(signal.verdict, parts)) is not None:
            return late
    node = replace(node, signal=signal, cloud_notice=None if seen is None else seen.cloud_notice)
    (node,) = with_own_hosts(Fleet(observed_at=parts.clock.now(), nodes=(node,)), parts.memory.own_gpus).nodes
    node = judge_node(node, observation.fleet.roster(node.pool), parts.rules.pool(node.pool).health)
    fresh = _with_machine(parts, observation, node, group)
    return _decided_anew(parts, fresh, node.pool, review.step, tried) or _not_ready(parts, node, review.step.verb)


def lateness(verdict: NodeVerdict, parts: ControllerContext) -> str | None:
    """Say why an answer is not one of now, whatever its source says: by its own newest sample's age."""
    longest = max(parts.rules.limits.max_confirmation_age, _FRESH_INTERVALS * verdict.interval_seconds)
    if verdict.age_seconds <= longest:
        return None
    return f"its newest sample is {format_duration(verdict.age_seconds)} old"


def _not_ready(parts: ControllerContext, node: Node, verb: Verb) -> str | None:
    """Say why a machine that may go is not ready for it: its commands before a stop have not ended well. None: it is.

    They are begun here, once all others allow the stop. This answer of its agent is younger than their end.
    """
    before = None if node.verdict is None else node.verdict.before_stop
    parts.memory.before_stops.pop(node.id, None)
    if before is None or verb not in {Verb.STOP, Verb.TERMINATE}:
        return None
    match before.state:
        case Preparing.DONE:
            parts.memory.before_stops[node.id] = before.sentence
            return None
        case Preparing.READY:
            return parts.begin_before_stop(node, verb)
        case _:
            return before.sentence


def _with_machine(
    parts: ControllerContext, observation: Observation, node: Node, group: NodeGroup | None
) -> Observation:
    """Return the observation with the machine and its group as they are now."""
    now = parts.clock.now()
    latest = parts.orders(now)  # somebody may have just paused or kept it
    node, fleet = latest.with_orders(node), observation.fleet
    groups = tuple(group if group is not None and each.id == group.id else each for each in fleet.groups)
    ledger = with_foreign(parts, observation.ledger, [node])
    if (ledger.pauses, ledger.snoozes) != (latest.pauses, latest.snoozes):
        ledger = replace(ledger, pauses=latest.pauses, snoozes=latest.snoozes)
    return replace(observation, now=now, ledger=ledger, fleet=fleet.with_node(node, groups, now))


def _decided_anew(
    parts: ControllerContext, fresh: Observation, pool: str, asked: Step, tried: tuple[Step, ...]
) -> str | None:
    """Say why policies and guard would not take the step now; None: they would."""
    rules = parts.rules.pool(pool)
    proposals = policies.propose(
        fresh, pool, rules, doubt=parts.rules.doubt(pool), steps_of=parts.steps_for(asked.node_id)
    )
    found = step_for(asked.node_id, policies.resolve(fresh, pool, proposals, rules).steps)
    if found is None or found.verb is not asked.verb:
        return "it is no longer in the pool" if found is None else found.reason.sentence
    if (stays := _stays_now(asked, found)) is not None:
        return stays
    frozen = guard.find_bursts(fresh, parts.rules.limits)
    again = guard.judge(guard.case_of(found, fresh, pool, parts.rules, frozen=frozen, granted=tried))
    return None if again.allowed else " ".join(answer.sentence for answer in again.refusals)


def _stays_now(asked: Step, again: Step) -> str | None:
    """Say why an eviction does not leave: a pod that was to go has to stay by now. What has gone meanwhile may go."""
    if asked.verb is not Verb.EVICT:
        return None
    wanted, free = (frozenset(each.arguments.get(PODS, "").split()) for each in (asked, again))
    return (
        None if wanted <= free else f"{how_many(len(wanted - free), 'pod')} that were to go have to stay, or have gone"
    )
