"""Ledgers of schema 6, which did not know the cloud of what was billed: nothing is lost, and nothing is made up."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from sqlalchemy import create_engine, inspect

from gpuwatch.ledger import Ledger, LedgerError, LedgerSettings
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import grouping, totals
from tests.support.builders.fleet import NOW
from tests.support.builders.money import a_busy_node, a_round
from tests.support.old_ledgers import copied, written
from tests.support.real.postgresql import Place, postgresql

ALWAYS = (0, 2**40)
UTC = ZoneInfo("UTC")
TWO_DAYS = 172_800.0
# Written by the gpuwatch of then: two machines over five days, of which three are sealed; two rounds, an open stop, a
# notice in force, a pause.
SCHEMA = 6


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.component("pg_ctl"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """A ledger of schema 6 in each database."""
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
    """Dollars of all that was ever metered."""
    found = totals(SpendBook(ledger).rows(*ALWAYS, by_node=True), grouping(what, Calendar(UTC)))
    return {name: Decimal(str(float(total.usd))) for name, total in found.items()}


def test_what_was_billed_stays_and_its_cloud_is_not_known(place: Place) -> None:
    """The sums by every label are those of before; seals and chain hold, and so does all else that was on record."""
    ledger = place.open()
    book, view = SpendBook(ledger), ledger.view(NOW)

    assert by(ledger, "node") == {"i-1": Decimal(840), "i-2": Decimal(840)}
    assert by(ledger, "owner") == {"(none)": Decimal(840), "ann": Decimal(840)}
    assert by(ledger, "cloud") == by(ledger, "provider") == {"(not known)": Decimal(1680)}
    assert list(book.wrong(*ALWAYS)) == []
    assert (ledger.audit().links, ledger.audit().broken) == (10, None)
    assert ([each.intent.node_id for each in view.open_intents], len(view.notices), len(view.pauses)) == (["i-1"], 1, 1)
    assert place.execute("SELECT value FROM meta WHERE name = 'schema_version'") == [("8",)]


def test_billing_goes_on_with_the_cloud_and_no_moment_is_billed_twice(place: Place) -> None:
    """From the first round on each machine-hour has its cloud; later seals of days with both kinds hold."""
    ledger = place.open()
    rules = Metering(zone=UTC, silent_after_seconds=6 * 3600, providers={"": "aws"})
    for hours in range(3, 3 + 4 * 24, 3):
        at = NOW + timedelta(hours=hours)
        SpendBook(ledger).meter(a_round(at, a_busy_node("i-1", at)), rules)
    found = by(ledger, "cloud")

    # i-1 for 96 hours, the first three under the terms of before; i-2 until half way to the first round.
    assert found == {"(not known)": Decimal(1680 + 30 + 15), "aws": Decimal(930)}
    assert list(SpendBook(ledger).wrong(*ALWAYS)) == []
    assert place.execute("SELECT count(*) FROM spend_days WHERE until > 1772323200")[0][0] >= 1


def test_a_migrated_ledger_has_the_columns_of_a_new_one(tmp_path: Path) -> None:
    """In the same order, so that both can be copied into each other."""
    written(tmp_path / "old.db", SCHEMA)
    shapes = []
    for name in ("old.db", "new.db"):
        Ledger.open(tmp_path / name).close()
        engine = create_engine(f"sqlite:///{tmp_path / name}")
        shapes.append([column["name"] for column in inspect(engine).get_columns("spend_terms")])
        engine.dispose()

    assert shapes[0] == shapes[1]
    assert shapes[0][-2:] == ["cloud", "provider"]


def test_readers_leave_a_ledger_of_schema_6_as_it_is(tmp_path: Path) -> None:
    """They say what to do."""
    path = written(tmp_path / "ledger.db", SCHEMA)
    with pytest.raises(LedgerError, match="schema version 6, this gpuwatch knows 8; start `gpuwatch controller` once"):
        Ledger.connect(LedgerSettings(path=str(path)), read_only=True)


def test_each_machine_hour_has_its_cloud_and_provider(tmp_path: Path) -> None:
    """By names where the settings have some; a machine that changes its cloud's name is billed once for each time."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    rules = Metering(zone=UTC, silent_after_seconds=7200, providers={"bj": "tencent", "us": "aws"})
    for hour, clouds in enumerate([("bj", "us"), ("bj", "us"), ("bj", "eu")]):
        at = NOW + timedelta(hours=hour)
        nodes = [replace(a_busy_node(f"i-{number}", at), cloud=cloud) for number, cloud in enumerate(clouds)]
        SpendBook(ledger).meter(a_round(at, *nodes), rules)

    assert by(ledger, "cloud") == {"bj": Decimal(20), "us": Decimal(20)}
    assert by(ledger, "provider") == {"aws": Decimal(20), "tencent": Decimal(20)}
    ledger.close()
