"""PURE: the removal of a machine that is a node of Slurm: its drain, the end of its machine, and the drain's end.

Rules, all of them:

1. What the other policies decide stands. Where that is a removal, CORDON comes before it: Slurm gives the node no new
   jobs. The removal itself follows in a later round, once Slurm shows the drain and no job.
2. The drain stays while the machine is on its way down, and while it is down: no job is sent to it.
3. On a machine that runs, a drain of rule 1 is undone as soon as the machine is not to be removed any more. It works,
   somebody keeps it or has started it, a job has come, the pool is paused, or nobody knows what it does. A removal that
   has not come within `DRAIN_SECONDS` is given up in the same way.
4. After a start, it is undone once the node's slurmd has answered: with the drain goes the state DOWN in which Slurm
   leaves a node that was silent (ReturnToService).
5. After a drain was undone its notice is withdrawn with the reason, and `REST_SECONDS` pass before the next. What
   somebody else has resumed rests for `health.drain_rest`.
6. A node that a waiting job or a reservation may need (`SlurmNode.wanted_by`) gets no notice, and stays; a notice that
   it has stands. The guard keeps all nodes while nobody knows which jobs wait.
7. Only a drain with a key of this ledger in its reason, and with that reason, is undone; never a person's.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.model.decision import REMOVAL_STEPS, REMOVALS, Done, Observation, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.slurm import LEAVES, SlurmNode
from gpuwatch.model.verbs import THEN
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes.obstacles import sick, why_paused
from gpuwatch.policies.kubernetes.steps import ANNOUNCES, last, make_step, rest_step
from gpuwatch.policies.slurm_sick import CAUSE, NODE, UNDOES, ours

DRAIN_SECONDS, REST_SECONDS = 900.0, 3600.0
_DRAINS = frozenset({Verb.CORDON, Verb.UNCORDON})
_KEPT = "Nothing: it is kept."
# After so long a time of slurmd's that is older than the start is a clock that is wrong.
_STARTS = timedelta(minutes=15)
_CLOCKS_DIFFER = timedelta(minutes=1)


def removal_steps(steps: Sequence[Step], observation: Observation, rules: HealthRules) -> tuple[Step, ...]:
    """The steps; where a node is one of Slurm, the drain before its removal, or what undoes that drain."""
    if not observation.fleet.in_slurm:
        return tuple(steps)
    return tuple([removal_step(step, observation, rules) for step in steps])


def removal_step(step: Step, observation: Observation, rules: HealthRules) -> Step:
    """Return the step of one node."""
    node = observation.fleet.find(step.node_id)
    known = None if node is None else node.slurm
    if node is None or known is None or known.doubt is not None:
        return step
    if node.state is not NodeState.RUNNING:  # rule 2: its drain, if it has one, stays
        said = f"{step.reason.sentence} {known.wanted_by}"
        waits = step.verb is Verb.HOLD and known.wanted_by is not None
        return replace(step, reason=replace(step.reason, sentence=said)) if waits else step
    if known.leaves and ours(known, observation):
        return _step_after_drain(step, node, known, observation, rules)
    if (held := _rest_step(step, node, known, observation, rules)) is not None:
        return held
    if step.verb in ANNOUNCES and known.wanted_by is not None:
        return make_step(step, Verb.HOLD, "slurm_queue", known.wanted_by, "Once that job runs, or waits no more.")
    if step.verb in REMOVAL_STEPS and not known.drained:
        return _drain_step(step, known)
    return step


def _step_after_drain(step: Step, node: Node, known: SlurmNode, observation: Observation, rules: HealthRules) -> Step:
    """Rules 1, 3 and 4: the removal while nothing stands against it, else the end of the drain."""
    if _is_asked_for(node, observation):
        return step  # its machine may be on its way down, whatever its cloud shows yet
    why = step.reason.sentence
    if step.verb in REMOVAL_STEPS:
        against = _against(node, known, observation)
        if against is None:
            return step
        why = against
    if (waits := _not_yet(node, known, observation, rules)) is not None:
        verb = step.verb if step.verb is Verb.WITHDRAW else Verb.HOLD
        told = f"{why} gpuwatch's drain of it in Slurm stays for now: {waits}"
        return replace(step, verb=verb, reason=replace(step.reason, sentence=told))
    said = replace(step.reason, code="uncordon", sentence=f"{why} gpuwatch's drain of it in Slurm is undone.")
    arguments = {NODE: known.name, UNDOES: known.drained_by or ""}
    return Step(node_id=step.node_id, verb=Verb.UNCORDON, reason=said, change=_KEPT, arguments=arguments)


def _is_asked_for(node: Node, observation: Observation) -> bool:
    """Whether a removal of it was asked for, and nobody knows yet that it was not carried out."""
    return any(
        each.intent.node_id == node.id and each.intent.verb in REMOVALS and not each.resumable
        for each in observation.ledger.open_intents
    )


def _against(node: Node, known: SlurmNode, observation: Observation) -> str | None:
    """Rule 3: what stands against a removal that is still wanted, as a sentence; None: nothing."""
    if known.wanted_by is not None:
        return known.wanted_by
    if not known.rests:
        return f"Slurm shows it {known.state}."
    if (paused := why_paused(observation, node.pool)) is not None:
        return paused
    if not node.enrolled:
        return "It is no longer enrolled."
    begun = _last_drain(node, observation)
    given = max(DRAIN_SECONDS, 3 * observation.interval_seconds)
    if begun is None or begun.verb is not Verb.CORDON or (observation.now - begun.at).total_seconds() > given:
        return f"It was drained, and not removed within {format_duration(given)}."
    return None


def _not_yet(node: Node, known: SlurmNode, observation: Observation, rules: HealthRules) -> str | None:
    """Rule 4: why the drain cannot be undone now, as a sentence; None: it can."""
    if rules.cordons and (why := sick(node)) is not None:
        return why
    if not known.answers:
        return "its slurmd does not answer yet."
    if not known.resumable:
        return f"Slurm shows it {known.state}."
    launched, answered = node.launched_at or _started_at(node, observation), known.slurmd_since
    if launched is None or answered is None or answered >= launched - _CLOCKS_DIFFER:
        return None
    late = observation.now > launched + _STARTS
    return None if late else "its slurmd has not answered since its start."


def _started_at(node: Node, observation: Observation) -> datetime | None:
    """When gpuwatch started it last, where its cloud does not say when it was started."""
    return max((life.at for life in observation.lives if life.started and life.node_id == node.id), default=None)


def _last_drain(node: Node, observation: Observation) -> Done | None:
    """Its newest settled drain of rule 1, or the end of one."""
    return last(observation, node.id, _DRAINS)


def _drain_step(step: Step, known: SlurmNode) -> Step:
    """Rule 1: the first step."""
    sentence = f"{step.reason.sentence} First Slurm gives {known.name} no new jobs."
    arguments = {NODE: known.name, CAUSE: LEAVES, THEN: step.verb.value}
    said = replace(step.reason, code="cordon", sentence=sentence)
    return replace(step, verb=Verb.CORDON, reason=said, arguments=arguments)


def _rest_step(step: Step, node: Node, known: SlurmNode, observation: Observation, rules: HealthRules) -> Step | None:
    """Rule 5: the withdrawal, or the hold, of what would come too soon; None: it may come."""
    newest = _last_drain(node, observation)
    if newest is None or NODE not in newest.arguments or step.verb not in ANNOUNCES | {Verb.HOLD}:
        return None
    why, seconds = newest.why, REST_SECONDS
    if newest.verb is Verb.CORDON:
        if known.drained:
            return None  # somebody has made the drain theirs
        why, seconds = f"Somebody has resumed {known.name} in Slurm.", rules.drain_rest
    return rest_step(step, observation, newest.at, why, seconds)
