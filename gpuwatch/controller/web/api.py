"""The API: one line for each endpoint, and what each answers from the last round and the ledger."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from gpuwatch.controller import explain
from gpuwatch.controller.context import Round
from gpuwatch.controller.order_documents import RoundsPage
from gpuwatch.controller.web import fleet_view, orders, past, schemas, timeline
from gpuwatch.controller.web.call import Call, RefusedError
from gpuwatch.ledger import LedgerError, PastRound
from gpuwatch.model.nodes_page import NodesPage
from gpuwatch.model.orders import Acknowledgement, Approval, Pause, Snooze
from gpuwatch.money.blocked.blocked import Blocked, blocked_money
from gpuwatch.money.report.saved import RecentSavings
from gpuwatch.policies.idle_timeout.answers import regret_sentences

PREFIX = "/api/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`path` may have {parts}. `acts`: it changes something; `cached`: the same answer all through a round."""

    method: str
    path: str
    summary: str
    answer: type
    call: Callable[[Call], object]
    query: type[msgspec.Struct] = schemas.Nothing
    body: type[msgspec.Struct] | None = None
    status: HTTPStatus = HTTPStatus.OK
    acts: bool = False
    cached: bool = False


def _fleet(call: Call) -> fleet_view.FleetPage:
    return call.state.page()


def _nodes(call: Call) -> NodesPage:
    page, query = call.state.page(), call.query
    text = (query.text or "").casefold()
    found = [
        row
        for row in page.nodes
        if query.pool in {None, row.pool}
        and query.activity in {None, row.activity}
        and text in " ".join((row.id, row.name, row.owner or "", row.instance_type)).casefold()
    ]
    return NodesPage(
        at=page.at,
        total=len(found),
        nodes=tuple(found[query.offset : query.offset + query.limit]),
        silent=page.silent,
        kubernetes=page.kubernetes,
        pods=page.pods,
        workloads=page.workloads,
        regrets=tuple(regret_sentences(call.state.last().observation)),
    )


def _node(call: Call) -> explain.NodePage:
    name, number, ledger = call.named["node"], call.query.round, call.state.ledger
    done: Round | PastRound
    done, rules = (call.state.last(), call.state.rules) if number is None else past.rules_of(ledger, number)
    node = explain.find_node(done, name)
    return explain.node_page(done, rules, ledger, node, call.state.orders(), round_id=number)


def _answer_blocked(call: Call) -> Blocked:
    done, pool = call.state.last(), call.query.pool
    orders.refuse_unknown(call.state, pool)
    return blocked_money(done.observation, done.decisions, done.reviews, call.state.rules, pool=pool)


def _pools(call: Call) -> schemas.PoolsPage:
    page = call.state.page()
    return schemas.PoolsPage(at=page.at, pools=page.pools)


def _session(call: Call) -> schemas.Session:
    return schemas.Session(user=call.user, may_act=call.why_not is None, why_not=call.why_not)


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/fleet",
        summary="The whole fleet at a glance; with an ETag that changes with each round.",
        answer=fleet_view.FleetPage,
        call=_fleet,
        cached=True,
    ),
    Endpoint(
        method="GET",
        path="/nodes",
        summary="Nodes by pool, activity or text.",
        answer=NodesPage,
        call=_nodes,
        query=schemas.NodesQuery,
    ),
    Endpoint(
        method="GET",
        path="/nodes/{node}",
        summary="One node by id or unique name: evidence, the policy's view, every guard rule's answer, its past.",
        answer=explain.NodePage,
        call=_node,
        query=schemas.NodeQuery,
    ),
    Endpoint(
        method="POST",
        path="/nodes/{node}/snooze",
        summary="Keep a node from being noticed or removed for so long, up to its pool's max_snooze.",
        answer=Snooze,
        call=orders.snooze,
        body=schemas.SnoozeOrder,
        status=HTTPStatus.CREATED,
        acts=True,
    ),
    Endpoint(
        method="DELETE",
        path="/nodes/{node}/snooze",
        summary="Take that back.",
        answer=Snooze,
        call=orders.end_snooze,
        acts=True,
    ),
    Endpoint(
        method="POST",
        path="/nodes/{node}/approve",
        summary="Approve the removal that a node's notice announces, where its pool waits for an operator's approval.",
        answer=Approval,
        call=orders.approve,
        body=schemas.ApproveOrder,
        status=HTTPStatus.CREATED,
        acts=True,
    ),
    Endpoint(
        method="POST",
        path="/workloads/{namespace}/{kind}/{name}/snooze",
        summary="Keep a workload of the cluster: no notice, no end and no drain of its pods; up to max_snooze.",
        answer=Snooze,
        call=orders.snooze_workload,
        body=schemas.SnoozeOrder,
        status=HTTPStatus.CREATED,
        acts=True,
    ),
    Endpoint(
        method="DELETE",
        path="/workloads/{namespace}/{kind}/{name}/snooze",
        summary="Take that back; its annotations stay as they are.",
        answer=Snooze,
        call=orders.end_workload_snooze,
        acts=True,
    ),
    Endpoint(
        method="POST",
        path="/workloads/{cluster}/{namespace}/{kind}/{name}/snooze",
        summary="The same of a workload of the cluster with that name, where there are several.",
        answer=Snooze,
        call=orders.snooze_workload,
        body=schemas.SnoozeOrder,
        status=HTTPStatus.CREATED,
        acts=True,
    ),
    Endpoint(
        method="DELETE",
        path="/workloads/{cluster}/{namespace}/{kind}/{name}/snooze",
        summary="Take that back.",
        answer=Snooze,
        call=orders.end_workload_snooze,
        acts=True,
    ),
    Endpoint(method="GET", path="/pools", summary="The pools and their rule.", answer=schemas.PoolsPage, call=_pools),
    Endpoint(
        method="GET",
        path="/blocked",
        summary="What machines without use cost per day because a rule forbids stopping them, by what holds it.",
        answer=Blocked,
        call=_answer_blocked,
        query=schemas.BlockedQuery,
        cached=True,
    ),
    Endpoint(
        method="GET",
        path="/rounds",
        summary="The newest rounds on record.",
        answer=RoundsPage,
        call=past.rounds,
        query=schemas.RoundsQuery,
    ),
    Endpoint(
        method="GET",
        path="/rounds/{round}",
        summary="What a past round decided, and what refused it.",
        answer=schemas.RoundPage,
        call=past.past_round,
    ),
    Endpoint(
        method="GET",
        path="/cost",
        summary="What was billed and what of it was of no use.",
        answer=schemas.CostPage,
        call=past.cost_page,
        query=schemas.CostQuery,
        cached=True,
    ),
    Endpoint(
        method="GET",
        path="/savings",
        summary="What stops saved today and this month; counted every five minutes.",
        answer=RecentSavings,
        call=past.savings,
        cached=True,
    ),
    Endpoint(
        method="GET",
        path="/progress",
        summary="Waste of the first weeks of metering against the last ones; null until two weeks are metered.",
        answer=schemas.ProgressPage,
        call=past.progress,
        cached=True,
    ),
    Endpoint(
        method="GET",
        path="/timeline",
        summary="The fleet's GPUs by use over the last hours, in slots of five minutes, with notices and stops.",
        answer=timeline.Timeline,
        call=timeline.fleet,
        query=schemas.TimelineQuery,
        cached=True,
    ),
    Endpoint(
        method="GET",
        path="/nodes/{node}/timeline",
        summary="What a node was used for over the last hours, with its notices and stops.",
        answer=timeline.NodeTimeline,
        call=timeline.node,
        query=schemas.TimelineQuery,
    ),
    Endpoint(
        method="GET", path="/pauses", summary="The pauses in force.", answer=schemas.PausesPage, call=orders.pauses
    ),
    Endpoint(
        method="POST",
        path="/pauses",
        summary="Pause a pool, or all: no call leaves after it.",
        answer=Pause,
        call=orders.pause,
        body=schemas.PauseOrder,
        status=HTTPStatus.CREATED,
        acts=True,
    ),
    Endpoint(
        method="DELETE",
        path="/pauses",
        summary="Take all pauses back.",
        answer=schemas.PausesPage,
        call=orders.resume_all,
        acts=True,
    ),
    Endpoint(
        method="DELETE",
        path="/pauses/{pool}",
        summary="Take a pool's pauses back; gives those still in force.",
        answer=schemas.PausesPage,
        call=orders.resume,
        acts=True,
    ),
    Endpoint(
        method="POST",
        path="/acknowledgements",
        summary="Confirm that nodes of a pool, or of all, which turned idle all at once are idle indeed.",
        answer=Acknowledgement,
        call=orders.acknowledge,
        body=schemas.AcknowledgeOrder,
        status=HTTPStatus.CREATED,
        acts=True,
    ),
    Endpoint(
        method="GET",
        path="/session",
        summary="Who asks, and whether that user may act.",
        answer=schemas.Session,
        call=_session,
    ),
)


def answer_call(endpoint: Endpoint, call: Call) -> object:
    """What the endpoint answers.

    Raises:
        RefusedError: with the status and the sentence to answer.

    """
    try:
        return endpoint.call(call)
    except explain.UnknownNodeError as error:
        raise RefusedError(HTTPStatus.NOT_FOUND, str(error)) from error
    except LedgerError as error:
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
