"""PURE: why a workload that holds GPUs without use is left alone. Policy and guard ask the same questions.

Each answer is a sentence; None: nothing of that kind stands against it.
"""

from collections.abc import Mapping

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.kubernetes import ENDING_ACTIONS, IDLE_ACTION, Pod
from gpuwatch.model.workload_kinds import ACTIONS, SUSPENDED
from gpuwatch.policies.kubernetes import siblings
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.workload_use import WorkloadUse, at_work, in_doubt
from gpuwatch.policies.kubernetes.workload_words import why_not_ended

_BUSY = frozenset({State.BUSY, State.OCCUPIED})
_NAMED = 3  # pods in a sentence


def not_known(use: WorkloadUse, observation: Observation) -> str | None:
    """Why nobody knows what all of its pods do."""
    view, known = observation.fleet.cluster, use.pods[0].node.kubernetes
    view = view if view is None or known is None else view.part(known.cluster)
    if view is None or view.trouble is not None:
        why = "no cluster is in the settings" if view is None else view.trouble
        return f"Its pods are not known: {why}"
    if use.others:
        return f"The use of some of its pods is not known: {_list_pods(use.others)}."
    unknown = tuple(each for each in use.pods if in_doubt(each))
    if not unknown:
        found = ((pod, siblings.in_doubt(pod, observation.fleet, observation.now)) for pod in use.all_pods)
        return next((f"{pod} goes with its siblings, and {why}." for pod, why in found if why is not None), None)
    why = next((f": {each.work.doubt}." for each in unknown if each.work is not None and each.work.doubt), ".")
    return f"What {_list_pods(tuple(each.pod for each in unknown))} does is not known{why}"


def working(use: WorkloadUse, observation: Observation) -> str | None:
    """Which of its pods work, or of their siblings in another workload. One is enough."""
    busy = tuple(each for each in use.pods if at_work(each))
    if not busy:
        found = ((pod, siblings.working(pod, observation.fleet, observation.now)) for pod in use.all_pods)
        return next((f"{pod} goes with its siblings, and {why}." for pod, why in found if why is not None), None)
    signs = {sign.name for each in busy if each.work is not None for sign in each.work.evidence}
    by = f" ({', '.join(sorted(signs))})" if signs and not any(each.state in _BUSY for each in busy) else ""
    return f"It works: {_list_pods(tuple(each.pod for each in busy))}{by}."


def too_soon(use: WorkloadUse, rules: Mapping[str, IdlePodRules]) -> str | None:
    """How long it still has to be without use, by the most patient of its pools; its people may ask for more."""
    wait = wait_seconds(use, rules)
    if use.held_seconds >= wait:
        return None
    held = format_duration(use.held_seconds)
    return f"It has been {use.state.value} for {held}, and {format_duration(wait)} are needed."


def wait_seconds(use: WorkloadUse, rules: Mapping[str, IdlePodRules]) -> float:
    """How long it has to be without use."""
    idle = use.state is State.IDLE
    waits = [rules[pool].timeout if idle else rules[pool].unused_timeout for pool in use.pools]
    own = [pod.workload.idle_timeout for pod in use.all_pods if pod.workload.idle_timeout is not None]
    return max([*waits, *own])


def why_protected(use: WorkloadUse) -> str | None:
    """Why people keep it, or a machine that it is on."""
    found = next((why for pod in use.all_pods if (why := pod.protected or pod.workload.protected)), None)
    if found is not None:
        return f"It is protected: {found}."
    node = next((each.node for each in use.pods if each.node.protected is not None), None)
    return None if node is None else f"Its machine {node.name} is protected: {node.protected}."


def why_snoozed(use: WorkloadUse, observation: Observation) -> str | None:
    """Until when somebody wants it, or a machine that it is on, left alone."""
    annotated = [pod.workload.snoozed_until for pod in use.all_pods if pod.workload.snoozed_until is not None]
    keeps = [(until, "") for until in annotated]
    keeps += [(each.until, f" by {each.who}") for each in observation.ledger.snoozes if each.node_id == use.id]
    until, by = max(keeps, default=(observation.now, ""))
    if until > observation.now:
        return f"It is snoozed until {format_time(until)}{by}."
    node = next((each.node for each in use.pods if each.node.snoozed is not None), None)
    return None if node is None else f"Its machine {node.name} is snoozed: {node.snoozed}."


def static_pod(use: WorkloadUse) -> str | None:
    """Whether its file on its machine makes it, so that no call to the API server ends it."""
    found = next((each for each in use.pods if each.pod.static), None)
    return None if found is None else f"It is a static pod: a file on {found.node.name} makes it again."


def without_consent(use: WorkloadUse) -> str | None:
    """Why its people have not said what may become of it, or something that its kind cannot do."""
    if (why := static_pod(use)) is not None:
        return why
    kind, action = use.workload.kind, use.workload.idle_action
    if action is None or action not in ENDING_ACTIONS:
        said = "" if action is None else f" It says {action}."
        return f"Neither it nor its namespace has an annotation {IDLE_ACTION} that ends its pods.{said}"
    if {pod.workload.idle_action for pod in use.all_pods} != {action}:
        return f"Its pods do not agree on {IDLE_ACTION}."
    can = ACTIONS.get(kind)
    if can is None:
        return f"{why_not_ended(kind)}."
    if action not in can:
        return f"A {kind} cannot be asked to {action}, only to {' or '.join(sorted(can))}."
    if action == "stop" and use.workload.unstoppable is not None:
        return f"It cannot be stopped: {use.workload.unstoppable}."
    return None


def not_ours(use: WorkloadUse, rules: Mapping[str, IdlePodRules]) -> str | None:
    """Why gpuwatch does nothing about it: a machine that is not enrolled, or a pool that only reports."""
    for each in use.pods:
        if not each.node.enrolled:
            return f"{each.pod} is on {each.node.name}, which is not enrolled."
    reporting = [pool for pool in use.pools if rules[pool].action == "report"]
    return f"The pool {reporting[0]} only reports such pods." if reporting else None


def would_lose(use: WorkloadUse, rules: Mapping[str, IdlePodRules]) -> str | None:
    """What would be lost for good: pods that nothing makes again, and volumes that go with their pods."""
    return not_made_again(use, rules) or local_data(use)


def not_made_again(use: WorkloadUse, rules: Mapping[str, IdlePodRules]) -> str | None:
    """Whether nothing would make its pods again, and a pool of it keeps such pods."""
    stopped = use.workload.kind in SUSPENDED and use.workload.idle_action == "stop"  # no failure: it is resumed
    bare = use.workload.kind == "Pod" or (not stopped and any(pod.bare for pod in use.all_pods))
    if bare and any(rules[pool].bare_pods == "keep" for pool in use.pools):
        return "Nothing would make its pods again."
    return None


def local_data(use: WorkloadUse) -> str | None:
    """Which of its pods would lose a volume that goes with them, without the consent of their people."""
    losing = tuple(pod for pod in use.all_pods if pod.local_data is not None and not pod.loses_local_data)
    return f"Local data would be lost of {_list_pods(losing)}." if losing else None


def ending(use: WorkloadUse) -> str | None:
    """Whether its pods are ending already, by somebody else's word."""
    gone = tuple(pod for pod in use.all_pods if pod.ends_at is not None)
    return f"It changes already: {_list_pods(gone)} ending." if gone else None


def _list_pods(pods: tuple[Pod, ...]) -> str:
    """`a/b, a/c, a/d and 2 more`."""
    names = sorted(map(str, pods))
    more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
    return f"{', '.join(names[:_NAMED])}{more}"
