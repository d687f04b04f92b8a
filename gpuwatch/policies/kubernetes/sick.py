"""PURE: what becomes of a Kubernetes node with a failing GPU.

Rules, all of them:

1. It is cordoned where the pool says so, whatever it does. It is uncordoned once its agent calls no GPU failing, never
   because a time is over. While its agent is silent, the cordon stays.
2. If it becomes idle meanwhile, it has its notice and goes as any other node. Its drain has its time from the notice's
   end on.
3. Without a notice, its pods are asked to go where the pool says so (`drain`, `replace`), `drain_after` its cordon:
   those with consent, from a node that is proven idle; of a node that works only with `drain_busy`. A pod
   that has to stay is named. While pods with GPUs have to stay, those without stay as well: that their node is sick
   does not touch them.
4. Pods are asked in each round for `drain_timeout`, and after that once every `drain_rest`. The node is not uncordoned.
5. Where many nodes of a pool are sick at once, nobody's pods are asked.
6. If somebody uncordons it, that is a word like any other: it rests for `drain_rest`.
"""

import math
from dataclasses import replace
from datetime import timedelta

from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVAL_STEPS, Observation, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.kubernetes import KubernetesNode
from gpuwatch.policies import idle
from gpuwatch.policies.kubernetes import obstacles
from gpuwatch.policies.kubernetes.pod_use import holds_gpus
from gpuwatch.policies.kubernetes.steps import (
    ANNOUNCES,
    FREED,
    PODS,
    TAINT,
    Rules,
    drain,
    last,
    list_pods,
    make_step,
    node_arguments,
    obstacle,
)

_WELL = "Once no GPU of it is failing."
_MOVES = frozenset({Verb.EVICT})


def quarantine_step(step: Step, observation: Observation, rules: Rules) -> Step:
    """Rule 1: the cordon."""
    node = observation.fleet.find(step.node_id)
    known = None if node is None else node.kubernetes
    if node is None or known is None or known.unschedulable or not rules.health.cordons:
        return step
    why = obstacles.sick(node) if node.state is NodeState.RUNNING else None
    if why is None or step.verb is not Verb.HOLD or _was_freed(observation, node.id, rules):
        return step
    taint = {TAINT: "true"} if rules.health.taint else {}
    cordon = make_step(step, Verb.QUARANTINE, "sick", f"{why} It gets no new pods.", _WELL)
    return replace(cordon, arguments=node_arguments(known) | taint)


def stays_ill(node: Node, known: KubernetesNode, observation: Observation, rules: Rules) -> bool:
    """Whether our cordon stays for its health: it is sick, or was, and nobody knows that it is well."""
    if not rules.health.cordons or not known.unschedulable or not node.enrolled:
        return False
    newest = last(observation, node.id)
    was = newest is not None and newest.verb is Verb.QUARANTINE and node.activity.state is State.UNKNOWN
    return node.state is NodeState.RUNNING and (was or obstacles.sick(node) is not None)


def ill(step: Step, node: Node, known: KubernetesNode, observation: Observation, pool: Rules) -> Step:
    """Rules 2 and 3: what a node that is cordoned for its health comes to."""
    notice = observation.ledger.notice(node.id)
    if step.verb in ANNOUNCES and (why := obstacle(node, observation, pool.kubernetes, pool.idle)) is not None:
        undone = make_step(step, Verb.HOLD if notice is None else Verb.WITHDRAW, *why)
        return _eviction_step(undone, node, known, observation, pool)
    if step.verb not in REMOVAL_STEPS or notice is None or notice.promise is None:
        return _eviction_step(step, node, known, observation, pool)
    late = (observation.now - notice.promise.due(notice.at)).total_seconds() > pool.kubernetes.drain_timeout
    if known.to_drain and late:
        sentence = f"It is cordoned for its health, and {list_pods(known.to_drain)} still there."
        return make_step(step, Verb.HOLD, "sick", sentence, "Once they are gone.")
    return drain(step, known)


def too_many(node: Node, observation: Observation, ratio: float) -> str | None:
    """Rule 5: whether too many of its pool's running nodes are sick at once, as a sentence."""
    roster = observation.fleet.roster(node.pool)
    members = [each for each in roster.nodes if each.id in roster.members]
    ailing = sum(obstacles.sick(each) is not None for each in members)
    most = math.ceil(ratio * len(members))
    if ailing <= most:
        return None
    return f"{ailing} of the pool's {len(members)} running nodes have a failing GPU: a common cause is likelier."


def _eviction_step(step: Step, node: Node, known: KubernetesNode, observation: Observation, pool: Rules) -> Step:
    """Rules 3 to 5: the eviction of those that may go, or why not."""
    why = obstacles.sick(node)
    waits = step.verb is Verb.HOLD and observation.ledger.notice(node.id) is None
    if why is None or not waits or not pool.health.drains or not known.to_drain:
        return step
    pods = ""
    movable, kept = evacuable(node, known, observation, pool)
    wait = due(known, observation, pool)
    if (held := not_moved(node, known, observation, pool)) is not None:
        sentence = held
    elif wait is not None:
        sentence = f"Pods may be asked to go in {wait}."
    elif not movable:
        sentence = kept or "Its pods are ending."
    else:
        asked = tuple(pod for pod in known.to_drain if pod.uid in movable)
        pods = " ".join(sorted(movable))
        sentence = f"It is cordoned, and {list_pods(asked)} to move.{'' if kept is None else f' {kept}'}"
    if not pods:
        told = f"{step.reason.sentence} {why} {sentence}".rstrip()
        return replace(step, reason=replace(step.reason, sentence=told))
    moves = make_step(step, Verb.EVICT, "sick", f"{why} {sentence}", _WELL)
    return replace(moves, arguments=node_arguments(known) | {PODS: pods})


def not_moved(node: Node, known: KubernetesNode, observation: Observation, pool: Rules) -> str | None:
    """Why none of its pods is asked, as a sentence."""
    rules = pool.kubernetes
    reasons = (
        obstacles.unknown(node, observation.fleet, rules),
        obstacles.owner(node, rules),
        obstacles.marks(node),
        obstacles.vital(node),
        too_many(node, observation, pool.health.max_failing_ratio),
        "Its cordon has no time." if known.cordoned_at is None else None,
    )
    return next((each for each in reasons if each is not None), None)


def due(known: KubernetesNode, observation: Observation, pool: Rules) -> str | None:
    """Rule 4: in how long its pods may be asked (again); None: now."""
    rules, now = pool.kubernetes, observation.now
    if known.cordoned_at is None:
        return None
    begins = known.cordoned_at + timedelta(seconds=pool.health.drain_after)
    if now < begins:
        return format_duration((begins - now).total_seconds())
    if now <= begins + timedelta(seconds=rules.drain_timeout):
        return None
    moved = [
        done.at
        for done in observation.ledger.recent
        if done.verb in _MOVES and done.arguments.get("node") == known.name and done.arguments.get("uid") == known.uid
    ]
    again = None if not moved else max(moved) + timedelta(seconds=rules.drain_rest)
    return None if again is None or again <= now else format_duration((again - now).total_seconds())


def evacuable(
    node: Node, known: KubernetesNode, observation: Observation, pool: Rules
) -> tuple[frozenset[str], str | None]:
    """The uids of the pods that may be asked to go, and why others stay, as a sentence."""
    _, wait = idle.choose_action(node, observation, pool.idle)
    if not pool.health.drain_busy and (doubt := _works(node, wait)) is not None:
        return frozenset(), doubt
    busy_too = pool.health.drain_busy
    free, kept = [], []
    for pod in (pod for pod in known.to_drain if pod.ends_at is None):
        alone = replace(node, kubernetes=replace(known, pods=(pod,)))
        why = obstacles.pods(alone, observation, pool.kubernetes, wait, busy_too=busy_too)
        if why is None:
            free.append(pod)
        else:
            kept.append((pod, why))
    if any(holds_gpus(pod, node) for pod, _ in kept):
        free = [pod for pod in free if holds_gpus(pod, node)]
    whole = (
        None
        if not kept
        else obstacles.pods(
            replace(node, kubernetes=replace(known, pods=tuple(pod for pod, _ in kept))),
            observation,
            pool.kubernetes,
            wait,
            busy_too=busy_too,
        )
    )
    return frozenset(pod.uid for pod in free), whole


def _works(node: Node, wait_seconds: float | None) -> str | None:
    """Why the node is not proven idle for as long as its pool wants; None: it is."""
    state = node.activity.state
    if state is not State.IDLE:
        return f"It is {state.value}: only an idle node is drained for its health."
    if wait_seconds is None:
        return "Nobody knows how long its pool's nodes are to be idle."
    if node.activity.held_seconds < wait_seconds:
        return f"It has not been idle for {format_duration(wait_seconds)}."
    return None


def _was_freed(observation: Observation, node_id: str, rules: Rules) -> bool:
    """Rule 6: whether somebody has uncordoned a sick node lately."""
    newest = last(observation, node_id)
    since = timedelta(seconds=rules.kubernetes.drain_rest)
    if newest is None or observation.now - newest.at > since:
        return False
    return newest.verb is Verb.QUARANTINE or FREED in newest.arguments
