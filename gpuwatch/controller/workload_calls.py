"""Workloads of a cluster: the last question before their pods are ended, the calls, and what became of them.

Asked are the API server about the object and its pods, each machine's cloud, and each machine's own agent. A doubt, a
silence or another pod is a veto.
"""

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

from gpuwatch import guard
from gpuwatch.clouds import CloudError, NotFoundError, ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.cluster_calls import drained
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.launches import Found
from gpuwatch.guard.workload_rules import MOST_MACHINES
from gpuwatch.kubernetes import Workloads
from gpuwatch.model.decision import SETTLE_TIMEOUT, Intent, LedgerView, Observation, OpenIntent, Status, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Fleet, Node, NodeReport, NodeState
from gpuwatch.model.kubernetes import Pod, Target, WorkloadNow, target_of
from gpuwatch.model.promise import arguments_of, promise_of
from gpuwatch.policies.kubernetes import idle_pods, workload_words
from gpuwatch.policies.kubernetes.idle_pods import HOW, PODS, UIDS, WorkloadStep
from gpuwatch.policies.kubernetes.workload_use import WorkloadUse

log = logging.getLogger(__name__)

_NO_CLUSTER = "no Kubernetes cluster is in the settings"
_FRESH_INTERVALS = 3  # of an agent's own sampling
_CLOSE_SECONDS = 60.0
_SECOND = 1.0  # annotations tell whole seconds


def decided(parts: ControllerContext, observation: Observation) -> tuple[WorkloadStep, ...]:
    """A step for each workload that holds GPUs; none where no cluster can be asked."""
    if parts.cluster is None:
        return ()
    return idle_pods.steps(observation, parts.rules.idle_pods(observation.fleet.pools))


def remember(parts: ControllerContext, steps: Iterable[WorkloadStep]) -> None:
    """Keep what this round saw of each workload: to find one again costs as much as to look at all."""
    parts.memory.workloads = {each.use.id: each.use for each in steps}


def promised(parts: ControllerContext, step: Step, now: datetime) -> Mapping[str, str]:
    """What a notice that is given now promises, and to which object."""
    arguments, pools = step.arguments, parts.memory.workloads[step.node_id].pools
    promise = arguments_of(
        arguments["action"],
        grace_seconds=float(arguments["grace_seconds"]),
        idle_seconds=float(arguments["idle_seconds"]),
        at=now,
        approval=any(parts.rules.pool(pool).approval for pool in pools),
        heard=parts.rules.limits.require_notification,
    )
    return {**arguments, **promise}


def veto(parts: ControllerContext, observation: Observation, step: Step, tried: tuple[Step, ...]) -> str | None:
    """Why its pods are not to be ended after all, as everybody says now; None: nobody objects.

    `tried` are the changes made earlier in this round: they count against the limits.
    """
    use = parts.memory.workloads.get(step.node_id)
    if use is None or parts.cluster is None:
        return _NO_CLUSTER if parts.cluster is None else "it holds no GPUs any more"
    fresh = looked_at(parts, parts.cluster.workloads, observation, use)
    if isinstance(fresh, str):
        return fresh
    steps = decided(parts, fresh)
    found = next((each for each in steps if each.use.id == step.node_id), None)
    if found is None:
        return "it holds no GPUs any more"
    if found.verb is not step.verb:
        return found.reason.sentence
    if dict(found.arguments) != dict(step.arguments):
        return "it is not what was decided about any more"
    ended = {each.node_id for each in tried if each.verb is Verb.RELEASE}
    granted = tuple(each.use for each in steps if each.use.id in ended)
    again = guard.judge(guard.workload_case(found, fresh, parts.rules, granted=granted))
    return None if again.allowed else " ".join(answer.sentence for answer in again.refusals)


def looked_at(
    parts: ControllerContext, asked_of: Workloads, observation: Observation, use: WorkloadUse
) -> Observation | str:
    """The observation with the workload as it is now; or why that is no ground to end it."""
    try:
        now = asked_of.workload(use.target)
    except CloudError as error:
        return f"the cluster gives no answer about it: {error}"
    if now is None:
        return f"the cluster has no {use.target} of that uid any more"
    if now.wants == 0:
        return "it wants no pods any more"
    if {(pod.uid, pod.node) for pod in now.pods} != {(pod.uid, pod.node) for pod in use.all_pods}:
        return "its pods are others now"
    machines = _machines(parts, {each.node.id: each.node for each in use.pods})
    return machines if isinstance(machines, str) else _with(parts, observation, now, machines)


def _machines(parts: ControllerContext, seen: Mapping[str, Node]) -> dict[str, Node] | str:
    """The machines with what their clouds, and all their agents at once, say now; or why one of them is a veto."""
    if len(seen) > MOST_MACHINES:
        return f"it is on {len(seen)} machines, and {MOST_MACHINES} at most can be asked before one answer is old"
    shown: dict[str, Node] = {}
    for node in seen.values():
        try:
            known = parts.cloud.node(node.id)
        except CloudError as error:
            return f"{node.name}: the cloud gives no answer about it: {error}"
        if known is None or known.state is not NodeState.RUNNING:
            return f"{node.name}: the cloud does not show it running"
        shown[node.id] = replace(known, kubernetes=node.kubernetes)
    with ThreadPoolExecutor(max_workers=len(shown)) as pool:
        signals = list(pool.map(parts.signals.confirm, shown.values()))
    for node, signal in zip(list(shown.values()), signals, strict=True):
        if (late := _late(signal, parts.rules.limits.max_confirmation_age)) is not None:
            return f"{node.name}: {late}"
        shown[node.id] = replace(node, signal=signal)
    return shown


def _late(signal: NodeReport, seconds: float) -> str | None:
    """Why an answer is not one of now: by its own count of its newest sample's age."""
    verdict = signal.verdict
    if verdict is None:
        return signal.failure or "its agent gives no answer"
    if verdict.age_seconds <= max(seconds, _FRESH_INTERVALS * verdict.interval_seconds):
        return None
    return f"its newest sample is {format_duration(verdict.age_seconds)} old"


def _with(
    parts: ControllerContext, observation: Observation, now: WorkloadNow, machines: Mapping[str, Node]
) -> Observation:
    """The observation with these machines, and with the workload's pods as they are now."""
    at = parts.clock.now()
    latest = parts.past(at)  # somebody may have just paused or kept it
    pods = {pod.uid: pod for pod in now.pods}
    nodes = tuple(_fresh(machines.get(node.id, node), pods, latest) for node in observation.fleet.nodes)
    by_uid = {node.kubernetes.uid: node.kubernetes for node in nodes if node.kubernetes is not None}
    view = observation.fleet.cluster
    if view is not None:
        view = replace(view, nodes=tuple(by_uid.get(each.uid, each) for each in view.nodes))
    fleet: Fleet = replace(observation.fleet, observed_at=at, nodes=nodes, cluster=view)
    ledger = replace(observation.ledger, pauses=latest.pauses, snoozes=latest.snoozes)
    return replace(observation, now=at, fleet=fleet, ledger=ledger)


def _fresh(node: Node, pods: Mapping[str, Pod], latest: LedgerView) -> Node:
    """The machine with those of its pods as they are now."""
    known, node = node.kubernetes, latest.kept(node)
    if known is None or not any(pod.uid in pods for pod in known.pods):
        return node
    return replace(node, kubernetes=replace(known, pods=tuple(pods.get(pod.uid, pod) for pod in known.pods)))


def asked(parts: ControllerContext, intent: Intent, permit: Permit) -> tuple[Status, str]:
    """The call that the intent's verb stands for.

    Raises:
        CloudError: as `Workloads` raises it.

    """
    target = target_of(intent.arguments)
    if parts.cluster is None or target is None:
        raise NotFoundError(_NO_CLUSTER)
    its, key = parts.cluster.workloads, intent.key
    try:
        if intent.verb is not Verb.RELEASE:
            stop_at = _stop_at(intent, parts.clock.now())
            its.announce(target, key, stop_at, _note(intent, target, stop_at), permit=permit)
            return Status.SETTLED, "the API server accepted its annotation and its event"
        how, uids = intent.arguments[HOW], tuple(intent.arguments.get(UIDS, "").split())
        drain = its.release(target, how, uids, key, permit=permit)
    except ProtectedError as error:
        if intent.verb is not Verb.NOTICE:
            raise
        return Status.FAILED, str(error)
    except NotFoundError as error:
        # A notice that cannot be written rests before it is tried again.
        ended = {Verb.WITHDRAW: Status.SETTLED, Verb.NOTICE: Status.FAILED}.get(intent.verb, Status.CANCELLED)
        return ended, f"there is nothing to {intent.verb.value}: {error}"
    if how != "delete":
        return Status.ACCEPTED, "the API server accepted the end of its pods"
    # Where nothing was asked to go, the same may be tried again.
    return Status.REFUSED if drain.refused and not drain.evicted else Status.SETTLED, drained(drain)


def _note(intent: Intent, target: Target, stop_at: datetime | None) -> str:
    """What people read at the object."""
    why, arguments = intent.reason.sentence, intent.arguments
    if stop_at is None:
        return workload_words.kept_note(why)
    wanted = int(arguments[PODS]) if PODS in arguments else None
    return workload_words.notice_note(target, arguments["action"], stop_at, why, wanted)


def _stop_at(intent: Intent, now: datetime) -> datetime | None:
    """What a notice writes on the object; a withdrawal takes it away."""
    promise = promise_of(intent.pool, intent.arguments) if intent.verb is Verb.NOTICE else None
    return None if promise is None else promise.due(now)


def became(parts: ControllerContext, entry: OpenIntent) -> Found:
    """What the API server shows of an open step about a workload; its answers are of now, never late.

    Raises:
        CloudError: no answer.

    """
    target = target_of(entry.intent.arguments)
    if parts.cluster is None or target is None:
        return Status.FAILED if entry.reached else Status.CANCELLED, _NO_CLUSTER
    if entry.resumable and not entry.reached:
        return None
    now = parts.cluster.workloads.workload(target)
    if now is None:
        return _gone(entry, target)
    shown = _SHOWN[entry.intent.verb](parts, entry, now)
    not_done = shown is not None and shown[0] is Status.INTERRUPTED
    return None if entry.resumable and not_done else shown


def _gone(entry: OpenIntent, target: Target) -> Found:
    """An end that may have been carried out before counts; a notice of what is gone holds for nothing."""
    done = entry.intent.verb is not Verb.NOTICE and entry.reached
    return Status.SETTLED if done else Status.CANCELLED, f"the API server has no {target} of that uid any more"


def _announced(parts: ControllerContext, entry: OpenIntent, now: WorkloadNow) -> Found:
    """The annotation says it; it may be of a second attempt, and then later than promised."""
    del parts
    promise = promise_of(entry.intent.pool, entry.intent.arguments)
    if promise is None or now.stop_at is None or (promise.stop_at - now.stop_at).total_seconds() > _SECOND:
        return Status.INTERRUPTED, "its annotation does not show it yet"
    return Status.SETTLED, "its annotation shows it"


def _withdrawn(parts: ControllerContext, entry: OpenIntent, now: WorkloadNow) -> Found:
    """The annotation is gone."""
    del parts, entry
    if now.stop_at is not None:
        return Status.INTERRUPTED, "its annotation still shows the notice"
    return Status.SETTLED, "its annotation is gone"


def _released(parts: ControllerContext, entry: OpenIntent, now: WorkloadNow) -> Found:
    """By the key on the object; what was evicted is gone, or ends."""
    intent, last = entry.intent, entry.last
    if intent.arguments[HOW] == "delete":
        wanted = intent.arguments[UIDS].split()
        left = {pod.uid for pod in now.pods if pod.ends_at is None}
        if left.issuperset(wanted):
            return Status.INTERRUPTED, "the API server shows each of its pods still there"
        there = {pod.uid for pod in now.pods}
        return Status.SETTLED, f"the API server shows {len(there.intersection(wanted))} of {len(wanted)} pods there"
    if now.released_by != intent.key:
        return Status.INTERRUPTED, "the API server does not show it"
    if now.wants != 0:
        return Status.SETTLED, "the API server shows it ended, and brought back since"
    holding = sum(pod.gpus > 0 for pod in now.pods)
    if holding == 0:
        return Status.SETTLED, "the API server shows it without pods"
    if last is None or parts.clock.now() - last.at <= SETTLE_TIMEOUT:
        return None
    return Status.SETTLED, f"the API server shows it ended, and {holding} of its pods still there"


_SHOWN = {Verb.NOTICE: _announced, Verb.WITHDRAW: _withdrawn, Verb.RELEASE: _released}


def close_gone(parts: ControllerContext, observation: Observation, round_id: int) -> None:
    """End the notices of workloads that hold no GPU any more; the annotation goes where that is allowed and possible.

    It binds nobody: a notice is what the ledger says.
    """
    acts = parts.rules.enforce and not observation.ledger.pauses
    for notice in idle_pods.gone(observation):
        if observation.ledger.open_for(notice.node_id) is not None:
            continue
        at, promise, target = parts.clock.now(), notice.promise, notice.target
        reason = idle_pods.GONE
        pool = parts.ledger.pool_of(notice.key) if promise is None else promise.pool
        arguments = {} if target is None else target.arguments
        intent = parts.ledger.intend(Verb.WITHDRAW, notice.node_id, pool, at, reason, round_id, arguments=arguments)
        detail = "its annotation was left as it is"
        if acts and parts.cluster is not None and target is not None:
            try:
                permit = Permit.asked_now(parts.clock, _CLOSE_SECONDS, parts.ledger.leading)
                _, detail = asked(parts, intent, permit)
            except CloudError as error:
                detail = f"its annotation could not be taken away: {error}"
        parts.ledger.settle(intent, Status.SETTLED, detail, parts.clock.now())
        log.info("The notice of %s is closed: %s", notice.node_id, detail)
