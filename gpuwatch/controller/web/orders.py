"""What people order through the API: pauses, acknowledgements, snoozes and approvals. Each is written to the ledger."""

from datetime import timedelta
from http import HTTPStatus

from gpuwatch.controller.web import schemas
from gpuwatch.controller.web.call import Call, RefusedError
from gpuwatch.controller.web.state import State
from gpuwatch.controller.workload_orders import Kept, SnoozeTooLongError, UnknownWorkloadError, keep_workload, let_go
from gpuwatch.guard.outlook import required_approval
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node
from gpuwatch.model.orders import Acknowledgement, Approval, Pause, Snooze


def pauses(call: Call) -> schemas.PausesPage:
    """The pauses in force."""
    return schemas.PausesPage(pauses=call.state.orders().pauses)


def pause(call: Call) -> Pause:
    """Pause a pool, or all."""
    state, order = call.state, call.body
    refuse_unknown(state, order.pool)
    now = state.clock.now()
    until = None if order.seconds is None else now + timedelta(seconds=order.seconds)
    return state.ledger.pause(order.pool, call.who, order.reason, now, until)


def resume(call: Call) -> schemas.PausesPage:
    """Take a pool's pauses back."""
    state, pool = call.state, call.named["pool"]
    refuse_unknown(state, pool)
    return schemas.PausesPage(pauses=state.ledger.resume(pool, call.who, state.clock.now()))


def resume_all(call: Call) -> schemas.PausesPage:
    """Take all pauses back."""
    return schemas.PausesPage(pauses=call.state.ledger.resume(None, call.who, call.state.clock.now()))


def acknowledge(call: Call) -> Acknowledgement:
    """Confirm that nodes which turned idle all at once are idle."""
    state, order, now = call.state, call.body, call.state.clock.now()
    refuse_unknown(state, order.pool)
    state.ledger.acknowledge(order.pool, call.who, order.reason, now)
    return Acknowledgement(pool=order.pool, at=now, who=call.who, reason=order.reason)


def snooze(call: Call) -> Snooze:
    """Keep a node for so long, up to the max_snooze of its pool."""
    state, order, now = call.state, call.body, call.state.clock.now()
    node = _seen_node(call)
    most = state.rules.pool(node.pool).idle.max_snooze
    if order.seconds > most:
        sentence = f"a node of pool {node.pool} is kept for {format_duration(most)} at most (max_snooze)"
        raise RefusedError(HTTPStatus.BAD_REQUEST, sentence)
    return state.ledger.snooze(node.id, call.who, order.reason, now, now + timedelta(seconds=order.seconds))


def end_snooze(call: Call) -> Snooze:
    """Take a snooze back."""
    now = call.state.clock.now()
    return call.state.ledger.snooze(_seen_node(call).id, call.who, "", now, now)


def snooze_workload(call: Call) -> Snooze:
    """Keep a workload for so long, up to the max_snooze of its pools."""
    state, order, now = call.state, call.body, call.state.clock.now()
    kept = Kept(who=call.who, reason=order.reason, at=now, seconds=order.seconds)
    try:
        return keep_workload(state.ledger, state.last().observation, state.rules, _workload(call), kept)
    except UnknownWorkloadError as error:
        raise RefusedError(HTTPStatus.NOT_FOUND, str(error)) from error
    except SnoozeTooLongError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error


def end_workload_snooze(call: Call) -> Snooze:
    """Take the snooze of a workload back."""
    state = call.state
    try:
        return let_go(state.ledger, state.last().observation, _workload(call), call.who, state.clock.now())
    except UnknownWorkloadError as error:
        raise RefusedError(HTTPStatus.NOT_FOUND, str(error)) from error


def _workload(call: Call) -> str:
    """As people type it."""
    return "/".join(call.named[part] for part in ("cluster", "namespace", "kind", "name") if part in call.named)


def approve(call: Call) -> Approval:
    """Approve the removal that a notice in force announces."""
    state, order, node = call.state, call.body, _seen_node(call)
    orders = state.orders()
    required = required_approval(node, orders, state.rules)
    why_not = None
    if orders.notice(node.id) is None:
        why_not = f"{node.id} has no notice in force: there is nothing to approve"
    elif required is None:
        why_not = f"pool {node.pool} asks for no approval (pools.{node.pool}.approval)"
    elif required.who is not None:
        why_not = f"{node.id} was approved already, by {required.who}"
    elif order.notice not in {None, required.notice}:
        why_not = f"the notice that you looked at is no longer in force for {node.id}, but a later one: look again"
    if why_not is not None:
        raise RefusedError(HTTPStatus.CONFLICT, why_not)
    return state.ledger.approve(
        node.id, call.who, order.reason, state.clock.now(), key=None if required is None else required.notice
    )


def _seen_node(call: Call) -> Node:
    """The node of the last round that the path names."""
    name, fleet = call.named["node"], call.state.last().observation.fleet
    node = fleet.node(name)
    if node is None:
        raise RefusedError(HTTPStatus.NOT_FOUND, f"the last round saw no node {name!r}")
    return node


def refuse_unknown(state: State, pool: str | None) -> None:
    """Refuse a misspelt pool: its pause would silently do nothing."""
    known = {*state.rules.known, *state.seen_pools(), *(each.pool for each in state.orders().pauses)}
    if pool is not None and pool not in known:
        there = ", ".join(sorted(each for each in known if each is not None)) or "none"
        raise RefusedError(HTTPStatus.NOT_FOUND, f"there is no pool {pool!r}; there are: {there}")
