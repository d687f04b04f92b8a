"""PURE: what becomes of a Slurm node with a failing GPU.

Rules, all of them:

1. It is drained in Slurm where its pool says so (`health.action`): it gets no new jobs, and those on it run to their
   end. Nothing else about its machine changes.
2. It is resumed once each of its GPUs is known, and none is failing. While anything is not known, its drain stays.
3. Only a drain with a key of this ledger in its reason is resumed. What somebody else has drained, or has taken out in
   another way, is left alone.
4. If somebody resumes it, that is a word: it is not drained again for `health.drain_rest`.
5. A machine that is not known for certain as one node of Slurm is left alone.
"""

from dataclasses import replace
from datetime import timedelta

from gpuwatch.model.decision import Observation, Reason, Status, Step, Verb
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.health import Health
from gpuwatch.model.slurm import SlurmNode
from gpuwatch.model.verbs import SLURM_CHANGES
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes.obstacles import sick

# The arguments of the steps: the node's name in Slurm; why it is drained; the key of the drain that is undone.
NODE, CAUSE, UNDOES = "slurm_node", "cause", "drain"


def all_stepped(steps: tuple[Step, ...], observation: Observation, rules: HealthRules) -> tuple[Step, ...]:
    """The steps of a pool."""
    if not observation.fleet.in_slurm:
        return steps
    return tuple([slurm_step(step, observation, rules) for step in steps])


def slurm_step(step: Step, observation: Observation, rules: HealthRules) -> Step:
    """The step; where a node is otherwise left as it is, its drain in Slurm or the end of one, or why neither comes."""
    node = observation.fleet.find(step.node_id) if step.verb is Verb.HOLD else None
    known = None if node is None else node.slurm
    if node is None or known is None or node.state is not NodeState.RUNNING:
        return step
    if known.leaves:
        return step  # its drain comes before the end of its machine (slurm_removal.py)
    why = sick(node)
    if known.doubt is None and ours(known, observation):
        unwell = not_well(node)
        if unwell is not None:
            return _with_sentence(step, f"{unwell} It is drained in Slurm by gpuwatch.")
        if not known.resumable or not known.answers:
            return _with_sentence(step, f"Slurm shows it {known.state}, so its drain stays.")
        return _resume_step(step, known)
    if why is None or not rules.cordons:
        return step
    held = not_drained(node, observation, rules)
    return _drain_step(step, known, why) if held is None else _with_sentence(step, f"{why} {held}")


def ours(known: SlurmNode, observation: Observation) -> bool:
    """Rule 3: whether its drain bears a key that this ledger has on record."""
    return known.drained_by is not None and known.drained_by not in observation.ledger.foreign


def not_well(node: Node) -> str | None:
    """Rule 2: why it is not known that all its GPUs are fit for work, as a sentence; None: they are."""
    if (why := sick(node)) is not None:
        return why
    if node.verdict is None:
        return "Its agent says nothing of its GPUs."
    for gpu in node.verdict.gpus:
        if gpu.health is None or gpu.health.state is Health.UNKNOWN:
            return f"Nobody knows whether its GPU {'?' if gpu.index is None else gpu.index} is well."
    seen = len(node.verdict.gpus)
    if node.gpu_count is None or seen < node.gpu_count:
        return f"Its agent sees {seen} of {'?' if node.gpu_count is None else node.gpu_count} GPUs."
    return None


def not_drained(node: Node, observation: Observation, rules: HealthRules) -> str | None:
    """Rules 3 to 5: why a sick node is not drained, as a sentence; None: it may be."""
    known = node.slurm
    if known is None:
        return "It is a node of no Slurm cluster that gpuwatch knows."
    if known.doubt is not None:
        return known.doubt
    if not known.sound or known.drained:
        reason = f" with the reason {known.reason!r}" if known.reason else ""
        return f"Slurm shows it {known.state}{reason}, so it is left alone."
    return _rests(node, observation, rules)


def _rests(node: Node, observation: Observation, rules: HealthRules) -> str | None:
    """Rule 4: our newest settled step was its drain, and Slurm does not show it: somebody has resumed it."""
    found = [
        done
        for done in observation.ledger.recent
        if done.verb in SLURM_CHANGES and done.status is Status.SETTLED and done.node_id == node.id
    ]
    newest = max(found, key=lambda done: done.at, default=None)
    if newest is None or newest.verb is not Verb.SLURM_DRAIN:
        return None
    until = newest.at + timedelta(seconds=rules.drain_rest)
    if until <= observation.now:
        return None
    return f"Somebody has resumed it in Slurm. It is left alone until {format_time(until)}."


def _drain_step(step: Step, known: SlurmNode, why: str) -> Step:
    """Return the step that drains a sick node (rule 1)."""
    sentence = f"{why} Slurm gives {known.name} no new jobs; those on it run to their end."
    return Step(
        node_id=step.node_id,
        verb=Verb.SLURM_DRAIN,
        reason=Reason(code="sick", sentence=sentence, evidence=step.reason.evidence),
        change="Once no GPU of it is failing.",
        arguments={NODE: known.name, CAUSE: why},
    )


def _resume_step(step: Step, known: SlurmNode) -> Step:
    """Return the step that ends our drain (rule 2)."""
    sentence = f"No GPU of it is failing any more, so Slurm gives {known.name} jobs again."
    return Step(
        node_id=step.node_id,
        verb=Verb.SLURM_RESUME,
        reason=Reason(code="well", sentence=sentence, evidence=step.reason.evidence),
        change="A failing GPU.",
        arguments={NODE: known.name, UNDOES: known.drained_by or ""},
    )


def _with_sentence(step: Step, more: str) -> Step:
    """The step with one sentence more."""
    return replace(step, reason=replace(step.reason, sentence=f"{step.reason.sentence} {more}"))
