"""Workloads of a cluster as `status`, `explain`, the page and the API show them: what becomes of each, when and why."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from gpuwatch.controller.context import Round, unreached_in, unreached_words
from gpuwatch.controller.pod_rows import cluster_named
from gpuwatch.guard import Rulebook, judge, workload_case
from gpuwatch.ledger import Entry, Ledger, PastRound
from gpuwatch.model.decision import Answer, Observation, Review, Verb, reason_with_refusals
from gpuwatch.model.nodes_page import WorkloadRow
from gpuwatch.model.orders import Snooze
from gpuwatch.policies.kubernetes import idle_pods
from gpuwatch.policies.kubernetes.idle_pods import HOW, WorkloadStep
from gpuwatch.policies.kubernetes.pod_use import TOLD_AFTER_SECONDS, WITHOUT_USE
from gpuwatch.policies.kubernetes.workload_words import id_of


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPage:
    """One workload explained. `if_ended_now` has every guard rule's answer had its pods been ended in that round."""

    row: WorkloadRow
    at: datetime
    pods: tuple[str, ...]
    if_ended_now: tuple[Answer, ...]
    history: tuple[Entry, ...]


def workload_rows(done: Round, rules: Rulebook) -> tuple[WorkloadRow, ...]:
    """Those of a round, the most expensive first."""
    reviews = {review.step.node_id: review for review in done.reviews}
    found = (
        _row(step, reviews.get(step.use.id), done, rules)
        for step in done.workloads
        if _is_worth_a_row(step, done.observation, rules)
    )
    return tuple(sorted(found, key=lambda row: (-(row.usd_per_hour or Decimal(0)), row.id)))


def explain_workload(done: Round | PastRound, rules: Rulebook, ledger: Ledger, name: str) -> WorkloadPage | None:
    """The workload of that id, of that namespace/kind/name, or of that unique name; None: the round lacks it."""
    seen = done.observation
    steps = idle_pods.steps(seen, rules.idle_pods(seen.fleet.pools))
    step = _is_named(steps, name)
    if step is None:
        return None
    review = next((each for each in done.reviews if each.step.node_id == step.use.id), None)
    return WorkloadPage(
        row=_row(step, review, done, rules),
        at=seen.now,
        pods=tuple(f"{each.pod} on {each.node.name}: {each.state.value}" for each in step.use.pods),
        if_ended_now=judge(workload_case(_as_end(step), seen, rules)).answers,
        history=ledger.trail.entries_about(step.use.id, seen.now),
    )


def _is_named(steps: tuple[WorkloadStep, ...], name: str) -> WorkloadStep | None:
    """An id is one's alone; a name may be of several, and then nobody knows which is meant."""
    found = id_of(name, (each.use.id for each in steps))
    return next((each for each in steps if each.use.id == found), None)


def _as_end(step: WorkloadStep) -> WorkloadStep:
    """The step, had it been the end of its pods."""
    arguments = {**step.arguments, HOW: idle_pods.how(step.use)}
    return WorkloadStep(use=step.use, verb=Verb.RELEASE, reason=step.reason, change=step.change, arguments=arguments)


def _is_worth_a_row(step: WorkloadStep, seen: Observation, rules: Rulebook) -> bool:
    """Whether it is worth a row: where a pool only reports, the table of pods says all there is to say."""
    use = step.use
    if step.verb is not Verb.HOLD or seen.ledger.notice(use.id) is not None or _snooze(use.id, seen) is not None:
        return True
    acts = any(rules.pool(pool).kubernetes.pods.action != "report" for pool in use.pools)
    return acts and use.state in WITHOUT_USE and use.held_seconds >= TOLD_AFTER_SECONDS


def _row(step: WorkloadStep, review: Review | None, done: Round | PastRound, rules: Rulebook) -> WorkloadRow:
    use, refusals = step.use, () if review is None else review.refusals
    seen, (late, when) = done.observation, unreached_in(done)
    its, notice, why = use.workload, seen.ledger.notice(use.id), reason_with_refusals(step.step, refusals)
    unreached = None if refusals else unreached_words(step.step, late, when)
    return WorkloadRow(
        id=use.id,
        cluster=cluster_named(seen, use.pods[0].node),
        namespace=its.namespace,
        kind=its.kind,
        name=its.name,
        pool=use.pool,
        nodes=tuple(dict.fromkeys(each.node.id for each in use.pods)),
        pods=len(use.all_pods),
        gpus=use.gpus,
        activity=use.state,
        held_seconds=use.held_seconds,
        action=Verb.HOLD if refusals or unreached else step.verb,
        why=why if unreached is None else f"{why} {unreached}",
        change=step.change,
        how=None if step.reason.code in {"no_consent", "static_pod"} else idle_pods.how(use) or None,
        owner=its.owner,
        usd_per_hour=use.usd_per_hour,
        notified_at=None if notice is None else notice.at,
        ends_at=_ends_at(step, seen, rules),
        refused_by=tuple(answer.rule for answer in refusals),
        snooze=_snooze(use.id, seen),
        unreached=unreached,
    )


def _snooze(workload_id: str, seen: Observation) -> Snooze | None:
    """The order that keeps it."""
    return next((each for each in seen.ledger.snoozes if each.node_id == workload_id and each.until > seen.now), None)


def _ends_at(step: WorkloadStep, seen: Observation, rules: Rulebook) -> datetime | None:
    """The earliest time of the end of its pods, as things are."""
    notice = seen.ledger.notice(step.use.id)
    grace = idle_pods.grace_seconds(step.use, rules.idle_pods(step.use.pools))
    if step.verb is Verb.NOTICE:
        return seen.now + timedelta(seconds=grace)
    if step.verb is Verb.RELEASE:
        return seen.now
    if step.reason.code != "grace" or notice is None:
        return None
    left = idle_pods.left_seconds(step.use, notice, grace, seen.now)
    return None if left == float("inf") else seen.now + timedelta(seconds=max(0.0, left))
