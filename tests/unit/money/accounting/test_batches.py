"""How far the work of a pool is, from what was metered: whole rows since its begin, of its own nodes."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.measurement import BatchPast
from gpuwatch.model.usage import EPOCH, GPU, USES, Use
from gpuwatch.money.accounting.batches import Batches
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.policies.spot.batch import BatchRules, Useful, past
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.money import a_busy_node, a_round
from tests.support.nightly import examples

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


LONG = replace(JOB, work=40 * HOUR, by=(NOW + timedelta(days=20)).isoformat())


def anew(ledger: Ledger, seen: Observation) -> dict[str, BatchPast]:
    """The same from all rows, one by one, and with nothing remembered."""
    rows = [
        Useful(
            begin=EPOCH + timedelta(seconds=key.begin),
            until=EPOCH + timedelta(seconds=key.begin + key.span),
            node_id=key.node_id,
            seconds=amounts[GPU + USES.index(Use.USEFUL)] / 1000 / (terms.gpus or 1),
        )
        for key, terms, amounts in SpendBook(ledger).each(0, 2**40, pool="default")
    ]
    here = {node.id for node in seen.fleet.nodes if node.pool == "default" and node.state is NodeState.RUNNING}
    return {"default": past(rows, LONG, here, seen.now)}


SIGHTS = st.sampled_from(["works", "works", "works", "idle", "silent", "gone", "elsewhere"])


@settings(deadline=None, max_examples=examples(20))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([5, 30, 60, 200, 1500]), st.tuples(SIGHTS, SIGHTS)), min_size=2, max_size=10
    )
)
def test_what_is_remembered_changes_no_answer(steps: list[tuple[int, tuple[str, ...]]]) -> None:
    """Whatever was metered meanwhile, late, in another pool, or summed up by day: it is that of reading all anew."""
    ledger = Ledger.in_memory(settings=LedgerSettings(hourly_spend_retention=3600))
    book, kept, at = SpendBook(ledger), Batches(ledger, {"default": LONG}), NOW
    for minutes, sights in steps:
        nodes = [sight_of(f"i-{number}", at, sight) for number, sight in enumerate(sights)]
        seen = replace(a_round(at), fleet=replace(a_round(at).fleet, nodes=tuple(each for each in nodes if each)))
        book.meter(seen, replace(METERING, silent_after_seconds=20_000.0))
        assert kept(seen) == Batches(ledger, {"default": LONG})(seen) == anew(ledger, seen)
        at += timedelta(minutes=minutes)
    ledger.close()


def sight_of(name: str, at: datetime, sight: str) -> Node | None:
    """A node as a round sees it."""
    if sight == "gone":
        return None
    node = replace(spot(name, at, "serving" if sight == "elsewhere" else "default"), launched_at=NOW)
    if sight == "idle":
        return replace(a_node(name, State.IDLE), pool="default", launched_at=NOW)
    return replace(node, state=NodeState.STOPPED) if sight == "silent" else node


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each reading gave."""
    found: list[int] = []
    read = SpendBook.each

    def counted(self: SpendBook, since: int, until: int, *, pool: str | None = None) -> Iterator[tuple[Any, ...]]:
        rows = list(read(self, since, until, pool=pool))
        found.append(len(rows))
        return iter(rows)

    monkeypatch.setattr(SpendBook, "each", counted)
    return found


def test_hours_that_are_over_are_read_once(ledger: Ledger, reads: list[int]) -> None:
    """After a first round only the newest are: of thirty hours of two nodes, those of the last hour."""
    seen = metered(ledger, 30, "i-1", "i-2")
    batches = Batches(ledger, {"default": LONG})

    first, second = batches(seen), batches(seen)

    assert first == second
    assert reads == [60, 2]


def test_an_hour_that_is_metered_late_is_read(ledger: Ledger, reads: list[int]) -> None:
    """A node that is seen hours after its launch: all rows are read again, and its hours are done."""
    seen = metered(ledger, 6, "i-1")
    batches = Batches(ledger, {"default": JOB})
    assert batches(seen)["default"].done_seconds == pytest.approx(3 * HOUR)
    at = seen.now + timedelta(minutes=15)
    late = a_round(at, spot("i-1", at), replace(spot("i-2", at), launched_at=NOW))

    SpendBook(ledger).meter(late, replace(METERING, silent_after_seconds=8 * HOUR))

    assert batches(late)["default"].done_seconds > 4 * HOUR
    assert reads[1] > 6


@pytest.mark.parametrize("running", [True, False])
def test_hours_of_work_that_runs_are_no_days_before_its_deadline(ledger: Ledger, running: bool) -> None:
    """A day that is sealed is one row, of which the part since the begin is not known."""
    begin, end = NOW + timedelta(hours=1), NOW + timedelta(days=5 if running else 2)
    rules = replace(METERING, in_hours=((begin, end),))
    for hour in range(4 * 24):
        at = NOW + hour * timedelta(hours=1)
        SpendBook(ledger).meter(a_round(at, spot("i-1", at)), replace(rules, silent_after_seconds=2 * HOUR))
    spans = {key.span for key, _, _ in SpendBook(ledger).each(0, 2**40, pool="default")}

    assert (spans == {3600}) == running
