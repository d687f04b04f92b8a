"""Ledgers of schema 7, which did not know who held the GPUs of a cluster: nothing is lost, and nothing is made up."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import create_engine, inspect

from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.model.decision import Observation
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import grouping, totals
from tests.support.builders.fleet import NOW
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_busy_node, a_round
from tests.support.old_ledgers import copied, written
from tests.support.real.postgresql import Place, postgresql

# Written by the gpuwatch of then: two machines over five days, of which three are sealed, and two rounds.
SCHEMA = 7
ALWAYS = (0, 2**40)
UTC = ZoneInfo("UTC")
TWO_DAYS = 172_800.0
TABLES = ("spend_holders", "spend_held")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A ledger of schema 7 in each database."""
    path = tmp_path / "ledger.db"
    if request.param == "sqlite":
        made = Place(LedgerSettings(path=str(written(path, SCHEMA)), hourly_spend_retention=TWO_DAYS))
    else:
        url = postgresql().database()
        copied(path, url, SCHEMA)
        made = Place(LedgerSettings(url=url, hourly_spend_retention=TWO_DAYS))
    yield made
    made.close()


def by(ledger: Ledger, what: str) -> dict[str, Decimal]:
    """Dollars of all that was ever metered, by who held the GPUs."""
    found = totals(SpendBook(ledger).rows_by_holder(*ALWAYS), grouping(what, Calendar(UTC)))
    return {name: Decimal(str(float(total.usd))) for name, total in found.items()}


def in_a_cluster(hours: int) -> Observation:
    """i-1 is a node of a cluster, with one pod that holds one of its two GPUs; i-2 is in none."""
    at = NOW + timedelta(hours=hours)
    known = shown_node("gpu-1", "i-1", shown_pod("serve-0", "gpu-1", gpus=1.0, namespace="team"), gpus=2.0)
    nodes = (replace(a_busy_node("i-1", at), owner="ann", kubernetes=known), a_busy_node("i-2", at))
    seen = a_round(at, *nodes)
    return replace(seen, fleet=replace(seen.fleet, cluster=shown_cluster(known)))


def test_what_was_billed_stays_and_is_of_no_cluster(place: Place) -> None:
    """The sums are those of before, and seals and chain hold."""
    ledger = place.open()
    book = SpendBook(ledger)

    assert by(ledger, "namespace") == {"(no cluster)": Decimal(1680)}
    assert list(book.wrong(*ALWAYS)) == []
    assert ledger.audit().broken is None
    assert place.execute("SELECT value FROM meta WHERE name = 'schema_version'") == [("8",)]


def test_billing_goes_on_with_who_held_the_gpus(place: Place) -> None:
    """From the first round on each GPU-hour of the cluster has its namespace; later seals hold, with and without."""
    ledger = place.open()
    rules = Metering(zone=UTC, silent_after_seconds=6 * 3600, providers={"": "aws"})
    for hours in range(3, 3 + 4 * 24, 3):
        SpendBook(ledger).meter(in_a_cluster(hours), rules)
    found = by(ledger, "namespace")

    # i-1 for 96 hours at $10, half of it for one pod; both for the 84 hours before, and i-2 for these 96 hours, too.
    assert found == {"(no cluster)": Decimal(1680 + 960), "(unallocated)": Decimal(480), "team": Decimal(480)}
    assert list(SpendBook(ledger).wrong(*ALWAYS)) == []
    assert place.execute("SELECT count(*) FROM spend_held WHERE span = 86400")[0][0] >= 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE spend_held SET gpu_useful_ms = gpu_useful_ms - 1 WHERE begin = (SELECT max(begin) FROM spend_held)",
        "UPDATE spend_holders SET namespace = 'other' WHERE namespace = 'team'",
    ],
)
def test_rows_that_were_changed_are_named(place: Place, change: str) -> None:
    """An open row that says less, and a sealed one that is of another namespace now, are seen."""
    ledger = place.open()
    rules = Metering(zone=UTC, silent_after_seconds=6 * 3600)
    for hours in range(3, 3 + 4 * 24, 3):
        SpendBook(ledger).meter(in_a_cluster(hours), rules)
    place.execute(change)

    assert any("changed" in each for each in SpendBook(ledger).wrong(*ALWAYS))


def test_a_migrated_ledger_has_the_tables_of_a_new_one(tmp_path: Path) -> None:
    """With the same columns in the same order."""
    written(tmp_path / "old.db", SCHEMA)
    shapes = []
    for name in ("old.db", "new.db"):
        Ledger.open(tmp_path / name).close()
        engine = create_engine(f"sqlite:///{tmp_path / name}")
        shapes.append([[column["name"] for column in inspect(engine).get_columns(table)] for table in TABLES])
        engine.dispose()

    assert shapes[0] == shapes[1]


def test_readers_leave_a_ledger_of_schema_7_as_it_is(tmp_path: Path) -> None:
    """They say what to do."""
    path = written(tmp_path / "ledger.db", SCHEMA)
    with pytest.raises(LedgerError, match="schema version 7, this gpuwatch knows 8; start `gpuwatch controller` once"):
        Ledger.connect(LedgerSettings(path=str(path)), read_only=True)


def test_the_exact_sum_is_that_of_the_machines(place: Place) -> None:
    """As fractions, not to the cent: of each terms and of all."""
    ledger = place.open()
    rules = Metering(zone=UTC, silent_after_seconds=6 * 3600)
    for hours in range(3, 30):
        SpendBook(ledger).meter(in_a_cluster(hours), rules)
    book = SpendBook(ledger)
    machines, holders = (
        sum((total.usd for total in totals(rows, lambda row: row.terms.pool).values()), Fraction(0))
        for rows in (book.rows(*ALWAYS), book.rows_by_holder(*ALWAYS))
    )

    assert machines == holders
