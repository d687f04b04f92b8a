"""PURE: the last word before anything is written down or done, on machines and on workloads of a cluster.

Rules of this room: every rule runs on every step that would change something, and every objection is listed. A rule
says in one sentence why it objects or why not, and what would remedy it. No rule knows another. A rule that lacks the
data to decide refuses. A new rule is one function and one row of `rules.py`; its docstring is its section of
docs/guard.md.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from gpuwatch.guard.case import Case, Surge, WorkloadCase, retry_wait_seconds
from gpuwatch.guard.consent import untried_pools
from gpuwatch.guard.growth import another_may_pass, instead, largest
from gpuwatch.guard.mass_idleness import Burst, Bursts, burst, find_bursts
from gpuwatch.guard.ownership import KEEPS
from gpuwatch.guard.rules import GROUPS, MEMBER, NO_NODE, RULES, SICK, SLURM, Rule
from gpuwatch.guard.settings import Limits, Rulebook
from gpuwatch.model.decision import (
    ADDITIONS,
    REMOVAL_STEPS,
    Answer,
    Decision,
    Observation,
    Reason,
    Review,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.fleet import Node
from gpuwatch.model.kubernetes import is_workload
from gpuwatch.model.proposal import changing
from gpuwatch.model.verbs import REDUCTIONS
from gpuwatch.policies.capacity import pool_of_launch
from gpuwatch.policies.kubernetes.idle_pods import WorkloadStep
from gpuwatch.policies.kubernetes.workload_use import WorkloadUse
from gpuwatch.policies.spot import back

__all__ = [
    "RULES",
    "Burst",
    "Bursts",
    "Case",
    "Limits",
    "Rule",
    "Rulebook",
    "WorkloadCase",
    "another_may_pass",
    "burst",
    "case_of",
    "find_bursts",
    "judge",
    "obeys_pauses",
    "retry_wait_seconds",
    "review",
    "untried_pools",
    "workload_case",
]

_COUNTED = REMOVAL_STEPS | ADDITIONS | REDUCTIONS | SICK | SLURM
# What passes by itself: a notice follows once spot works, and limits and floors let the node go then.
_PASSES_WITH_SPOT = frozenset({"no_notice", "not_drained", "min_nodes", "min_gpus", "blast_radius", "in_flight"})
_GOES = REMOVAL_STEPS | {Verb.RELEASE}


def obeys_pauses(verb: Verb) -> bool:
    """Whether a person's pause refuses it."""
    asked = RULES["paused"].machines
    return asked is not None and verb in asked.verbs and verb not in KEEPS


def judge(case: Case | WorkloadCase) -> Review:
    """Every rule's answer on one step."""
    pool, step = case.pools[0], case.step
    if isinstance(case, Case) and _is_gone(case):
        gone = Answer(rule="gone", refused=True, sentence="The cloud does not list it.", remedy="Nothing to do.")
        return Review(pool=pool, step=step, answers=(gone,))
    answers = []
    for name, rule in RULES.items():
        if (found := rule.answer(case)) is not None:
            refused, sentence, remedy = found
            answers.append(Answer(rule=name, refused=refused, sentence=sentence, remedy=remedy))
    return Review(pool=pool, step=step, answers=tuple(answers))


def _is_gone(case: Case) -> bool:
    """Whether the cloud does not list what the step is about."""
    verb = case.step.verb
    return (case.node is None and verb not in NO_NODE) or (case.group is None and verb in GROUPS | MEMBER)


def case_of(
    step: Step,
    observation: Observation,
    pool: str,
    rules: Rulebook,
    *,
    frozen: Bursts | None,
    granted: tuple[Step, ...] = (),
) -> Case:
    """The case of a step, with its node and group as the observation has them."""
    node = None if step.verb in NO_NODE else observation.fleet.find(step.node_id)
    group_id = step.node_id if step.verb in GROUPS else None if node is None else node.group
    return Case(
        step=step,
        node=node,
        group=None if group_id is None else observation.fleet.group(group_id),
        pool=pool,
        pool_rules=rules.pool(pool),
        limits=rules.limits,
        observation=observation,
        enforce=rules.enforce,
        burst=None if frozen is None else frozen.on(pool, node),
        granted=granted,
        unknown_pool=rules.doubt(pool),
    )


def workload_case(
    step: WorkloadStep, observation: Observation, rules: Rulebook, *, granted: tuple[WorkloadUse, ...] = ()
) -> WorkloadCase:
    """The case of a step about a workload; `granted` are the workloads that end before it."""
    return WorkloadCase(
        step=step.step,
        use=step.use,
        observation=observation,
        rulebook=rules,
        bursts=find_bursts(observation, rules.limits),
        granted=granted,
    )


def review(
    observation: Observation,
    decisions: Sequence[Decision],
    rules: Rulebook,
    workloads: Sequence[WorkloadStep] = (),
) -> tuple[Review, ...]:
    """The guard's answers on every step that would change something; what it allows counts against the next.

    What came to nothing lately has its turn last: a machine or a workload that is always vetoed, or refused, must not
    take the place of the others within the limits. Of a growth that is too large the part that is not too large is
    reviewed; what a pool may not have from one place is tried from the others.
    """
    in_vain = _in_vain(observation)
    changes = any(changing(each.steps) for each in decisions) or any(each.verb is not Verb.HOLD for each in workloads)
    frozen = find_bursts(observation, rules.limits) if changes else Bursts(by_group={})
    return (
        *_on_machines(observation, decisions, rules, in_vain, frozen),
        *_on_workloads(observation, workloads, rules, in_vain, frozen),
    )


def _on_machines(
    observation: Observation, decisions: Sequence[Decision], rules: Rulebook, in_vain: Counter[str], frozen: Bursts
) -> list[Review]:
    """The reviews of the steps of all pools."""
    granted: list[Step] = []
    changes = [(each.pool, step) for each in decisions for step in changing(each.steps)]
    decided = {each.pool: each for each in decisions}
    able: dict[str, tuple[list[Node], str]] = {}  # the nodes in whose place spot may be launched, by pool

    def surge_of(step: Step, pool: str) -> Surge | None:
        decision = decided[pool]
        if step.reason.code != back.CODE or step.verb is not Verb.LAUNCH or decision.wanted is None:
            return None
        if pool not in able:
            able[pool] = _give_way(observation, decision, rules, frozen)
        nodes, against = able[pool]
        sizes = rules.pool(pool).sizes(observation.fleet)
        mine = [each for each in granted if each.reason.code == back.CODE and each.verb is Verb.LAUNCH]
        came = sizes.total(observation.fleet, [each for each in mine if pool_of_launch(each) == pool])
        left = back.surge_left(observation, pool, decision.wanted, rules.pool(pool), nodes)
        return Surge(left=left - came, against=against)

    def judged(step: Step, *, pool: str) -> Review:
        others = [each for each in granted if each.verb is not Verb.GROW or each.node_id != step.node_id]
        case = case_of(step, observation, pool, rules, frozen=frozen, granted=tuple(others))
        case = replace(case, wanted=decided[pool].wanted, surge=surge_of(step, pool))
        result = largest(case, judge)
        if step.verb in _COUNTED and result.allowed:
            granted[:] = [*others, result.step]
        return result

    changes.sort(key=lambda each: in_vain[each[1].node_id] if each[1].verb in REMOVAL_STEPS else 0)
    reviews = [judged(step, pool=pool) for pool, step in changes]
    for decision in decisions:
        found = [each for each in reviews if each.pool == decision.pool]
        judged_there = partial(judged, pool=decision.pool)
        more = instead(observation, decision, found, rules.pool(decision.pool), judged_there)
        new = {each.step.node_id: each for each in more}
        reviews = [new.pop(each.step.node_id, each) for each in reviews]
        reviews += new.values()
    return reviews


def _give_way(observation: Observation, decision: Decision, rules: Rulebook, frozen: Bursts) -> tuple[list[Node], str]:
    """The nodes on demand that no rule keeps once spot works in their places, and why the first other one is kept."""
    pool, ledger = rules.pool(decision.pool), observation.ledger
    able, against = list[Node](), ""
    for node in back.give_way(observation, decision.pool, pool, decision.steps):
        consents = back.against(node, pool) is None
        verb = Verb.TERMINATE if pool.idle.action == "terminate" else Verb.STOP
        reason = Reason(code=back.CODE if consents else "idle", sentence="Spot works in its place.")
        step = Step(node_id=node.id, verb=verb, reason=reason, change="")
        answers = judge(case_of(step, observation, decision.pool, rules, frozen=frozen)).refusals
        passes = _PASSES_WITH_SPOT | (frozenset() if ledger.notice(node.id) else {"not_notified"})
        kept = [each for each in answers if each.rule not in passes]
        if not kept:
            able.append(node)
        against = against or (f"{node.name} stays: {kept[0].sentence}" if kept else "")
    return able, against


def _on_workloads(
    observation: Observation, steps: Sequence[WorkloadStep], rules: Rulebook, in_vain: Counter[str], bursts: Bursts
) -> list[Review]:
    """The reviews of the steps about workloads."""
    changes = sorted((each for each in steps if each.verb is not Verb.HOLD), key=lambda each: in_vain[each.use.id])
    reviews: list[Review] = []
    granted: tuple[WorkloadUse, ...] = ()
    notices = 0
    for each in changes:
        case = WorkloadCase(
            step=each.step,
            use=each.use,
            observation=observation,
            rulebook=rules,
            bursts=bursts,
            granted=granted,
            notices=notices,
        )
        reviews.append(judge(case))
        if reviews[-1].allowed:
            granted = (*granted, each.use) if each.verb is Verb.RELEASE else granted
            notices += each.verb is Verb.NOTICE
    return reviews


def _in_vain(observation: Observation) -> Counter[str]:
    """How often within the hour a removal, or the end of a workload's pods, was vetoed or not carried out.

    Of workloads every step counts that was not carried out: a notice that cannot be written takes others' place, too.
    """
    ledger, hour_ago = observation.ledger, observation.now - timedelta(hours=1)
    found = Counter(
        done.node_id for done in ledger.ended_actions(_GOES) if done.status is Status.CANCELLED and done.at > hour_ago
    )
    for entry in ledger.open_intents:
        if entry.intent.verb in REMOVAL_STEPS or is_workload(entry.intent.node_id):
            found[entry.intent.node_id] += entry.attempts
    return found
