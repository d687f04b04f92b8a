"""PURE: a machine of which the driver has lost a GPU, and of which nothing else is used, with its pool's consent.

Rules, all of them:

1. A GPU is lost by the driver's own word, for ten minutes without a break, next to one that is read. What only is not
   there any more, hangs, or errs is not lost: another machine, a reset or a new driver may have it.
2. Its agent says what the machine would be without such GPUs. Any work on the others, or on the host, keeps it as ever;
   where the agent does not see people and processes, nothing is said.
3. That counts only in a pool with consent for its sick nodes (`health.action`: drain or replace), while no more of its
   running nodes are failing than `health.max_failing_ratio` allows. Elsewhere the machine stays unknown.
4. Then it goes as any node does that is what the rest of it is: with the wait, the notice and the question of that.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.fleet import Fleet, GpuVerdict, Node, PoolView
from gpuwatch.model.health import Health
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.kubernetes.obstacles import sick

_LOST = "gpu_lost"  # the agent's finding of docs/health.md
_WITHOUT_USE = frozenset({State.IDLE, State.OCCUPIED, State.PARKED, State.STALLED})
CONSENT = "`health.action: drain` or `replace` in its pool: then it goes as the rest of it says."


def what_is_left(node: Node) -> Activity | None:
    """What the machine is without the GPUs that its driver has lost; None: it has lost none, or the rest is not known.

    Work on it needs no consent: it is busy as ever.
    """
    verdict = node.verdict
    left = None if verdict is None else verdict.without_lost
    if verdict is None or left is None or verdict.activity.state is not State.UNKNOWN:
        return None
    return left if left.state in _WITHOUT_USE and any(map(is_lost, verdict.gpus)) else None


def is_lost(gpu: GpuVerdict) -> bool:
    """Whether its agent says of a GPU that its driver has lost it."""
    known = gpu.health
    return known is not None and known.state is Health.FAILING and any(each.code == _LOST for each in known.findings)


def judge_node(node: Node, roster: PoolView, rules: HealthRules) -> Node:
    """The machine as it is judged: by what is left of it, if its pool consents (rule 3)."""
    left, verdict = what_is_left(node), node.verdict
    if left is None or verdict is None or not rules.drains or not _few_fail(roster, rules):
        return node
    gpus = tuple([replace(gpu, activity=left) if is_lost(gpu) else gpu for gpu in verdict.gpus])
    return replace(node, signal=replace(node.signal, verdict=replace(verdict, activity=left, gpus=gpus)))


def judge_fleet(fleet: Fleet, rules: Mapping[str, HealthRules]) -> Fleet:
    """The fleet with each such machine as it is judged."""
    judged = {
        node.id: judge_node(node, fleet.roster(node.pool), rules[node.pool])
        for node in fleet.nodes
        if (verdict := node.signal.verdict) is not None and verdict.without_lost is not None  # very few
        if node.pool in rules and what_is_left(node) is not None
    }
    return replace(fleet, nodes=tuple([judged.get(node.id, node) for node in fleet.nodes])) if judged else fleet


def _few_fail(roster: PoolView, rules: HealthRules) -> bool:
    """Whether so few of the pool's running nodes are failing that it is the machines' fault."""
    failing = sum(node.id in roster.members and sick(node) is not None for node in roster.nodes)
    return failing <= math.ceil(rules.max_failing_ratio * len(roster.members))


def loss_words(node: Node) -> str:
    """Say in a notice which GPU is lost, as a sentence of its own; nothing of a machine that has all."""
    verdict = node.verdict
    lost = [] if verdict is None or verdict.without_lost is None else list(filter(is_lost, verdict.gpus))
    if not lost:
        return ""
    numbers = ", ".join("?" if gpu.index is None else str(gpu.index) for gpu in lost)
    return f" Its driver has lost GPU {numbers}: it is failing, and needs other hardware."
