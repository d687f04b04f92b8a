"""One node of a round as people see it: the row of `gpuwatch status`, of the page, of the API and of the demo."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Self

from gpuwatch.controller.context import Round, unreached_in, unreached_words
from gpuwatch.controller.pod_rows import ClusterRow, PodRow, cluster_row, pod_rows
from gpuwatch.controller.workload_rows import WorkloadRow, workload_rows
from gpuwatch.guard import Rulebook
from gpuwatch.guard.consent import wants_approval
from gpuwatch.ledger import PastRound
from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVALS, Answer, LedgerView, Observation, Step, Verb, reason_with_refusals
from gpuwatch.model.fleet import GpuVerdict, Node, NodeState
from gpuwatch.model.health import Health
from gpuwatch.model.orders import ITSELF
from gpuwatch.model.sight import Silence
from gpuwatch.money.accounting.scope import uncounted_nodes
from gpuwatch.policies import idle, undone
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout.answers import regret_sentences

_WAITING = frozenset({"waiting", "not_running"})
_REMOVES = frozenset(verb.value for verb in REMOVALS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of a node. Ratios are means of the last minutes. Without a verdict only its number is known."""

    index: int | None
    activity: State
    health: Health | None = None
    utilization_ratio: float | None = None
    memory_used_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAction:
    """What happens to the node next, if nothing changes.

    `at` is the earliest time; the round's own time if it is due already. `removal` is what a notice announces, and
    `removal_at` the earliest time of the removal that the action leads to, or is. `refused_by` are the guard rules that
    block it; for an action that is not due yet, those that are certain to block it then.
    """

    verb: Verb
    at: datetime
    removal_at: datetime | None = None
    removal: Verb | None = None
    refused_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredApproval:
    """An operator's approval that the pool requires. `notice` is the notice's key; `who` is null until it is given."""

    notice: str
    who: str | None = None
    at: datetime | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRow:
    """Who stopped a node, when and why. `by` is null unless it is proved that gpuwatch did: then nothing else is known.

    `approved_by` is who approved the stop, where the pool requires it; `still_billed` why the cloud goes on billing the
    node by the hour.
    """

    by: str | None = None
    at: datetime | None = None
    why: str | None = None
    approved_by: str | None = None
    still_billed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node at a glance.

    `action` is what the round does with it: `hold` also where the guard refuses, or where the round did not come to
    what the guard had allowed: then `unreached` says why. `why` contains that, and the guard's objections.
    `activity` is null while the node does not run. `notified_at` is the time of the notice in force. `approval` is null
    if the pool requires none, or there is no notice to approve yet. `stopped` is null unless the node is stopped.
    `cloud` is the cloud's name in the settings; null where they name none. `price_as_of` and `price_source` are the day
    and the source of `usd_per_hour`, which is in no sum of a `foreign` node: it is not enrolled, and `cost.scope` is
    `fleet`.
    """

    id: str
    name: str
    pool: str
    instance_type: str
    region: str
    zone: str
    capacity_type: str
    state: NodeState
    enrolled: bool
    gpu_count: int | None
    gpus: tuple[Gpu, ...]
    action: Verb
    why: str
    owner: str | None = None
    activity: State | None = None
    held_seconds: float | None = None
    doubt: str | None = None
    usd_per_hour: Decimal | None = None
    notified_at: datetime | None = None
    next: NextAction | None = None
    approval: RequiredApproval | None = None
    stopped: StopRow | None = None
    cloud: str | None = None
    price_as_of: date | None = None
    price_source: str | None = None
    unreached: str | None = None
    foreign: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesPage:
    """Nodes of one round; `total` is how many match the query. `silent` are the places that gave no answer.

    `kubernetes` is the cluster, null without one; `pods` are those of it that have held GPUs without use for an hour,
    `workloads` those that may lose their pods for it. `regrets` says of each pool how many stops people took back.
    """

    at: datetime
    total: int
    nodes: tuple[NodeRow, ...]
    silent: tuple[Silence, ...] = ()
    kubernetes: ClusterRow | None = None
    pods: tuple[PodRow, ...] = ()
    workloads: tuple[WorkloadRow, ...] = ()
    regrets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """A limit of the account in one region, in the cloud's words; `used` and `left` are null if not known."""

    name: str
    cloud: str | None
    region: str
    unit: str
    limit: float
    used: float | None
    left: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusPage(NodesPage):
    """Nodes of one round; `total` is how many were asked for. `quotas` are the account's limits, where known.

    The API answers the same without `quotas`: the controller does not ask for them.
    """

    quotas: tuple[QuotaRow, ...] = ()

    @classmethod
    def with_quotas(cls, page: NodesPage, quotas: tuple[QuotaRow, ...]) -> Self:
        """The page with the account's limits."""
        return cls(
            at=page.at,
            total=page.total,
            nodes=page.nodes,
            silent=page.silent,
            kubernetes=page.kubernetes,
            pods=page.pods,
            workloads=page.workloads,
            quotas=quotas,
        )


def nodes_page(done: Round, rules: Rulebook) -> NodesPage:
    """All nodes, as `gpuwatch status` lists them."""
    rows = node_rows(done, rules)
    seen = done.observation
    return NodesPage(
        at=seen.now,
        total=len(rows),
        nodes=rows,
        silent=seen.fleet.silent,
        kubernetes=cluster_row(seen),
        pods=pod_rows(seen),
        workloads=workload_rows(done, rules),
        regrets=tuple(regret_sentences(seen)),
    )


def node_rows(done: Round | PastRound, rules: Rulebook) -> tuple[NodeRow, ...]:
    """One row for each node, in the cloud's order."""
    steps = {step.node_id: step for decision in done.decisions for step in decision.steps}
    refusals = {review.step.node_id: review.refusals for review in done.reviews}
    seen, (late, when) = done.observation, unreached_in(done)
    rows = [
        _row(node, steps[node.id], refusals.get(node.id, ()), seen, rules, unreached_words(steps[node.id], late, when))
        for node in seen.fleet.nodes
    ]
    foreign = uncounted_nodes(seen.fleet)
    return tuple(replace(row, foreign=True) if row.id in foreign else row for row in rows)


def _row(
    node: Node, step: Step, refusals: Sequence[Answer], seen: Observation, rules: Rulebook, late: str | None
) -> NodeRow:
    running, activity = node.state is NodeState.RUNNING, node.activity
    billed = running or node.billed_though_stopped
    price, notice = seen.price(node) if billed else None, seen.ledger.notice(node.id)
    known = running and activity.state is not State.UNKNOWN
    late = None if refusals else late
    why = reason_with_refusals(step, refusals)
    return NodeRow(
        id=node.id,
        name=node.name,
        pool=node.pool,
        instance_type=node.instance_type,
        cloud=node.cloud or None,
        region=node.region,
        zone=node.zone,
        capacity_type=node.capacity_type.value,
        state=node.state,
        enrolled=node.enrolled,
        gpu_count=node.gpu_count,
        gpus=_gpus(node),
        action=Verb.HOLD if refusals or late else step.verb,
        why=why if late is None else f"{why} {late}",
        owner=node.owner,
        activity=activity.state if running else None,
        held_seconds=activity.held_seconds if known else None,
        doubt=activity.doubt if running else None,
        usd_per_hour=None if price is None else price.usd_per_hour,
        price_as_of=None if price is None else price.as_of,
        price_source=None if price is None else price.source,
        notified_at=None if notice is None else notice.at,
        next=_next_action(node, step, refusals, seen, rules, late=late is not None),
        approval=required_approval(node, seen.ledger, rules),
        stopped=_stop_row(node, seen.ledger),
        unreached=late,
    )


def _stop_row(node: Node, ledger: LedgerView) -> StopRow | None:
    """Who stopped it; None: it is not stopped."""
    if node.state is not NodeState.STOPPED:
        return None
    found = ledger.own_stop(node)
    if found is None:
        return StopRow(still_billed=node.still_billed)
    return StopRow(
        by=ITSELF,
        at=found.at,
        why=found.why or None,
        approved_by=found.approved_by,
        still_billed=node.still_billed,
    )


def _gpus(node: Node) -> tuple[Gpu, ...]:
    """A running node's GPUs as its agent reports them; without a report, as many unknown ones as its type has."""
    if node.state is not NodeState.RUNNING:
        return ()
    reported = () if node.verdict is None else tuple(map(_gpu, node.verdict.gpus))
    return reported or tuple(Gpu(index=number, activity=State.UNKNOWN) for number in range(node.known_gpus))


def _gpu(verdict: GpuVerdict) -> Gpu:
    return Gpu(
        index=verdict.index,
        activity=verdict.activity.state,
        health=None if verdict.health is None else verdict.health.state,
        utilization_ratio=None if verdict.use is None else verdict.use.utilization_ratio,
        memory_used_ratio=None if verdict.use is None else verdict.use.memory_used_ratio,
    )


def required_approval(node: Node, ledger: LedgerView, rules: Rulebook) -> RequiredApproval | None:
    """The approval that the node's removal requires. None: it requires none, or there is no notice to approve yet."""
    notice, approval = ledger.notice(node.id), ledger.approval(node.id)
    if notice is None or not wants_approval(rules.pool(node.pool), notice):
        return None
    if approval is None:
        return RequiredApproval(notice=notice.key)
    return RequiredApproval(notice=notice.key, who=approval.who, at=approval.at, reason=approval.reason)


def _next_action(
    node: Node, step: Step, refusals: Sequence[Answer], observation: Observation, rulebook: Rulebook, *, late: bool
) -> NextAction | None:
    """What happens next. None: nothing, or its time is not known. `late`: it had no turn, so the next round is next."""
    rules, now = rulebook.pool(node.pool), observation.now
    grace = timedelta(seconds=idle.grace_seconds(node, observation, rules.idle, rules.office))
    if step.verb is not Verb.HOLD:
        at = now + timedelta(seconds=observation.interval_seconds) if late else now
        refused = tuple(answer.rule for answer in refusals)
        if step.verb is not Verb.NOTICE:
            return NextAction(verb=step.verb, at=at, refused_by=refused)
        grace, removal = _announced_removal(step, grace)
        return NextAction(verb=step.verb, at=at, removal_at=at + grace, removal=removal, refused_by=refused)
    if not node.enrolled or node.protected is not None or node.snoozed is not None:
        return None
    choice, wait = _choice(node, step, observation, rules.idle)
    if choice not in _REMOVES:
        return None
    notice = observation.ledger.notice(node.id)
    if step.reason.code == "grace" and notice is not None:
        at = max(now, notice.at + grace if notice.promise is None else notice.promise.due(notice.at))
        required = required_approval(node, observation.ledger, rulebook)
        waits = ("approval",) if required is not None and required.who is None else ()
        refused = (*_certain_refusals(node, observation, rulebook, at), *waits)
        return NextAction(verb=Verb(choice), at=at, removal_at=at, refused_by=refused)
    if step.reason.code in _WAITING and wait is not None:
        at = now + timedelta(seconds=max(0.0, wait))
        refused = _certain_refusals(node, observation, rulebook, at)
        return NextAction(
            verb=Verb.NOTICE, at=at, removal_at=at + grace, removal=Verb(choice or ""), refused_by=refused
        )
    return None


def _announced_removal(step: Step, grace: timedelta) -> tuple[timedelta, Verb | None]:
    """What a notice promises: the time until the removal, and which one; a notice without a promise says neither."""
    seconds, action = step.arguments.get("grace_seconds"), step.arguments.get("action")
    return grace if seconds is None else timedelta(seconds=float(seconds)), Verb(action) if action in _REMOVES else None


def _choice(node: Node, step: Step, observation: Observation, rules: IdleRules) -> tuple[str | None, float | None]:
    """What its pool does with the node in the end, and for how many seconds it still waits before the notice."""
    if node.state is NodeState.RUNNING:
        choice, wait = idle.choose_action(node, observation, rules)
        return choice, None if wait is None else wait - node.activity.held_seconds
    found = observation.ledger.own_stop(node) if node.state is NodeState.STOPPED else None
    if found is None or rules.terminate_after is None or step.reason.code == undone.CODE:
        return None, None
    if found.why_unwatched(node, observation.interval_seconds) is not None:
        return None, None
    age = (observation.now - found.at).total_seconds()
    return Verb.TERMINATE.value, rules.terminate_after - rules.terminate_grace_period - age


def _certain_refusals(node: Node, observation: Observation, rulebook: Rulebook, at: datetime) -> tuple[str, ...]:
    """The rules that will still block an action at that time."""
    pauses = (each for each in observation.ledger.pauses if each.pool in {None, node.pool})
    paused = any(each.until is None or each.until > at for each in pauses)
    return tuple(["observe_only"] * (not rulebook.enforce) + ["paused"] * paused)
