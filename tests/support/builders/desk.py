"""Rounds of a controller, for tests of what comes of several: removals, and what the ledger then holds."""

from gpuwatch.cli.controller import one_round
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.decision import REMOVALS, Reason, Verb
from gpuwatch.model.fleet import Node
from tests.support.builders.fleet import NOW, Desk, a_node, an_observation

REASON = Reason(code="candidate", sentence="It has been idle for 2h.")


def an_intent(ledger: Ledger, verb: Verb = Verb.STOP, node_id: str = "i-1") -> object:
    """One intent of a recorded round."""
    round_id = ledger.record_round(an_observation(a_node(node_id)))
    return ledger.intend(verb, node_id, "default", NOW, REASON, round_id)


def rounds(desk: Desk, count: int) -> None:
    """So many, a grace period apart."""
    for _ in range(12 * count):
        one_round(desk.parts)
        desk.rest(60.0)


def removals(desk: Desk) -> list[str]:
    """Which machines were let go."""
    return [node_id for call, node_id, _ in desk.fleet.calls if call in {verb.value for verb in REMOVALS}]


def a_desk(*nodes: Node, **other: object) -> Desk:
    """A controller over these machines."""
    desk = Desk(**other)  # type: ignore[arg-type]
    for node in nodes or (a_node("i-1"), a_node("i-2", State.BUSY)):
        desk.fleet.put(node)
    return desk


def ledger_statuses(desk: Desk, node_id: str = "i-1") -> list[list[str]]:
    """Every intent of a node, oldest first, as its verb and its outcomes."""
    history = reversed(desk.ledger.history(node_id))
    return [[entry.intent.verb, *(outcome.status for outcome in entry.outcomes)] for entry in history]
