"""What was billed, in the ledger: metered once whatever happens, summed up by day, sealed and proved."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.ledger import LeadLostError, Ledger, LedgerSettings
from gpuwatch.model.usage import AMOUNTS, GPU, USES, Use, milliseconds
from gpuwatch.money.accounting import store as spending
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Total, grouping, totals, whole
from tests.support.builders.fleet import NOW
from tests.support.builders.money import a_busy_node, a_round
from tests.support.nightly import examples
from tests.support.real.postgresql import Place, postgresql

BERLIN = Metering(zone=ZoneInfo("Europe/Berlin"))
MINUTE = timedelta(minutes=1)
ALWAYS = (0, 2**40)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty ledger in each database."""
    settings = LedgerSettings(path=str(tmp_path / "ledger.db"))
    made = Place(settings if request.param == "sqlite" else LedgerSettings(url=postgresql().database()))
    yield made
    made.close()


def the_whole(ledger: Ledger) -> Total:
    """Of all that was ever metered."""
    return whole(totals(SpendBook(ledger).rows(*ALWAYS), lambda _: "all").values())


def days(ledger: Ledger, begin: datetime, count: int, *nodes: str, every: timedelta = timedelta(hours=1)) -> None:
    """So many days of rounds an hour apart, which is no gap here."""
    hourly = replace(BERLIN, silent_after_seconds=every.total_seconds())
    for number in range(int(timedelta(days=count) / every) + 1):
        at = begin + number * every
        SpendBook(ledger).meter(a_round(at, *(a_busy_node(name, at) for name in nodes or ("i-1",))), hourly)


def test_a_round_is_billed_once_whoever_meters_it_again(place: Place) -> None:
    """The same round after a restart, and at a leader that took over, adds nothing; the next one goes on."""
    ledger = place.open()
    for minute in (0, 1, 2):
        SpendBook(ledger).meter(a_round(NOW + minute * MINUTE), BERLIN)
    place.close()
    ledger = place.open()
    assert SpendBook(ledger).meter(a_round(NOW + 2 * MINUTE), BERLIN) == 0
    SpendBook(ledger).meter(a_round(NOW + 3 * MINUTE), BERLIN)
    total = the_whole(ledger)

    assert (total.node_ms, total.gpu_ms, total.waste_ratio) == (180_000, 360_000, 0.0)
    assert total.usd == Decimal("0.5")
    assert list(SpendBook(ledger).wrong(*ALWAYS)) == []


def test_a_controller_that_dies_while_it_meters_has_metered_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and marks are one transaction: cut between them, the next round bills the whole time, once."""
    ledger = place.open()
    SpendBook(ledger).meter(a_round(NOW), BERLIN)
    with monkeypatch.context() as patch:
        patch.setattr(spending, "SPEND_MARKS", None)
        with pytest.raises(AttributeError):
            SpendBook(ledger).meter(a_round(NOW + MINUTE, usd="99"), BERLIN)
    place.close()
    ledger = place.open()
    SpendBook(ledger).meter(a_round(NOW + 2 * MINUTE), BERLIN)

    assert the_whole(ledger).node_ms == 120_000
    assert list(SpendBook(ledger).wrong(*ALWAYS)) == []


@pytest.mark.component("pg_ctl")
def test_a_node_whose_figures_cannot_be_counted_costs_itself_that_round(caplog: pytest.LogCaptureFixture) -> None:
    """P22: its neighbours are billed, the log names it, and once it is well it is billed for all of the time."""
    ledger = Ledger.in_memory()
    mistake: Any = "yesterday"  # an adapter's
    for minute in (0, 1, 2):
        at = NOW + minute * MINUTE
        odd = a_busy_node("i-odd", at)
        sick = replace(odd, launched_at=mistake)
        SpendBook(ledger).meter(a_round(at, a_busy_node("i-well", at), sick if minute == 1 else odd), BERLIN)

    sums = {row.node_id: sum(row.amounts[:GPU]) for row in SpendBook(ledger).rows(*ALWAYS, by_node=True)}
    assert sums == {"i-well": 120_000, "i-odd": 120_000}
    assert "i-odd is not metered in this round" in caplog.text


def test_who_lost_the_lead_meters_nothing() -> None:
    """Two controllers on one PostgreSQL: the second leads, and the first one's late round is refused."""
    place = Place(LedgerSettings(url=postgresql().database()))
    first = place.open()
    firsts = SpendBook(first)
    firsts.meter(a_round(NOW), BERLIN)
    first.store._drop()  # its session ends, as when its host is cut off
    second = place.open()
    seconds = SpendBook(second)
    seconds.meter(a_round(NOW + MINUTE), BERLIN)
    with pytest.raises(LeadLostError):
        firsts.meter(a_round(NOW + MINUTE), BERLIN)
    seconds.meter(a_round(NOW + 2 * MINUTE, usd="12"), BERLIN)
    total = the_whole(second)
    place.close()

    assert (total.node_ms, round(float(total.usd), 4)) == (120_000, 0.3333)


def test_a_price_told_again_with_a_later_date_is_the_same_one(place: Place) -> None:
    """Its date is the first one on which it is known; another price is another row of the same hour."""
    ledger = place.open()
    spend = SpendBook(ledger)
    spend.meter(a_round(NOW), BERLIN)
    spend.meter(a_round(NOW + MINUTE, as_of=date(2026, 3, 2)), BERLIN)
    spend.meter(a_round(NOW + 2 * MINUTE, usd="11"), BERLIN)
    spend.meter(a_round(NOW + 3 * MINUTE, usd=None), BERLIN)
    spend.meter(a_round(NOW + 4 * MINUTE, usd=None), BERLIN)
    found = {row.terms.usd_per_hour: (row.terms.price_as_of, sum(row.amounts[:7])) for row in spend.rows(*ALWAYS)}

    assert found == {
        Decimal(10): (date(2026, 1, 1), 120_000),
        Decimal(11): (date(2026, 1, 1), 60_000),
        None: (None, 60_000),
    }
    assert the_whole(ledger).unpriced_ms == 60_000


@settings(deadline=None, max_examples=examples(25))
@given(st.lists(st.tuples(st.integers(1, 290), st.booleans(), st.integers(1, 3)), min_size=1, max_size=8))
def test_no_crash_and_no_repetition_changes_a_second(rounds: list[tuple[int, bool, int]]) -> None:
    """Whatever dies in between and however often a round is metered, what is billed is the time from first to last."""
    ledger, at, last = Ledger.in_memory(), NOW, NOW
    spend = SpendBook(ledger)
    spend.meter(a_round(at), BERLIN)
    for seconds, dies, times in rounds:
        at += timedelta(seconds=seconds)
        if dies:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(spending, "SPEND_MARKS", None)
                with pytest.raises(AttributeError):
                    spend.meter(a_round(at), BERLIN)
            continue
        last = at
        for _ in range(times):
            spend.meter(a_round(at), BERLIN)

    assert the_whole(ledger).node_ms == (last - NOW) / timedelta(milliseconds=1)
    assert list(spend.wrong(*ALWAYS)) == []


def test_whoever_remembers_rows_learns_that_they_changed(place: Place) -> None:
    """By the proof of a pool's rows: a row more, more in one of them, or a day that was sealed; and by nothing else."""
    ledger = place.open()
    spend, useful = SpendBook(ledger), AMOUNTS[GPU + USES.index(Use.USEFUL)]
    proofs = []
    for hours in (0.0, 0.2, 0.4, 1.0, 1.4):
        at = NOW + timedelta(hours=hours)
        spend.meter(a_round(at), replace(BERLIN, silent_after_seconds=7200.0))
        proofs.append(spend.proof(*ALWAYS, "default", useful))

    assert proofs == [(0, 0, 0), (0, 1, 1_440_000), (0, 1, 2_880_000), (0, 1, 7_200_000), (0, 2, 10_080_000)]
    assert spend.proof(*ALWAYS, "default", useful) == proofs[-1]
    assert spend.proof(*ALWAYS, "serving", useful) == (0, 0, 0)
    days(ledger, NOW + timedelta(hours=2), 4)
    assert spend.proof(0, milliseconds(NOW) // 1000 + 3600, "default", useful)[0] == 3


def test_days_that_are_over_are_summed_up_and_sealed(place: Place) -> None:
    """Across the change to summer time: a day of 23 hours is one row a node, nothing is lost, and the chain has it."""
    begin = datetime(2026, 3, 28, 11, tzinfo=UTC)
    ledger = place.open()
    spend = SpendBook(ledger)
    days(ledger, begin, 4, "i-1", "i-2")
    spans = {(key.begin, key.span) for key, _, _ in spend.each(*ALWAYS) if key.span > 3600}
    by_day = totals(spend.rows(*ALWAYS, by_time=True), grouping("day", Calendar(BERLIN.zone)))

    midnight = Calendar(BERLIN.zone).midnight
    assert spans == {
        (midnight(date(2026, 3, 28)), 86_400),
        (midnight(date(2026, 3, 29)), 82_800),
        (midnight(date(2026, 3, 30)), 86_400),
    }
    assert {day: total.node_ms / 3_600_000 for day, total in by_day.items()} == {
        "2026-03-28": 24.0,  # two nodes, from noon on by Berlin's clocks
        "2026-03-29": 46.0,
        "2026-03-30": 48.0,
        "2026-03-31": 48.0,
        "2026-04-01": 26.0,
    }
    assert the_whole(ledger).node_ms == 2 * 4 * 86_400_000
    assert list(spend.wrong(*ALWAYS)) == []
    assert ledger.audit().broken is None


TAMPERED = {
    "UPDATE spend SET gpu_useful_ms = gpu_useful_ms + 1 WHERE span > 3600 AND node_id = 'i-1'": "was changed since",
    "UPDATE spend_terms SET usd_per_hour = '1'": "was changed since it was sealed",
    "DELETE FROM spend WHERE span > 3600 AND node_id = 'i-1'": "0 rows, 1 when it was sealed",
    "DELETE FROM spend WHERE span = 3600": "do not add up to what was metered",
    "UPDATE spend SET node_useful_ms = 5 WHERE span = 3600": "do not add up to what was metered",
    "UPDATE spend SET begin = begin - 864000 WHERE span > 3600": "lies in no sealed day: it was inserted",
}


@pytest.mark.parametrize(("statement", "wrong"), TAMPERED.items())
def test_rows_that_were_changed_are_told(tmp_path: Path, statement: str, wrong: str) -> None:
    """In sealed days by their seal, in others by the sums that are kept with the marks."""
    place = Place(LedgerSettings(path=str(tmp_path / "ledger.db")))
    ledger = place.open()
    spend = SpendBook(ledger)
    days(ledger, datetime(2026, 3, 28, 11, tzinfo=UTC), 3, every=timedelta(hours=2))
    assert list(spend.wrong(*ALWAYS)) == []
    place.execute(statement)
    found = list(spend.wrong(*ALWAYS))
    place.close()

    assert any(wrong in sentence for sentence in found), found


def test_a_changed_seal_is_found_by_the_audit(place: Place) -> None:
    """The seals are records of the chain, so that whoever mends one after a change is found as well."""
    ledger = place.open()
    days(ledger, datetime(2026, 3, 28, 11, tzinfo=UTC), 3)
    place.execute("UPDATE spend_days SET sha256 = 'made up' WHERE begin = (SELECT MIN(begin) FROM spend_days)")
    broken = ledger.audit().broken

    assert broken is not None
    assert (broken.kind, broken.wrong) == ("spend_day", "changed: its hash is another than its link's")


def test_a_month_without_a_controller_is_billed_by_the_day_and_silent() -> None:
    """Not 720 hours of each node: whole days that are over are one row from the first."""
    ledger = Ledger.in_memory()
    spend = SpendBook(ledger)
    spend.meter(a_round(NOW), BERLIN)
    later = NOW + timedelta(days=30)
    rows = spend.meter(a_round(later), BERLIN)
    total = the_whole(ledger)

    assert rows == 29 + 24 + 14  # days that are long over, and the hours of the last two
    assert (total.node_ms, total.unproven_ratio, total.waste_ratio) == (30 * 86_400_000, 1.0, 0.0)
    assert (total.usd_unproven, total.usd_wasted) == (Fraction(7200), Fraction(0))


def test_the_time_zone_may_change(place: Place) -> None:
    """Hours and days of both stay what they are, nothing is lost or counted twice, and the seals hold."""
    ledger = place.open()
    spend = SpendBook(ledger)
    begin = datetime(2026, 3, 10, tzinfo=UTC)
    days(ledger, begin, 3)
    kolkata = replace(BERLIN, zone=ZoneInfo("Asia/Kolkata"), silent_after_seconds=3600)
    for hour in range(73, 24 * 6 + 1):
        spend.meter(a_round(begin + timedelta(hours=hour)), kolkata)

    assert the_whole(ledger).node_ms == 6 * 86_400_000
    assert list(spend.wrong(*ALWAYS)) == []


def test_whoever_only_reads_meters_nothing(place: Place) -> None:
    """`gpuwatch cost` beside the controller sees what is there."""
    SpendBook(place.open()).meter(a_round(NOW), BERLIN)
    reader = place.beside()
    readers = SpendBook(reader)

    assert (readers.began(), readers.nodes()) == (int(NOW.timestamp() * 1000), frozenset())


def test_a_ledger_of_schema_2_begins_to_bill(tmp_path: Path) -> None:
    """Its migration makes the tables; everything else stays."""
    place = Place(LedgerSettings(path=str(tmp_path / "ledger.db")))
    place.open().record_round(a_round(NOW))
    place.close()
    for table in ("spend", "spend_terms", "spend_marks", "spend_days", "backtests"):
        place.execute(f"DROP TABLE {table}")
    place.execute("UPDATE meta SET value = '2' WHERE name = 'schema_version'")
    ledger = place.open()
    for minute in (0, 1):
        SpendBook(ledger).meter(a_round(NOW + minute * MINUTE), BERLIN)

    assert (the_whole(ledger).node_ms, len(ledger.rounds()), ledger.audit().broken) == (60_000, 1, None)
    place.close()
