"""One node of a round as people see it: the row of `gpuwatch status`, of the page, of the API and of the demo."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from gpuwatch.controller.context import Round, unreached_in, unreached_words
from gpuwatch.controller.pod_rows import cluster_row, pod_rows
from gpuwatch.controller.workload_rows import workload_rows
from gpuwatch.guard import Rulebook
from gpuwatch.guard.outlook import Outlook, required_approval
from gpuwatch.ledger import PastRound
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Answer, LedgerView, Step, Verb
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import GpuVerdict, Node, NodeState
from gpuwatch.model.nodes_page import Gpu, NodeRow, NodesPage, StopRow
from gpuwatch.model.orders import ITSELF
from gpuwatch.model.usage import milliseconds
from gpuwatch.money.accounting.scope import uncounted_nodes
from gpuwatch.money.accounting.useful_time import OF_NO_USE, gpu_uses, usd_by_use
from gpuwatch.policies.idle_timeout.answers import regret_sentences


def nodes_page(done: Round, rules: Rulebook, *, whole: bool = True) -> NodesPage:
    """All nodes, as `gpuwatch status` lists them; if not `whole`, all but their rows, which `each_row` gives."""
    seen = done.observation
    return NodesPage(
        at=seen.now,
        total=len(seen.fleet.nodes),
        nodes=node_rows(done, rules) if whole else (),
        silent=seen.fleet.silent,
        kubernetes=cluster_row(seen),
        pods=pod_rows(seen),
        workloads=workload_rows(done, rules),
        regrets=tuple(regret_sentences(seen)),
    )


def node_rows(done: Round | PastRound, rules: Rulebook) -> tuple[NodeRow, ...]:
    """One row for each node, in the cloud's order."""
    return tuple(each_row(done, rules))


def each_row(done: Round | PastRound, rules: Rulebook) -> Iterator[NodeRow]:
    """The same, one after the other."""
    steps = {step.node_id: step for decision in done.decisions for step in decision.steps}
    refusals = {review.step.node_id: review.refusals for review in done.reviews}
    seen, (late, when) = done.observation, unreached_in(done)
    outlook, foreign = Outlook(seen, rules), uncounted_nodes(seen.fleet)
    for node in seen.fleet.nodes:
        step = steps[node.id]
        row = _row(node, step, refusals.get(node.id, ()), outlook, unreached_words(step, late, when))
        yield replace(row, foreign=True) if node.id in foreign else row


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
        usd_per_hour_of_no_use={} if price is None else _of_no_use(price.usd_per_hour, node, seen.now),
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
