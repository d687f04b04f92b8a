"""How far the work of a pool is, from what was metered: whole rows since its begin, of its own nodes."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import CapacityType, Node
from gpuwatch.money.accounting.batches import Batches
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.policies.spot.batch import BatchRules
from tests.support.builders.fleet import NOW
from tests.support.builders.money import a_busy_node, a_round

HOUR = 3600.0
METERING = Metering(zone=ZoneInfo("UTC"), silent_after_seconds=1800.0)
JOB = BatchRules(work=10 * HOUR, since=NOW.isoformat(), by=(NOW + timedelta(hours=20)).isoformat(), nodes=2)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """An empty one."""
    made = Ledger.in_memory()
    yield made
    made.close()


def spot(name: str, at: datetime, pool: str = "default") -> Node:
    """A spot node that has been at work for long."""
    return replace(a_busy_node(name, at), capacity_type=CapacityType.SPOT, pool=pool)


def metered(ledger: Ledger, hours: int, *names: str, pool: str = "default", since: datetime = NOW) -> Observation:
    """So many hours of rounds, a quarter of an hour apart; the newest one."""
    seen = a_round(since, *(spot(name, since, pool) for name in names))
    for quarter in range(4 * hours + 1):
        at = since + quarter * timedelta(minutes=15)
        seen = a_round(at, *(spot(name, at, pool) for name in names))
        SpendBook(ledger).meter(seen, METERING)
    return seen


def test_useful_hours_of_the_pool_are_done(ledger: Ledger) -> None:
    """Three hours of both nodes are three hours of the work; another process sees the same."""
    seen = metered(ledger, 3, "i-1", "i-2")

    for _ in range(2):
        assert Batches(ledger, {"default": JOB})(seen)["default"].done_seconds == pytest.approx(3 * HOUR)


def test_another_pool_s_hours_are_not(ledger: Ledger) -> None:
    """Nor are those of a node that did nothing useful, or of which nothing was metered."""
    seen = metered(ledger, 3, "i-1", "i-2", pool="serving")

    assert Batches(ledger, {"default": JOB})(seen)["default"].done_seconds == 0


def test_time_before_the_next_full_hour_does_not_count(ledger: Ledger) -> None:
    """Rows are whole hours, and the part of one that lies after the begin is not known."""
    seen = metered(ledger, 3, "i-1", "i-2")
    late = replace(JOB, since=(NOW + timedelta(minutes=30)).isoformat())

    assert Batches(ledger, {"default": late})(seen)["default"].done_seconds == pytest.approx(2 * HOUR)


def test_a_spot_node_that_is_gone_is_a_loss(ledger: Ledger) -> None:
    """By the fleet of the round."""
    seen = metered(ledger, 3, "i-1", "i-2")
    one = replace(seen, fleet=replace(seen.fleet, nodes=seen.fleet.nodes[:1]))
    found = Batches(ledger, {"default": JOB})(one)["default"]

    assert found.losses == 1
    assert found.done_seconds == pytest.approx(3 * HOUR - 900)


def test_what_cannot_be_read_is_not_known(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The round goes on, the pool counts nothing as done, and the log says why."""

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(SpendBook, "each", broken)

    assert Batches(ledger, {"default": JOB})(a_round(NOW)) == {}
    assert "cannot be read" in caplog.text


def test_before_its_begin_nothing_is_asked(ledger: Ledger) -> None:
    """The ledger is left alone."""
    assert Batches(ledger, {"default": JOB})(a_round(NOW - timedelta(hours=1))) == {}
