"""A small fleet with one node of each kind, as operators' commands show it."""

from decimal import Decimal

from gpuwatch.controller.round import Round
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.money import Price
from tests.support.builders.fleet import NOW, Desk, a_node

REFUSED = "its agent could not be asked: 10.0.0.7:9460 refuses connections"


def a_day() -> tuple[Desk, Round]:
    """An idle machine under notice, a protected one, a busy one, a parked one, silent ones, one not enrolled."""
    price = Price(usd_per_hour=Decimal("0.8048"), source="a list", as_of=NOW.date())
    desk = Desk(prices={"g6.xlarge": price})
    for node in (
        a_node("i-1", name="forgotten", owner="ana"),
        a_node("i-2", name="demo-day", owner="ben", protected="tag gpuwatch:protect protects it"),
        a_node("i-3", State.BUSY, 300.0, name="trainer", owner="ana"),
        a_node("i-4", State.PARKED, 7200.0, name="notebook", owner="chi"),
        a_node("i-5", name="silent", signal=NodeReport(failure="its agent did not answer within 5s")),
        a_node("i-6", name="gone-home", enrolled=False),
        a_node("i-7", name="refusing", pool="batch", signal=NodeReport(failure=REFUSED)),
    ):
        desk.fleet.put(node)
    for _ in range(6):
        desk.round()
    return desk, desk.plan()
