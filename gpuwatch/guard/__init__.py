"""PURE: the last word before anything is written down or done.

Rules of this room: every rule runs on every step that would change something, and every objection is listed. A rule
says in one sentence why it objects or why not, and what would remedy it. No rule knows another. A rule that lacks the
data to decide refuses. A new rule is one function and one line in RULES; its docstring is its section of docs/guard.md.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

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
)
from gpuwatch.guard.case import Case, Rule, retry_wait_seconds
from gpuwatch.guard.consent import untried
from gpuwatch.guard.growth import another_may_pass, instead, largest
from gpuwatch.guard.mass_idleness import Burst, burst
from gpuwatch.guard.rate_limits import month_budget
from gpuwatch.guard.settings import Limits, Rulebook
from gpuwatch.model.decision import (
    ADDITIONS,
    LETS_GO,
    REMOVALS,
    Answer,
    Decision,
    Observation,
    Review,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.proposal import changing
from gpuwatch.model.verbs import GIVES_BACK, PREPARES

__all__ = [
    "RULES",
    "Burst",
    "Case",
    "Limits",
    "Rulebook",
    "another_may_pass",
    "burst",
    "case_of",
    "judge",
    "obeys_pauses",
    "retry_wait_seconds",
    "review",
    "untried",
]

_ALL = frozenset(Verb) - {Verb.HOLD}
# Removals, and the notices that announce them. The end of a member's protection is the first half of its termination:
# every rule for the one applies to the other. So it is with a Kubernetes node's cordon and drain.
_LET_GO = LETS_GO | {Verb.NOTICE}
_TERMINATES = frozenset({Verb.TERMINATE, Verb.UNPROTECT}) | PREPARES
# The undoing of our own cordon gives back what was there before: nothing stands against it but that nothing is done.
_UNDO = frozenset({Verb.UNCORDON})
# The cordon of a node with a failing GPU, and the eviction of its pods: neither prepares a removal.
_MOVES = frozenset({Verb.EVICT})
_SICK = frozenset({Verb.QUARANTINE}) | _MOVES
# The drain of such a node in Slurm, and its end.
_SLURM = frozenset({Verb.SLURM_DRAIN, Verb.SLURM_RESUME})
# The cordon and drain of a node that its cloud is about to take.
_TAKEN = frozenset({Verb.EVACUATE})
# What another autoscaler is told about its own nodes.
_MARKS = frozenset({Verb.MARK, Verb.UNMARK})
_MEMBER = frozenset({Verb.PROTECT, Verb.UNPROTECT})
# The steps that are about no node.
_GROUPS = frozenset({Verb.GROW, Verb.SHRINK})
_NO_NODE = _GROUPS | {Verb.LAUNCH}

RULES: dict[str, tuple[frozenset[Verb], Rule]] = {
    "observe_only": (_ALL, ownership.observe_only),
    "paused": (_ALL - _UNDO, ownership.paused),
    "not_enrolled": (_ALL - _UNDO, ownership.not_enrolled),
    "other_ledger": (_ALL - _NO_NODE - _UNDO, ownership.other_ledger),
    "protected": (_LET_GO | ADDITIONS | GIVES_BACK | _MOVES | _SLURM, ownership.protected),
    "snoozed": (_LET_GO | _MOVES, ownership.snoozed),
    "unknown_pool": (_LET_GO | ADDITIONS | GIVES_BACK | _SICK | _SLURM | _TAKEN, ownership.unknown_pool),
    "other_cloud": (_LET_GO | ADDITIONS | GIVES_BACK | _SICK | _SLURM | _TAKEN, ownership.other_cloud),
    "residency": (ADDITIONS, launches.residency),
    "owned": (_LET_GO | _MEMBER | {Verb.START}, ownership.owned),
    "cluster_unknown": (_LET_GO | _SICK | _MARKS | _TAKEN, kubernetes.cluster_unknown),
    "node_owner": (_LET_GO | _SICK | _TAKEN, kubernetes.node_owner),
    "kept_node": (_LET_GO | _SICK | _TAKEN, kubernetes.kept_node),
    "foreign_cordon": (_LET_GO | _SICK | _TAKEN, kubernetes.foreign_cordon),
    "not_ours": (_UNDO, kubernetes.not_ours),
    "quarantine": (frozenset({Verb.QUARANTINE}), kubernetes_sick.quarantine),
    "eviction": (_MOVES, kubernetes_sick.eviction),
    "slurm_power": (_LET_GO | ADDITIONS, slurm.slurm_power),
    "slurm_node": (_LET_GO, slurm.slurm_node),
    "slurm_drain": (frozenset({Verb.SLURM_DRAIN}), slurm.slurm_drain),
    "slurm_resume": (frozenset({Verb.SLURM_RESUME}), slurm.slurm_resume),
    "mark": (_MARKS, kubernetes_sick.mark),
    "cloud_notice": (_TAKEN, kubernetes.cloud_notice),
    "pods_stay": (_LET_GO, kubernetes.pods_stay),
    "not_drained": (REMOVALS | {Verb.UNPROTECT}, kubernetes.not_drained),
    "reserved_capacity": (_LET_GO, removals.reserved_capacity),
    "still_billed": (PREPARES | {Verb.STOP, Verb.NOTICE}, removals.still_billed),
    "unsupported": (_LET_GO, removals.unsupported),
    "action_not_enabled": (_LET_GO, removals.action_not_enabled),
    "backtest": (_LET_GO, consent.backtest),
    "data_loss": (_LET_GO, removals.data_loss),
    "group": (_TERMINATES | {Verb.GROW}, groups.group_rules),
    "group_takes_back": (GIVES_BACK, groups.group_takes_back),
    "scale_in_protection": (_TERMINATES | {Verb.NOTICE}, groups.scale_in_protection),
    "not_running": (_LET_GO | _MOVES | {Verb.START}, activity.state),
    "start_consent": (frozenset({Verb.START}), launches.start_consent),
    "not_stopped_by_us": (_LET_GO, activity.not_stopped_by_us),
    "unknown": (_LET_GO, activity.unknown),
    "stale": (_LET_GO | _SICK | _SLURM | _MARKS, activity.stale),
    "busy": (_LET_GO, activity.busy),
    "gpus_missing": (_LET_GO, activity.gpus_missing),
    "warm_up": (_LET_GO, activity.warm_up),
    "low_coverage": (_LET_GO | _MOVES, activity.low_coverage),
    "mass_idleness": (_LET_GO | _MOVES, activity.mass_idleness),
    "cooling_down": (_LET_GO | ADDITIONS | GIVES_BACK, rate_limits.cooling_down),
    "in_flight": (_ALL, rate_limits.in_flight),
    "no_notice": (LETS_GO, consent.no_notice),
    "not_notified": (LETS_GO, consent.not_notified),
    "approval": (LETS_GO, consent.approval),
    "min_nodes": (LETS_GO, pool_bounds.min_nodes),
    "max_nodes": (ADDITIONS, pool_bounds.max_nodes),
    "min_gpus": (LETS_GO, pool_bounds.min_gpus),
    "max_gpus": (ADDITIONS, pool_bounds.max_gpus),
    "blast_radius": (LETS_GO, rate_limits.blast_radius),
    "launch_unseen": (frozenset({Verb.LAUNCH}), launches.launch_unseen),
    "interruptible": (frozenset({Verb.LAUNCH}), launches.interruptible),
    "cloud_silent": (ADDITIONS, launches.cloud_silent),
    "growth_rate": (ADDITIONS, rate_limits.growth_rate),
    "hourly_cost_limit": (ADDITIONS, rate_limits.hourly_cost_limit),
    "month_budget": (ADDITIONS, month_budget),
    "owner_limit": (ADDITIONS, owner_limits.owner_limit),
}


def obeys_pauses(verb: Verb) -> bool:
    """Whether a pause refuses it."""
    return verb in RULES["paused"][0]


def judge(case: Case) -> Review:
    """Every rule's answer on one step."""
    verb = case.step.verb
    if (case.node is None and verb not in _NO_NODE) or (case.group is None and verb in _GROUPS | _MEMBER):
        gone = Answer(rule="gone", refused=True, sentence="The cloud does not list it.", remedy="Nothing to do.")
        return Review(pool=case.pool, step=case.step, answers=(gone,))
    answers = []
    for name, (verbs, rule) in RULES.items():
        if verb in verbs:
            refused, sentence, remedy = rule(case)
            answers.append(Answer(rule=name, refused=refused, sentence=sentence, remedy=remedy))
    return Review(pool=case.pool, step=case.step, answers=tuple(answers))


def case_of(
    step: Step,
    observation: Observation,
    pool: str,
    rules: Rulebook,
    *,
    frozen: Burst | None,
    granted: tuple[Step, ...] = (),
) -> Case:
    """The case of a step, with its node and group as the observation has them."""
    node = None if step.verb in _NO_NODE else observation.fleet.find(step.node_id)
    group_id = step.node_id if step.verb in _GROUPS else None if node is None else node.group
    return Case(
        step=step,
        node=node,
        group=None if group_id is None else observation.fleet.group(group_id),
        pool=pool,
        pool_rules=rules.pool(pool),
        limits=rules.limits,
        observation=observation,
        enforce=rules.enforce,
        burst=frozen,
        granted=granted,
        unknown_pool=rules.doubt(pool),
    )


def review(observation: Observation, decisions: Sequence[Decision], rules: Rulebook) -> tuple[Review, ...]:
    """The guard's answers on every step that would change something; what it allows counts against the next.

    Removals that came to nothing lately have their turn last: a machine that is always vetoed, or refused, must not
    take the place of the others within the limits. Of a growth that is too large the part that is not too large is
    reviewed; what a pool may not have from one place is tried from the others.
    """
    granted: list[Step] = []
    changes = [(each.pool, step) for each in decisions for step in changing(each.steps)]
    frozen = {pool: burst(observation, pool, rules.limits) for pool in {pool: None for pool, _ in changes}}
    in_vain = _in_vain(observation)

    def judged(step: Step, *, pool: str) -> Review:
        others = [each for each in granted if each.verb is not Verb.GROW or each.node_id != step.node_id]
        case = case_of(step, observation, pool, rules, frozen=frozen.get(pool), granted=tuple(others))
        result = largest(case, judge)
        if step.verb in LETS_GO | ADDITIONS | GIVES_BACK | _SICK | _SLURM and result.allowed:
            granted[:] = [*others, result.step]
        return result

    changes.sort(key=lambda each: in_vain[each[1].node_id] if each[1].verb in LETS_GO else 0)
    reviews = [judged(step, pool=pool) for pool, step in changes]
    for decision in decisions:
        found = [each for each in reviews if each.pool == decision.pool]
        judged_there = partial(judged, pool=decision.pool)
        more = instead(observation, decision, found, rules.pool(decision.pool), judged_there)
        new = {each.step.node_id: each for each in more}
        reviews = [new.pop(each.step.node_id, each) for each in reviews]
        reviews += new.values()
    return tuple(reviews)


def _in_vain(observation: Observation) -> Counter[str]:
    """How often within the hour a removal of a node was vetoed, or the cloud did not carry it out."""
    ledger, hour_ago = observation.ledger, observation.now - timedelta(hours=1)
    found = Counter(
        done.node_id for done in ledger.ended(LETS_GO) if done.status is Status.CANCELLED and done.at > hour_ago
    )
    for entry in ledger.open_intents:
        if entry.intent.verb in LETS_GO:
            found[entry.intent.node_id] += entry.attempts
    return found
