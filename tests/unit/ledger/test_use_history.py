"""What a day's timelines are drawn from: sums of the fleet in slots of five minutes, and changes of each node."""

from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.ledger import Ledger
from gpuwatch.ledger.tables import FLEET_USE, NODE_USE
from gpuwatch.ledger.use_history import KEPT_SECONDS, SLOT_SECONDS, gpus_by_use
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from tests.support.builders.fleet import NOW, a_node, a_verdict, an_observation

MINUTE = timedelta(minutes=1)
BEGIN = int(NOW.timestamp())  # the begin of a slot


def a_round(ledger: Ledger, at: datetime, *nodes: Node) -> None:
    """One on record."""
    ledger.record_round(an_observation(*nodes, now=at))


def test_a_slot_holds_the_sum_of_its_rounds_and_a_time_without_rounds_has_no_row() -> None:
    """Three rounds in the first slot, none in the second, one in the third."""
    ledger = Ledger.in_memory()
    for minute in (0, 1, 2, 10):
        a_round(ledger, NOW + minute * MINUTE, a_node("i-1", State.BUSY), a_node("i-2"))

    slots = ledger.uses.fleet(NOW, NOW + 15 * MINUTE)
    assert [(each.begin - BEGIN, each.rounds, each.gpus) for each in slots] == [
        (0, 3, {"busy": 3, "idle": 3}),
        (600, 1, {"busy": 1, "idle": 1}),
    ]


def test_a_node_has_a_row_where_its_use_changes_also_when_it_stops_and_goes() -> None:
    """The last use of a slot counts; a node that stays as it is writes nothing."""
    ledger, off = Ledger.in_memory(), replace(a_node("i-1"), state=NodeState.STOPPED, signal=NodeReport())
    steps = {0: a_node("i-1"), 6: a_node("i-1"), 11: a_node("i-1", State.BUSY), 12: a_node("i-1"), 20: off, 30: None}
    for minute, node in steps.items():
        a_round(ledger, NOW + minute * MINUTE, *([] if node is None else [node]))

    found = [((begin - BEGIN) // 60, use) for begin, use in ledger.uses.node("i-1", NOW)]
    assert found == [(0, "idle"), (10, "idle"), (20, "off"), (30, "gone")]
    assert [use for _, use in ledger.uses.node("i-1", NOW + 17 * MINUTE)] == ["idle", "off", "gone"]


def test_another_process_goes_on_where_the_first_one_ended() -> None:
    """It reads what was written last: an unchanged node has no second row, one that went meanwhile is gone."""
    ledger = Ledger.in_memory()
    a_round(ledger, NOW, a_node("i-1"), a_node("i-2"))
    other = Ledger(ledger.store)
    a_round(other, NOW + 30 * MINUTE, a_node("i-1"))

    assert len(other.uses.node("i-1", NOW)) == 1
    assert [use for _, use in other.uses.node("i-2", NOW)] == ["idle", "gone"]


def test_what_is_kept_is_bounded_and_a_quiet_node_keeps_its_last_row() -> None:
    """After three days with a change each slot: a day and two hours of slots, and of changes; the quiet node's one."""
    ledger = Ledger.in_memory()
    for number in range(0, 3 * 86_400, SLOT_SECONDS):
        at = NOW + timedelta(seconds=number)
        state = State.BUSY if number // SLOT_SECONDS % 2 else State.IDLE
        gone = [a_node("i-gone")] if number == 0 else []
        a_round(ledger, at, a_node("i-busy", state), a_node("i-quiet"), *gone)
        ledger.compact(at)

    most = KEPT_SECONDS // SLOT_SECONDS + 2
    with ledger.store.reading() as db:
        nodes = [row.node_id for row in db.execute(NODE_USE.select())]
        assert len(db.execute(FLEET_USE.select()).all()) <= most
    assert (nodes.count("i-quiet"), nodes.count("i-gone")) == (1, 0)
    assert nodes.count("i-busy") <= most


def test_what_is_not_known_is_neither_idle_nor_off() -> None:
    """A machine whose cloud gives no answer, one without a verdict, and one GPU of an occupied machine."""
    lost = replace(a_node("i-1", gpu_count=4), state=NodeState.UNKNOWN, signal=NodeReport())
    silent = replace(a_node("i-2", gpu_count=2), signal=NodeReport(failure="no answer"))
    idle = a_verdict("i-3", State.IDLE, gpus=2)
    occupied = replace(idle, activity=replace(idle.activity, state=State.OCCUPIED))

    assert gpus_by_use((lost, silent)) == {"unknown": 6}
    assert gpus_by_use((a_node("i-3", gpu_count=2, signal=NodeReport(verdict=occupied)),)) == {"occupied": 2}
