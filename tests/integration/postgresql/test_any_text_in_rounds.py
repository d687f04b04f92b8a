"""Whatever people write on machines and pods, rounds over PostgreSQL go on, and everything is metered."""

from dataclasses import replace

import pytest

from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.store import Meter
from tests.support.builders.fleet import RULES, Desk, a_node
from tests.support.real.postgresql import Place, postgresql

pytestmark = pytest.mark.component("pg_ctl")

NUL, HALF, LONG = "al\x00ice", "al\ud800ice", "x" * 1_000_000
ODD = {
    "an owner with a NUL": {"owner": NUL},
    "an owner with half a character": {"owner": HALF},
    "an owner of a megabyte": {"owner": LONG},
    "a pool with a NUL": {"pool": NUL},
    "a pool of a megabyte": {"pool": LONG},
    "a protection with a NUL": {"protected": NUL},
    "tags of all of these": {"tags": {"team": NUL, NUL: HALF, "long": LONG}},
    "a type with a NUL": {"instance_type": NUL, "region": NUL, "account": NUL},
}


@pytest.mark.parametrize("fields", ODD.values(), ids=ODD.keys())
def test_a_text_that_postgresql_does_not_take_ends_no_round_and_no_metering(fields: dict[str, object]) -> None:
    """P22: the idle neighbour is noticed and stopped, the busy one is billed, and the chain is whole."""
    place = Place(LedgerSettings(url=postgresql().database()))
    try:
        ledger = place.open()
        assert _stopped_neighbour(ledger, replace(a_node("i-odd", State.IDLE), **fields)) == ["i-idle"]  # type: ignore[arg-type]
        assert ledger.audit().broken is None
    finally:
        place.close()


def _stopped_neighbour(ledger: Ledger, odd: Node) -> list[str]:
    """Twelve minutes of rounds over that machine and two others; the neighbours that are stopped at their end."""
    desk = Desk(ledger=ledger, pools={"default": RULES})
    meter = Meter(ledger, CostSettings(tags=("team",)).metering(60.0, {"": "aws"}))
    for node in (odd, a_node("i-idle"), a_node("i-busy", State.BUSY)):
        desk.fleet.nodes_[node.id] = node
    for _ in range(12):
        done = desk.round(60.0)
        assert done.trouble is None
        assert meter(done.observation) or done.observation is not None
    assert meter.spend.billed_time(0, 2**40)
    return [name for name in desk.fleet.stops() if name != "i-odd"]
