"""One node of a round as people see it: the row of `gpuwatch status`, of the page, of the API and of the demo."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Self

from gpuwatch.controller.context import Round, unreached_in, unreached_words
from gpuwatch.controller.pod_rows import ClusterRow, PodRow, cluster_row, pod_rows
from gpuwatch.controller.workload_rows import WorkloadRow, workload_rows
from gpuwatch.guard import Rulebook
from gpuwatch.guard.outlook import NextAction, Outlook, RequiredApproval, required_approval
from gpuwatch.ledger import PastRound
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Answer, LedgerView, Step, Verb
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import GpuVerdict, Node, NodeState
from gpuwatch.model.health import Health
from gpuwatch.model.orders import ITSELF
from gpuwatch.model.sight import Silence
from gpuwatch.model.usage import milliseconds
from gpuwatch.money.accounting.scope import uncounted_nodes
from gpuwatch.money.accounting.useful_time import OF_NO_USE, gpu_uses, usd_by_use
from gpuwatch.policies.idle_timeout.answers import regret_sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of a node. Ratios are means of the last minutes. Without a verdict only its number is known."""

    index: int | None
    activity: State
    health: Health | None = None
    utilization_ratio: float | None = None
    memory_used_ratio: float | None = None


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
    `fleet`. `usd_per_hour_of_no_use` is what of it is for GPUs seen and of no use, by what they do: the waste that the
    ledger books.
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
    usd_per_hour_of_no_use: Mapping[str, Decimal] = field(default_factory=dict)


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
    outlook = Outlook(seen, rules)
    rows = [
        _row(node, steps[node.id], refusals.get(node.id, ()), outlook, unreached_words(steps[node.id], late, when))
        for node in seen.fleet.nodes
    ]
    foreign = uncounted_nodes(seen.fleet)
    return tuple(replace(row, foreign=True) if row.id in foreign else row for row in rows)


def _row(node: Node, step: Step, refusals: Sequence[Answer], outlook: Outlook, late: str | None) -> NodeRow:
    seen, rules = outlook.observation, outlook.rules
    running, activity = node.state is NodeState.RUNNING, node.activity
    billed = running or node.billed_though_stopped or node.owned
    price, notice = seen.price(node) if billed else None, seen.ledger.notice(node.id)
    known = running and activity.state is not State.UNKNOWN
    late = None if refusals else late
    after, why = outlook.next_action(node, step, refusals, late=late is not None)
    if node.cloud_notice is not None:
        why = f"Its cloud takes it at {format_time(node.cloud_notice.at)}. {why}"
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
        next=after,
        approval=required_approval(node, seen.ledger, rules),
        stopped=_stop_row(node, seen.ledger),
        unreached=late,
        usd_per_hour_of_no_use={} if price is None or not running else _of_no_use(price.usd_per_hour, node, seen.now),
    )


def _of_no_use(usd: Decimal, node: Node, now: datetime) -> dict[str, Decimal]:
    by_use = usd_by_use(usd, gpu_uses(node, milliseconds(now)))
    return {use: by_use[use] for use in OF_NO_USE if use in by_use}


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
