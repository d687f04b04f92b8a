"""P2, P9: no machine goes on an idle time that reaches back before the controller itself last saw it at work.

Two agents of one id may answer for it by turns, or an agent may be put back to an older state.
"""

import random
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeReport
from tests.support.builders.fleet import RULES, Desk, a_node, a_verdict
from tests.support.builders.light_desk import LightDesk

MINUTE, DAY = 60.0, 86400.0


def verdict_of(desk: Desk, node: Node, state: State, held: float) -> NodeReport:
    """An answer of this moment."""
    return NodeReport(verdict=a_verdict(node.id, state, held, at=desk.clock.now(), age=0.5))


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), busy=st.sampled_from([0.02, 0.1, 0.2, 0.5]), asked_last=st.booleans())
@example(seed=0, busy=0.1, asked_last=False)
def test_two_agents_by_turns_stop_nothing_that_one_of_them_sees_at_work(
    seed: int, busy: float, *, asked_last: bool
) -> None:
    """One has counted two idle hours, the other one sees work, however seldom it is the one that answers."""
    desk, chance, asked = LightDesk(rules=RULES), random.Random(seed), [0]

    def answer(node: Node) -> NodeReport:
        asked[0] += 1
        if node.id == "i-2" or asked[0] == 1 or (chance.random() < busy and (asked[0] % 2 == 0 or not asked_last)):
            return verdict_of(desk, node, State.BUSY, 500.0)
        return verdict_of(desk, node, State.IDLE, 7200.0 + desk.clock.monotonic())

    desk.fleet.answer = answer
    for name in ("i-1", "i-2"):
        desk.fleet.put(a_node(name))
    for _ in range(400):
        desk.round()

    assert desk.fleet.stops() == []


@settings(max_examples=8, deadline=None)
@given(
    turns=st.lists(st.tuples(st.sampled_from([State.BUSY, State.IDLE, State.OCCUPIED]), st.integers(1, 90)), max_size=9)
)
def test_an_agent_that_counts_as_it_should_is_never_in_doubt(turns: list[tuple[State, int]]) -> None:
    """Whatever its machine does, and however long."""
    desk = LightDesk(rules=replace(RULES, idle=replace(RULES.idle, action="report")))
    desk.fleet.put(a_node("i-1"))
    for state, minutes in turns:
        desk.fleet.show("i-1", state)
        for _ in range(minutes):
            done = desk.round()
            assert done.observation.fleet.nodes[0].activity.state is state


def test_the_end_of_work_in_a_window_of_samples_is_no_contradiction() -> None:
    """Exporters show work as long as their window has it, and idle for the whole window from then on."""
    desk = LightDesk(rules=replace(RULES, idle=replace(RULES.idle, action="report")))
    desk.fleet.put(a_node("i-1"))
    shown = iter([(State.BUSY, 0.0)] * 5 + [(State.IDLE, 1800.0)] * 5)
    desk.fleet.answer = lambda node: replace(verdict_of(desk, node, *next(shown)), windowed=True)
    states = [desk.round().observation.fleet.nodes[0].activity.state for _ in range(10)]

    assert states == [State.BUSY] * 5 + [State.IDLE] * 5
