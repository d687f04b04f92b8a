"""The guard's table: every rule once, with what it is asked about, and with its obstacle in `gpuwatch blocked`.

A new rule is one function in the file of its subject and one row here. Its docstring is its section of docs/guard.md.
A row without an `obstacle` is of a rule that passes by itself, or that is about no machine that runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuwatch.guard import (
    activity,
    consent,
    groups,
    kubernetes,
    kubernetes_sick,
    launches,
    owner_limits,
    ownership,
    pool_bounds,
    rate_limits,
    removals,
    slurm,
    workload_rules,
)
from gpuwatch.guard.case import Case, Finding, Subject, WorkloadCase
from gpuwatch.guard.obstacles import Holds, Obstacle
from gpuwatch.model.decision import ADDITIONS, REMOVAL_STEPS, REMOVALS, Verb
from gpuwatch.model.verbs import PREPARATIONS, REDUCTIONS

_Case = TypeVar("_Case")


@dataclass(frozen=True, slots=True)
class Question(Generic[_Case]):
    """A rule's function, and the verbs of the steps that it is asked about."""

    ask: Callable[[_Case], Finding]
    verbs: frozenset[Verb]

    def answer(self, case: _Case, verb: Verb) -> Finding | None:
        """What it says of a step of that verb."""
        return self.ask(case) if verb in self.verbs else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row: what is asked about machines, about workloads of a cluster, or about both.

    `obstacle` is what holds a machine back where the rule objects to its removal, as `gpuwatch blocked` shows it; None:
    the objection passes by itself, or is about no machine that runs. `holds` is when it is that obstacle.
    """

    machines: Question[Case] | None = None
    workloads: Question[WorkloadCase] | None = None
    obstacle: Obstacle | None
    holds: Holds = Holds.ALWAYS

    def answer(self, case: Subject) -> Finding | None:
        """What the rule says of a step; None: it is not asked about such steps."""
        if isinstance(case, WorkloadCase):
            return None if self.workloads is None else self.workloads.answer(case, case.step.verb)
        return None if self.machines is None else self.machines.answer(case, case.step.verb)


def _machines(
    verbs: frozenset[Verb],
    ask: Callable[[Case], Finding],
    obstacle: Obstacle | None,
    holds: Holds = Holds.ALWAYS,
) -> Rule:
    """A rule on machines alone."""
    return Rule(machines=Question(ask, verbs), obstacle=obstacle, holds=holds)


def _workloads(verbs: frozenset[Verb], ask: Callable[[WorkloadCase], Finding]) -> Rule:
    """A rule on workloads alone: `gpuwatch blocked` counts machines."""
    return Rule(workloads=Question(ask, verbs), obstacle=None)


def _both(
    verbs: frozenset[Verb],
    of_workloads: frozenset[Verb],
    ask: Callable[[Subject], Finding],
    obstacle: Obstacle | None,
    holds: Holds = Holds.ALWAYS,
) -> Rule:
    """A rule that means the same for machines and for workloads."""
    return Rule(machines=Question(ask, verbs), workloads=Question(ask, of_workloads), obstacle=obstacle, holds=holds)


ALL = frozenset(Verb) - {Verb.HOLD}
# Removals, and the notices that announce them. The end of a member's protection is the first half of its termination:
# every rule for the one applies to the other. So it is with a Kubernetes node's cordon and drain.
_LET_GO = REMOVAL_STEPS | {Verb.NOTICE}
_TERMINATES = frozenset({Verb.TERMINATE, Verb.UNPROTECT}) | PREPARATIONS
# The undoing of our own cordon gives back what was there before: nothing stands against it but that nothing is done.
_UNDO = frozenset({Verb.UNCORDON})
# The cordon of a node with a failing GPU, and the eviction of its pods: neither prepares a removal.
_MOVES = frozenset({Verb.EVICT})
SICK = frozenset({Verb.QUARANTINE}) | _MOVES
# The drain of such a node in Slurm, and its end.
SLURM = frozenset({Verb.SLURM_DRAIN, Verb.SLURM_RESUME})
# The cordon and drain of a node that its cloud is about to take.
_TAKEN = frozenset({Verb.EVACUATE})
# What another autoscaler is told about its own nodes.
_MARKS = frozenset({Verb.MARK, Verb.UNMARK})
MEMBER = frozenset({Verb.PROTECT, Verb.UNPROTECT})
# The steps that are about no node.
GROUPS = frozenset({Verb.GROW, Verb.SHRINK})
NO_NODE = GROUPS | {Verb.LAUNCH}
# The end of a workload's pods; with the notice that announces it; and with its withdrawal.
_RELEASE = frozenset({Verb.RELEASE})
_ENDS_PODS = _RELEASE | {Verb.NOTICE}
_ON_PODS = _ENDS_PODS | {Verb.WITHDRAW}

RULES: dict[str, Rule] = {
    "observe_only": _both(ALL, _ON_PODS, ownership.observe_only, Obstacle.OBSERVE),
    "paused": _both(ALL - _UNDO, _ENDS_PODS, ownership.paused, Obstacle.PAUSED),
    "not_enrolled": _machines(ALL - _UNDO, ownership.not_enrolled, Obstacle.NOT_ENROLLED, Holds.BY_FACTS),
    "other_ledger": _machines(ALL - NO_NODE - _UNDO, ownership.other_ledger, Obstacle.OTHER_LEDGER),
    "protected": _machines(_LET_GO | ADDITIONS | REDUCTIONS | _MOVES | SLURM, ownership.protected, Obstacle.PROTECTED),
    "snoozed": _machines(_LET_GO | _MOVES, ownership.snoozed, Obstacle.SNOOZED),
    "left_alone": _machines(_LET_GO, ownership.left_alone, Obstacle.LEFT_ALONE),
    "unknown_pool": _machines(
        _LET_GO | ADDITIONS | REDUCTIONS | SICK | SLURM | _TAKEN, ownership.unknown_pool, Obstacle.UNKNOWN_POOL
    ),
    "other_cloud": _both(
        _LET_GO | ADDITIONS | REDUCTIONS | SICK | SLURM | _TAKEN,
        _ENDS_PODS,
        ownership.other_cloud,
        Obstacle.OTHER_CLOUD,
    ),
    "residency": _machines(ADDITIONS, launches.residency, None),
    "owned": _machines(_LET_GO | MEMBER | {Verb.START}, ownership.owned, Obstacle.OTHER_SYSTEM, Holds.BY_FACTS),
    # A Kubernetes node is another system's, or its pods and its people keep it.
    "cluster_unknown": _machines(_LET_GO | SICK | _MARKS | _TAKEN, kubernetes.cluster_unknown, Obstacle.UNKNOWN_USE),
    "node_owner": _machines(_LET_GO | SICK | _TAKEN, kubernetes.node_owner, Obstacle.OTHER_SYSTEM),
    "kept_node": _machines(_LET_GO | SICK | _TAKEN, kubernetes.kept_node, Obstacle.PROTECTED),
    "vital_node": _machines(_LET_GO | _MOVES, kubernetes.vital_node, Obstacle.OTHER_SYSTEM),
    "foreign_cordon": _machines(_LET_GO | SICK | _TAKEN, kubernetes.foreign_cordon, Obstacle.PROTECTED),
    # What is not ours differs: a node's cordon, or the machines and pools of a workload.
    "not_ours": Rule(
        machines=Question(kubernetes.not_ours, _UNDO),
        workloads=Question(workload_rules.not_ours, _ENDS_PODS),
        obstacle=None,
    ),
    "no_consent": _workloads(_ENDS_PODS, workload_rules.no_consent),
    "kept": _workloads(_ENDS_PODS, workload_rules.kept),
    "would_lose": _workloads(_ENDS_PODS, workload_rules.would_lose),
    "changing": _workloads(_ENDS_PODS, workload_rules.changing),
    "quarantine": _machines(frozenset({Verb.QUARANTINE}), kubernetes_sick.quarantine, None),
    "eviction": _machines(_MOVES, kubernetes_sick.eviction, None),
    # So is a node of Slurm: Slurm itself powers it, or a job or a person keeps it.
    "slurm_power": _machines(_LET_GO | ADDITIONS, slurm.slurm_power, Obstacle.OTHER_SYSTEM),
    "slurm_node": _machines(_LET_GO, slurm.slurm_node, Obstacle.PROTECTED),
    "slurm_drain": _machines(frozenset({Verb.SLURM_DRAIN}), slurm.slurm_drain, None),
    "slurm_resume": _machines(frozenset({Verb.SLURM_RESUME}), slurm.slurm_resume, None),
    "mark": _machines(_MARKS, kubernetes_sick.mark, None),
    "cloud_notice": _machines(_TAKEN, kubernetes.cloud_notice, None),
    "pods_stay": _machines(_LET_GO, kubernetes.pods_stay, Obstacle.PROTECTED),
    "not_drained": _machines(REMOVALS | {Verb.UNPROTECT}, kubernetes.not_drained, None),
    "reserved_capacity": _machines(_LET_GO, removals.reserved_capacity, Obstacle.PAID_ANYWAY),
    "still_billed": _machines(PREPARATIONS | {Verb.STOP, Verb.NOTICE}, removals.still_billed, Obstacle.STILL_BILLED),
    "unsupported": _machines(_LET_GO, removals.unsupported, Obstacle.CANNOT_STOP),
    "no_power": _machines(_LET_GO, removals.no_power, Obstacle.NO_POWER),
    "may_not_start": _machines(PREPARATIONS | {Verb.STOP, Verb.NOTICE}, removals.may_not_start, Obstacle.MAY_NOT_START),
    "action_not_enabled": _machines(_LET_GO, removals.action_not_enabled, Obstacle.IDLE_REPORT, Holds.BY_FACTS),
    "backtest": _machines(_LET_GO, consent.backtest, Obstacle.NO_BACKTEST),
    "data_loss": _machines(_LET_GO, removals.data_loss, Obstacle.LOCAL_DISKS),
    "group": _machines(_TERMINATES | {Verb.GROW}, groups.group_rules, Obstacle.GROUP_SIZE, Holds.BY_FACTS),
    "group_takes_back": _machines(REDUCTIONS, groups.group_takes_back, None),
    "scale_in_protection": _machines(
        _TERMINATES | {Verb.NOTICE}, groups.scale_in_protection, Obstacle.SCALE_IN_PROTECTION
    ),
    "not_running": _machines(_LET_GO | _MOVES | {Verb.START}, activity.state, None),
    "start_consent": _machines(frozenset({Verb.START}), launches.start_consent, None),
    "not_stopped_by_us": _machines(_LET_GO, activity.not_stopped_by_us, None),
    # Of a node its agent's verdict counts; of a workload the use of all of its pods.
    "unknown": Rule(
        machines=Question(activity.unknown, _LET_GO),
        workloads=Question(workload_rules.unknown, _ENDS_PODS),
        obstacle=Obstacle.UNKNOWN_USE,
        holds=Holds.BY_FACTS,
    ),
    "stale": _both(
        _LET_GO | SICK | SLURM | _MARKS, _ENDS_PODS, activity.stale, Obstacle.DOUBTFUL_VERDICT, Holds.BY_FACTS
    ),
    "busy": Rule(
        machines=Question(activity.busy, _LET_GO),
        workloads=Question(workload_rules.busy, _ENDS_PODS),
        obstacle=Obstacle.OCCUPIED,
        holds=Holds.BY_FACTS,
    ),
    "gpus_missing": _machines(_LET_GO, activity.gpus_missing, Obstacle.GPUS_MISSING, Holds.BY_FACTS),
    "warm_up": _machines(_LET_GO, activity.warm_up, Obstacle.DOUBTFUL_VERDICT, Holds.BY_FACTS),
    "too_soon": _workloads(_ENDS_PODS, workload_rules.too_soon),
    "low_coverage": _machines(_LET_GO | _MOVES, activity.low_coverage, Obstacle.LOW_COVERAGE),
    "mass_idleness": _both(_LET_GO | _MOVES, _ENDS_PODS, activity.mass_idleness, Obstacle.MASS_IDLENESS),
    "notice_rate": _workloads(frozenset({Verb.NOTICE}), workload_rules.notice_rate),
    "too_large": _workloads(_ENDS_PODS, workload_rules.too_large),
    "resting": _workloads(_ENDS_PODS, workload_rules.resting),
    "cooling_down": _machines(_LET_GO | ADDITIONS | REDUCTIONS, rate_limits.cooling_down, Obstacle.GIVEN_UP),
    "often_vetoed": _both(REMOVAL_STEPS | _MOVES, _RELEASE, rate_limits.often_vetoed, None),
    "in_flight": _both(ALL, _ON_PODS, rate_limits.in_flight, None),
    "no_notice": _both(REMOVAL_STEPS, _RELEASE, consent.no_notice, None),
    "not_notified": _both(REMOVAL_STEPS, _RELEASE, consent.not_notified, Obstacle.NOT_NOTIFIED, Holds.WHEN_DUE),
    "approval": _both(REMOVAL_STEPS, _RELEASE, consent.approval, Obstacle.APPROVAL, Holds.WHEN_DUE),
    "min_nodes": _machines(REMOVAL_STEPS, pool_bounds.min_nodes, Obstacle.FLOOR, Holds.BY_FACTS),
    "max_nodes": _machines(ADDITIONS, pool_bounds.max_nodes, None),
    "min_gpus": _machines(REMOVAL_STEPS, pool_bounds.min_gpus, Obstacle.FLOOR, Holds.BY_FACTS),
    "max_gpus": _machines(ADDITIONS, pool_bounds.max_gpus, None),
    # Each has limits of its own: nodes and dollars, or pods and GPUs.
    "blast_radius": Rule(
        machines=Question(rate_limits.blast_radius, REMOVAL_STEPS),
        workloads=Question(workload_rules.blast_radius, _RELEASE),
        obstacle=Obstacle.LIMITS,
        holds=Holds.WHEN_DUE,
    ),
    "launch_unseen": _machines(frozenset({Verb.LAUNCH}), launches.launch_unseen, None),
    "launch_lasts": _machines(ADDITIONS, launches.launch_lasts, None),
    "gives_way": _machines(frozenset({Verb.LAUNCH}), launches.gives_way, None),
    "interruptible": _machines(frozenset({Verb.LAUNCH}), launches.interruptible, None),
    "cloud_silent": _machines(ADDITIONS, launches.cloud_silent, None),
    "growth_rate": _machines(ADDITIONS, rate_limits.growth_rate, None),
    "hourly_cost_limit": _machines(ADDITIONS, rate_limits.hourly_cost_limit, None),
    "month_budget": _machines(ADDITIONS, rate_limits.month_budget, None),
    "owner_limit": _machines(ADDITIONS, owner_limits.owner_limit, None),
}
