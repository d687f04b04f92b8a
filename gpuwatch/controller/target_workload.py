"""Workloads of a cluster: the last question before their pods are ended, the calls, and their outcome.

Asked are the API server about the object and its pods, each machine's cloud, and each machine's own agent. A doubt, a
silence or another pod is a veto.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from gpuwatch import guard
from gpuwatch.clouds import CloudError, NotFoundError, ProtectedError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.answers import note_silence
from gpuwatch.controller.circuits import Server
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.last_question import lateness
from gpuwatch.controller.target import Found, Target, not_served, promise_arguments
from gpuwatch.controller.target_cluster_node import NO_CLUSTER, api_server, drain_words
from gpuwatch.guard.workload_rules import MOST_MACHINES
from gpuwatch.kubernetes import Workloads
from gpuwatch.kubernetes.several import workloads_of
from gpuwatch.model.decision import (
    SETTLE_TIMEOUT,
    Intent,
    LedgerView,
    Observation,
    OpenIntent,
    Review,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.kubernetes import Pod, WorkloadNow, target_of
from gpuwatch.model.kubernetes import Target as WorkloadObject
from gpuwatch.model.promise import promise_of
from gpuwatch.policies.kubernetes import idle_pods, workload_words
from gpuwatch.policies.kubernetes.idle_pods import HOW, PODS, UIDS, WorkloadStep
from gpuwatch.policies.kubernetes.workload_use import WorkloadUse

_SECOND = 1.0  # annotations tell whole seconds


def steps_for_workloads(parts: ControllerContext, observation: Observation) -> tuple[WorkloadStep, ...]:
    """Return a step for each workload that holds GPUs; none where no cluster can be asked."""
    if parts.cluster is None:
        return ()
    return idle_pods.steps(observation, parts.rules.idle_pods(observation.fleet.pools))


def remember_workloads(parts: ControllerContext, steps: Iterable[WorkloadStep]) -> None:
    """Keep what this round saw of each workload: to find one again costs as much as to look at all."""
    parts.memory.workloads = {each.use.id: each.use for each in steps}


class WorkloadTarget(Target):
    """A workload: the API server is asked to announce its end, to take that back, or to end its pods."""

    most_denied = math.inf  # a right that one kind of workload lacks says nothing about the others

    def servers(self, _observation: Observation, step: Step) -> tuple[Server, ...]:
        """Return the API server; before pods are ended the clouds of their machines are asked, too."""
        use = self._parts.memory.workloads.get(step.node_id) if step.verb is Verb.RELEASE else None
        own = api_server(self._parts, _cluster_of(step.node_id))
        return (own, *dict.fromkeys(Server.that_has(each.node) for each in (() if use is None else use.pods)))

    def objection(self, observation: Observation, review: Review, tried: tuple[Step, ...]) -> str | None:
        """Say why its pods are not to be ended after all, as everybody says now; None: nobody objects."""
        step, parts = review.step, self._parts
        use = parts.memory.workloads.get(step.node_id)
        its = _workloads(parts, step.node_id)
        if use is None or its is None:
            return NO_CLUSTER if its is None else "it holds no GPUs any more"
        fresh = _observe_workload(parts, its, observation, use)
        if isinstance(fresh, str):
            return fresh
        steps = steps_for_workloads(parts, fresh)
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

    def arguments(self, _observation: Observation, review: Review, now: datetime) -> Mapping[str, str]:
        """Return which object it is; of a notice also what it promises, if it is given now."""
        step = review.step
        if step.verb is not Verb.NOTICE:
            return step.arguments
        pools = self._parts.memory.workloads[step.node_id].pools
        approval = any(self._parts.rules.pool(pool).approval for pool in pools)
        promise = promise_arguments(self._parts, step.arguments, now, review.pool, approval=approval)
        return {**step.arguments, **promise}

    def owner_and_price(self, _observation: Observation, step: Step) -> tuple[str | None, Decimal | None]:
        """Say who owns the workload and what an hour of its GPUs costs."""
        use = self._parts.memory.workloads.get(step.node_id)
        return (None, None) if use is None else (use.workload.owner, use.usd_per_hour)

    def ask(self, intent: Intent, _observation: Observation | None, permit: Permit) -> tuple[Status, str]:
        """Make the call that the intent's verb stands for."""
        target = target_of(intent.arguments)
        its, key = _workloads(self._parts, intent.node_id, target), intent.key
        if its is None or target is None:
            raise NotFoundError(NO_CLUSTER)
        try:
            if intent.verb is not Verb.RELEASE:
                stop_at = _stop_at(intent, self._parts.clock.now())
                its.announce(target, key, stop_at, _note_text(intent, target, stop_at), permit=permit)
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
        return Status.REFUSED if drain.refused and not drain.evicted else Status.SETTLED, drain_words(drain)

    def outcome_of(self, entry: OpenIntent) -> Found:
        """Find out what the API server shows of an open step; its answers are of now, never late."""
        target = target_of(entry.intent.arguments)
        if self._parts.cluster is None or target is None:
            return not_served(entry, NO_CLUSTER)
        if not entry.counts:
            return None
        its = _workloads(self._parts, entry.intent.node_id, target)
        if its is None:
            return not_served(entry, f"no cluster of the settings has {target} of that uid")
        now = its.workload(target)
        return _outcome_of_gone(entry, target) if now is None else _OUTCOMES[entry.intent.verb](self._parts, entry, now)


def _cluster_of(workload_id: str) -> str:
    """Return the name of the cluster that an id of the ledger names."""
    name = workload_words.workload_of_id(workload_id)
    return "" if name is None else name.cluster


def _workloads(parts: ControllerContext, workload_id: str, target: WorkloadObject | None = None) -> Workloads | None:
    """Return those of the cluster that an id names; None: no such cluster is in the settings."""
    return None if parts.cluster is None else workloads_of(parts.cluster, _cluster_of(workload_id), target)


def _observe_workload(
    parts: ControllerContext, asked_of: Workloads, observation: Observation, use: WorkloadUse
) -> Observation | str:
    """Return the observation with the workload as it is now; or why that is no ground to end it."""
    asked = parts.clock.monotonic()
    try:
        now = asked_of.workload(use.target)
    except CloudError as error:
        note_silence(parts, api_server(parts, _cluster_of(use.id)), error, asked)
        return f"the cluster gives no answer about it: {error}"
    if now is None:
        return f"the cluster has no {use.target} of that uid any more"
    if now.wants == 0:
        return "it wants no pods any more"
    if {(pod.uid, pod.node) for pod in now.pods} != {(pod.uid, pod.node) for pod in use.all_pods}:
        return "its pods are others now"
    machines = _machines(parts, {each.node.id: each.node for each in use.pods})
    return machines if isinstance(machines, str) else _with_machines(parts, observation, now, machines)


def _machines(parts: ControllerContext, seen: Mapping[str, Node]) -> dict[str, Node] | str:
    """Return the machines as their clouds, and all their agents at once, show them now; or why one is a veto."""
    if len(seen) > MOST_MACHINES:
        return f"it is on {len(seen)} machines, and {MOST_MACHINES} at most can be asked before one answer is old"
    shown: dict[str, Node] = {}
    for node in seen.values():
        asked = parts.clock.monotonic()
        try:
            known = parts.cloud.node(node.id)
        except CloudError as error:
            note_silence(parts, Server.that_has(node), error, asked)
            return f"{node.name}: the cloud gives no answer about it: {error}"
        if known is None or known.state is not NodeState.RUNNING:
            return f"{node.name}: the cloud does not show it running"
        shown[node.id] = replace(known, kubernetes=node.kubernetes)
    with ThreadPoolExecutor(max_workers=len(shown)) as pool:
        signals = list(pool.map(parts.signals.confirm, shown.values()))
    for node, signal in zip(list(shown.values()), signals, strict=True):
        if signal.verdict is None:
            return f"{node.name}: {signal.failure or 'its agent gives no answer'}"
        if (late := lateness(signal.verdict, parts)) is not None:
            return f"{node.name}: {late}"
        shown[node.id] = replace(node, signal=signal)
    return shown


def _with_machines(
    parts: ControllerContext, observation: Observation, now: WorkloadNow, machines: Mapping[str, Node]
) -> Observation:
    """Return the observation with these machines, and with the workload's pods as they are now."""
    at = parts.clock.now()
    latest = parts.past(at)  # somebody may have just paused or kept it
    pods = {pod.uid: pod for pod in now.pods}
    nodes = tuple(_fresh(machines.get(node.id, node), pods, latest) for node in observation.fleet.nodes)
    by_name = {node.kubernetes.name: node.kubernetes for node in nodes if node.kubernetes is not None}
    view = observation.fleet.cluster
    if view is not None:
        view = replace(view, nodes=tuple(by_name.get(each.name, each) for each in view.nodes))
    fleet: Fleet = replace(observation.fleet, observed_at=at, nodes=nodes, cluster=view)
    ledger = replace(observation.ledger, pauses=latest.pauses, snoozes=latest.snoozes)
    return replace(observation, now=at, fleet=fleet, ledger=ledger)


def _fresh(node: Node, pods: Mapping[str, Pod], latest: LedgerView) -> Node:
    """Return the machine with those of its pods as they are now."""
    known, node = node.kubernetes, latest.with_orders(node)
    if known is None or not any(pod.uid in pods for pod in known.pods):
        return node
    return replace(node, kubernetes=replace(known, pods=tuple(pods.get(pod.uid, pod) for pod in known.pods)))


def _note_text(intent: Intent, target: WorkloadObject, stop_at: datetime | None) -> str:
    """Write what people read at the object."""
    why, arguments = intent.reason.sentence, intent.arguments
    if stop_at is None:
        return workload_words.kept_note(why)
    wanted = int(arguments[PODS]) if PODS in arguments else None
    return workload_words.notice_note(target, arguments["action"], stop_at, why, wanted)


def _stop_at(intent: Intent, now: datetime) -> datetime | None:
    """Return what a notice writes on the object; a withdrawal takes it away."""
    promise = promise_of(intent.pool, intent.arguments) if intent.verb is Verb.NOTICE else None
    return None if promise is None else promise.due(now)


def _outcome_of_gone(entry: OpenIntent, target: WorkloadObject) -> Found:
    """An end that may have been carried out before counts; a notice of what is gone holds for nothing."""
    done = entry.intent.verb is not Verb.NOTICE and entry.reached
    return Status.SETTLED if done else Status.CANCELLED, f"the API server has no {target} of that uid any more"


def _outcome_of_notice(parts: ControllerContext, entry: OpenIntent, now: WorkloadNow) -> Found:
    """Find the annotation that says it; it may be of a second attempt, and then later than promised."""
    del parts
    promise = promise_of(entry.intent.pool, entry.intent.arguments)
    if promise is None or now.stop_at is None or (promise.stop_at - now.stop_at).total_seconds() > _SECOND:
        return Status.INTERRUPTED, "its annotation does not show it yet"
    return Status.SETTLED, "its annotation shows it"


def _withdrawn(parts: ControllerContext, entry: OpenIntent, now: WorkloadNow) -> Found:
    """See that the annotation is gone."""
    del parts, entry
    if now.stop_at is not None:
        return Status.INTERRUPTED, "its annotation still shows the notice"
    return Status.SETTLED, "its annotation is gone"


def _outcome_of_release(parts: ControllerContext, entry: OpenIntent, now: WorkloadNow) -> Found:
    """Look for the key on the object; what was evicted is gone, or ends."""
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


_OUTCOMES: Mapping[Verb, Callable[[ControllerContext, OpenIntent, WorkloadNow], Found]] = {
    Verb.NOTICE: _outcome_of_notice,
    Verb.WITHDRAW: _withdrawn,
    Verb.RELEASE: _outcome_of_release,
}
