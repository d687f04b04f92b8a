"""A cloud that shows nothing of ended machines: after a restart an end is settled on its whole lists alone (P13)."""

from dataclasses import dataclass, field, replace

from gpuwatch.clouds import CloudUnavailableError, NotFoundError
from gpuwatch.controller.context import Memory
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import Node, NodeState
from tests.support.builders.fleet import RULES, Desk, FakeFleet, a_node

TERMINATES = replace(RULES, idle=replace(RULES.idle, action="terminate"))


@dataclass
class Forgetful(FakeFleet):
    """It knows a machine no more once that has ended; the list of its region can be asked for, past every filter."""

    here: set[str] = field(default_factory=set)  # what the region's list has all the same
    silent: bool = False
    elsewhere: bool = False
    asked: int = 0

    def node(self, node_id: str) -> Node | None:
        """Unknown once it has ended."""
        found = super().node(node_id)
        if found is None or found.state is NodeState.TERMINATED:
            raise NotFoundError(f"{node_id} is not known")
        return found

    def lacks(self, node: Node) -> bool:
        """The list as it is."""
        self.asked += 1
        if self.silent:
            raise CloudUnavailableError("no answer")
        if self.elsewhere:
            raise NotFoundError("no such account")
        return node.id not in self.here


def a_desk() -> tuple[Desk, Forgetful]:
    """Its only machine has been terminated by us; the call was accepted, and the controller is gone."""
    desk = Desk(rules=TERMINATES)
    fleet = desk.fleet = Forgetful(clock=desk.clock)
    fleet.put(a_node("i-1"))
    while not any(call == "terminate" for call, *_ in fleet.calls):
        desk.round()
    desk.memory = Memory()
    return desk, fleet


def ending(desk: Desk) -> list[str]:
    """What became of the termination."""
    entries = [each for each in desk.ledger.history("i-1", limit=100) if each.intent.verb is Verb.TERMINATE]
    return [outcome.status for entry in entries for outcome in entry.outcomes]


def test_two_whole_lists_some_minutes_apart_settle_our_own_end() -> None:
    """Not the first, and not the second a moment later; the record says how it is known."""
    desk, fleet = a_desk()
    for _ in range(5):
        desk.round()
    assert ending(desk) == ["accepted"]
    desk.round()

    assert ending(desk) == ["accepted", "settled"]
    (entry,) = [each for each in desk.ledger.history("i-1", limit=100) if each.intent.verb is Verb.TERMINATE]
    assert "two whole lists of its region, 5 minutes apart" in entry.outcomes[-1].detail
    assert fleet.asked == 6


def test_a_list_that_shows_the_machine_begins_the_proof_anew() -> None:
    """A late list, or an id that is not known yet: only absence that lasts counts."""
    desk, fleet = a_desk()
    desk.round()
    fleet.here = {"i-1"}
    for _ in range(3):
        desk.round()
    fleet.here = set()
    for _ in range(5):
        desk.round()
    assert ending(desk) == ["accepted"]
    desk.round()

    assert ending(desk) == ["accepted", "settled"]


def test_a_list_that_cannot_be_had_proves_nothing() -> None:
    """The intent stays open for as long as that lasts, and is settled afterwards."""
    desk, fleet = a_desk()
    fleet.silent = True
    for _ in range(90):
        desk.round()
    assert ending(desk) == ["accepted"]
    fleet.silent = False
    for _ in range(6):
        desk.round()

    assert ending(desk)[-1] == Status.SETTLED


def test_a_restart_between_the_two_lists_begins_the_proof_anew() -> None:
    """What one process has seen of absence is not on record."""
    desk, _ = a_desk()
    for _ in range(4):
        desk.round()
        desk.memory = Memory()
    assert ending(desk) == ["accepted"]
    for _ in range(6):
        desk.round()

    assert ending(desk)[-1] == Status.SETTLED


def test_credentials_of_another_account_never_settle_anything() -> None:
    """The id is not there, and the machine may run: the end is given up as not known, as it always was."""
    desk, fleet = a_desk()
    fleet.elsewhere = True
    for _ in range(14):
        desk.round()

    assert ending(desk) == ["accepted", "failed"]


def test_lists_that_go_on_showing_a_machine_which_is_not_known_are_no_proof() -> None:
    """After an hour nobody waits any longer; it is never settled."""
    desk, fleet = a_desk()
    fleet.here = {"i-1"}
    for _ in range(70):
        desk.round()

    assert ending(desk) == ["accepted", "failed"]
