"""PURE: the removal of a machine that is a Kubernetes node, one step a round, each decided afresh by what is seen.

Rules, all of them:

1. What the other policies decide stands. Where that is a removal, its first steps come before it: CORDON, then DRAIN as
   long as pods are to move, then the removal itself once none is left.
2. A node that nobody may drain (gpuwatch.policies.kubernetes_obstacles) gets no notice; one that it has is withdrawn.
   While the cluster is not known, a notice waits.
3. A cordon of our own is undone as soon as the node is not to be removed any more: it works, somebody keeps it, a pod
   came that must not move, the pool is paused, or nobody knows the cluster. While only the use of the node is unknown,
   the cordon waits for the end of its time. A cordon of somebody else is never undone.
4. A cordon has `drain_timeout` for the drain, and as long again for the removal. Then it is undone.
5. After a cordon was undone, its notice is withdrawn with the reason, and `drain_rest` passes before the next.
6. What somebody has uncordoned is kept, as after rule 4.
7. A node with a failing GPU is cordoned where the pool says so, whatever it does, and its pods stay. It is uncordoned
   once its agent calls no GPU failing. If it becomes idle meanwhile, it has its notice and goes as any other node.
8. What its cloud is about to take is evacuated first (gpuwatch.policies.kubernetes_evacuation).
"""

from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from gpuwatch.model.decision import LETS_GO, Done, Observation, Reason, Status, Step, Verb
from gpuwatch.model.duration import format_duration, format_time
from gpuwatch.model.fleet import Node, NodeState, State
from gpuwatch.model.kubernetes import KubernetesNode, Pod
from gpuwatch.model.verbs import THEN
from gpuwatch.policies import idle
from gpuwatch.policies import kubernetes_obstacles as obstacles
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.kubernetes_evacuation import evacuated
from gpuwatch.policies.kubernetes_settings import KubernetesRules

# The arguments of the steps: which node object, and by its uid that it is still the same one; the key of the cordon
# that is undone; the uids of the pods that are asked to go.
NODE, UID, CLUSTER, UNDOES, PODS = "node", "uid", "cluster", "cordon", "pods"
_CORDONS = frozenset({Verb.CORDON, Verb.UNCORDON, Verb.QUARANTINE})
_WELL = "Once no GPU of it is failing."
_ANNOUNCES = LETS_GO | {Verb.NOTICE}
_CLOCK_SLACK_SECONDS = 60.0  # a cordon of the future has no end by our clock
_SHOWS = timedelta(minutes=2)  # a view of the cluster may be older than the answer that showed the cordon
_GONE = frozenset({NodeState.STOPPING, NodeState.TERMINATING, NodeState.TERMINATED})


class Rules(Protocol):
    """What of a pool's rules matters here."""

    @property
    def kubernetes(self) -> KubernetesRules:
        """Who owns its nodes, and how they are drained."""
        ...

    @property
    def idle(self) -> IdleRules:
        """How long they are to be idle."""
        ...

    @property
    def health(self) -> HealthRules:
        """What happens to sick ones."""
        ...


def stepped(steps: list[Step], observation: Observation, rules: Rules) -> tuple[Step, ...]:
    """The steps; where a node is one of a cluster, what comes before its step, or what undoes what came before."""
    if observation.fleet.cluster is None and rules.kubernetes.node_owner == "nobody":
        return tuple(steps)
    return tuple(
        [
            evacuated(step, observation, rules.kubernetes)
            or _quarantined(_stepped(step, observation, rules), observation, rules)
            for step in steps
        ]
    )


def _quarantined(step: Step, observation: Observation, rules: Rules) -> Step:
    """Rule 7: the cordon of a node with a failing GPU, whatever it does."""
    node = observation.fleet.find(step.node_id)
    known = None if node is None else node.kubernetes
    if node is None or known is None or known.unschedulable or rules.health.action != "cordon":
        return step
    why = obstacles.sick(node) if node.state is NodeState.RUNNING else None
    if why is None or step.verb is not Verb.HOLD or _freed(observation, node.id, rules):
        return step
    return replace(_say(step, Verb.QUARANTINE, "sick", f"{why} It gets no new pods.", _WELL), arguments=_about(known))


def _stays_ill(node: Node, known: KubernetesNode, observation: Observation, rules: Rules) -> bool:
    """Whether our cordon stays for its health: it is sick, or was, and nobody knows that it is well."""
    if rules.health.action != "cordon" or not known.unschedulable or not node.enrolled:
        return False
    last = _last(observation, node.id)
    was = last is not None and last.verb is Verb.QUARANTINE and node.activity.state is State.UNKNOWN
    return node.state is NodeState.RUNNING and (was or obstacles.sick(node) is not None)


def _ill(step: Step, node: Node, known: KubernetesNode, observation: Observation, pool: Rules) -> Step:
    """Rule 7: what a node that is cordoned for its health comes to. Its drain has its time from the notice's end on."""
    notice = observation.ledger.notice(node.id)
    if step.verb in _ANNOUNCES and (why := _obstacle(node, observation, pool.kubernetes, pool.idle)) is not None:
        return _say(step, Verb.HOLD if notice is None else Verb.WITHDRAW, *why)
    if step.verb not in LETS_GO or notice is None or notice.promise is None:
        return step
    late = (observation.now - notice.promise.due(notice.at)).total_seconds() > pool.kubernetes.drain_timeout
    if known.to_drain and late:
        sentence = f"It is cordoned for its health, and {_listed(known.to_drain)} still there."
        return _say(step, Verb.HOLD, "sick", sentence, "Once they are gone.")
    return _drain(step, known)


def _freed(observation: Observation, node_id: str, rules: Rules) -> bool:
    """Whether somebody has uncordoned a sick node lately: that is a word like any other."""
    last = _last(observation, node_id)
    since = timedelta(seconds=rules.kubernetes.drain_rest)
    return last is not None and last.verb is Verb.QUARANTINE and observation.now - last.at <= since


def _stepped(step: Step, observation: Observation, pool: Rules) -> Step:
    """One node's."""
    rules, idle_rules = pool.kubernetes, pool.idle
    node = observation.fleet.find(step.node_id)
    if node is None or step.verb in {Verb.START, Verb.UNCORDON}:
        return step
    known = node.kubernetes
    if known is None:
        doubt = obstacles.unknown(node, observation.fleet, rules) if step.verb in _ANNOUNCES else None
        return step if doubt is None else _say(step, Verb.HOLD, "kubernetes_unknown", doubt, "That it is one of them.")
    if obstacles.ours(known, observation.ledger):
        if _stays_ill(node, known, observation, pool):
            return _ill(step, node, known, observation, pool)
        return _cordoned(step, node, known, observation, rules, idle_rules)
    if step.verb in _ANNOUNCES and (why := _obstacle(node, observation, rules, idle_rules)) is not None:
        code, sentence, change = why
        stands = code != "kubernetes_unknown" and observation.ledger.notice(node.id) is not None
        return _say(step, Verb.WITHDRAW if stands else Verb.HOLD, code, sentence, change)
    if (held := _rested(step, node, observation, rules)) is not None:
        return held
    if step.verb in LETS_GO and node.state is NodeState.RUNNING:
        return _cordon(step, known)
    return step


def _obstacle(
    node: Node, observation: Observation, rules: KubernetesRules, idle_rules: IdleRules
) -> tuple[str, str, str] | None:
    """Rule 2: why nobody may drain it, as code, sentence and remedy."""
    if (doubt := obstacles.unknown(node, observation.fleet, rules)) is not None:
        return "kubernetes_unknown", doubt, "An answer of the cluster's API server."
    if (whose := obstacles.owner(node, rules)) is not None:
        return "node_owner", whose, "pools.<name>.kubernetes.node_owner."
    if (theirs := obstacles.foreign_cordon(node, observation.ledger)) is not None:
        return "foreign_cordon", theirs, "That person, or that controller, uncordons it."
    if (kept := obstacles.marks(node)) is not None:
        return "kept_node", kept, "Without that mark."
    _, wait = idle.chosen(node, observation, idle_rules)
    if (stays := obstacles.pods(node, rules, wait, observation.now)) is not None:
        return "pods", stays, "Once they are gone, or their people consent (docs/kubernetes.md)."
    return None


def _cordoned(
    step: Step,
    node: Node,
    known: KubernetesNode,
    observation: Observation,
    rules: KubernetesRules,
    idle_rules: IdleRules,
) -> Step:
    """What comes after our own cordon."""
    if node.state in _GONE or (node.state is NodeState.STOPPED and known.ready):
        return step  # it is on its way down: once it is there, nobody's pods come before the next round sees that
    if node.state is NodeState.STOPPED:
        return _uncordon(step, known, "It is stopped.")
    if not known.unschedulable:
        return _uncordon(step, known, "Somebody has uncordoned it.")
    age = None if known.cordoned_at is None else (observation.now - known.cordoned_at).total_seconds()
    given = rules.drain_timeout * (1 if known.to_drain else 2)
    if age is None or not -_CLOCK_SLACK_SECONDS <= age <= given:
        what = f"It was drained, and not removed within {format_duration(given)}."
        if known.to_drain:
            what = f"Its drain was not over within {format_duration(given)}: {_listed(known.to_drain)} still there."
        return _uncordon(step, known, what)
    if (paused := obstacles.paused(observation, node.pool)) is not None:
        return _uncordon(step, known, paused)
    if not node.enrolled:
        return _uncordon(step, known, "It is no longer enrolled.")
    if step.verb not in LETS_GO:
        return step if _waits(step, node) else _uncordon(step, known, step.reason.sentence)
    if (why := _obstacle(node, observation, rules, idle_rules)) is not None:
        return _uncordon(step, known, why[1])
    return _drain(step, known)


def _waits(step: Step, node: Node) -> bool:
    """Rule 3: whether nothing is known against the removal, and nothing for it."""
    unknown = node.state is NodeState.UNKNOWN or step.reason.code == "unknown"
    return step.verb is Verb.HOLD and unknown


def _cordon(step: Step, known: KubernetesNode) -> Step:
    """Rule 1: the first step."""
    sentence = f"{step.reason.sentence} First Kubernetes gives it no new pods."
    said = replace(step.reason, code="cordon", sentence=sentence)
    return replace(step, verb=Verb.CORDON, reason=said, arguments=_about(known) | {THEN: step.verb.value})


def _drain(step: Step, known: KubernetesNode) -> Step:
    """Rule 1: the pods that are to move; without any, the removal."""
    asked = tuple(sorted((pod for pod in known.to_drain if pod.ends_at is None), key=lambda pod: (str(pod), pod.uid)))
    if not known.to_drain:
        return step
    if not asked:
        sentence = f"It is cordoned, and {_listed(known.to_drain)} ending."
        return _say(step, Verb.HOLD, "draining", sentence, "Once they are gone, it is removed.")
    said = replace(step.reason, code="drain", sentence=f"It is cordoned, and {_listed(asked)} to move.")
    pods = {PODS: " ".join(pod.uid for pod in asked)}
    return replace(step, verb=Verb.DRAIN, reason=said, arguments=_about(known) | {THEN: step.verb.value} | pods)


def _listed(pods: tuple[Pod, ...]) -> str:
    """`the pod a/b is`, `the pods a/b, a/c, a/d and 2 more are`."""
    names = sorted(map(str, pods))
    if len(names) == 1:
        return f"the pod {names[0]} is"
    more = "" if len(names) <= 3 else f" and {len(names) - 3} more"  # noqa: PLR2004  as many as a line holds
    return f"the pods {', '.join(names[:3])}{more} are"


def _uncordon(step: Step, known: KubernetesNode, why: str) -> Step:
    """Rule 3."""
    said = replace(step.reason, code="uncordon", sentence=f"{why} gpuwatch's cordon of it is undone.")
    arguments = _about(known) | {UNDOES: known.cordoned_by or ""}
    return replace(step, verb=Verb.UNCORDON, reason=said, change="Nothing: it is kept.", arguments=arguments)


def _about(known: KubernetesNode) -> dict[str, str]:
    """Which node object it is."""
    return {NODE: known.name, UID: known.uid, CLUSTER: known.cluster}


def _rested(step: Step, node: Node, observation: Observation, rules: KubernetesRules) -> Step | None:
    """Rules 5 and 6: the withdrawal, or the hold, of what would come too soon; None: it may come."""
    last = _last(observation, node.id)
    if last is None or last.verb is Verb.QUARANTINE or step.verb not in _ANNOUNCES | {Verb.HOLD}:
        return None
    if last.verb is Verb.CORDON and observation.now - last.at <= _SHOWS:
        waits = step.verb in LETS_GO
        return _say(step, Verb.HOLD, "cordon", "Its cordon does not show yet.", "The next rounds.") if waits else None
    why = "Somebody has uncordoned it." if last.verb is Verb.CORDON else last.why
    until, notice = last.at + timedelta(seconds=rules.drain_rest), observation.ledger.notice(node.id)
    if notice is not None and notice.at <= last.at:
        return _say(step, Verb.WITHDRAW, "drain_over", why, "A new notice follows if it still has no use.")
    if step.verb is Verb.HOLD or until <= observation.now:
        return None
    sentence = f"{why} It rests until {format_time(until)}."
    return _say(step, Verb.HOLD, "drain_rest", sentence, "Then a new notice follows if it still has no use.")


def _last(observation: Observation, node_id: str) -> Done | None:
    """The node's newest cordon, for whatever reason, or its end, as far as the ledger looks back."""
    found = [
        done
        for done in observation.ledger.recent
        if done.verb in _CORDONS and done.status is Status.SETTLED and done.node_id == node_id
    ]
    return max(found, key=lambda done: done.at, default=None)


def _say(step: Step, verb: Verb, code: str, sentence: str, change: str) -> Step:
    """Another step for the same node."""
    reason = Reason(code=code, sentence=sentence, evidence=step.reason.evidence)
    return Step(node_id=step.node_id, verb=verb, reason=reason, change=change)
