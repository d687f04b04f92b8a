"""Wherever money is shown, a sentence says that some of it is at another region's price."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner

from gpuwatch.cli import scan_table, status
from gpuwatch.cli.main import commands
from gpuwatch.clouds.survey import Surveyed
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.controller.web import fleet_view
from gpuwatch.ledger import LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.money import Price, in_place_of_region
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.blocked.text import sums
from gpuwatch.money.scan import Looked, scan_document
from tests.support.builders.blocked import a_priced_desk, blocked_of
from tests.support.builders.fleet import NOW, a_node, a_verdict
from tests.support.builders.money import a_busy_node, a_round
from tests.support.builders.served_page import PRICE
from tests.support.builders.small_fleet import a_day
from tests.support.real.postgresql import Place

SOURCE = in_place_of_region("a list", "eu-west-2, the nearest with a list price", "eu-west-1")
SENTENCE = (
    "Some prices are of another region (eu-west-2), because the machine's own has no known list price; prices.file and "
    "prices.live have the right ones."
)
FAR = Price(usd_per_hour=Decimal(10), as_of=date(2026, 1, 1), source=SOURCE, exact=False, most_usd_per_hour=Decimal(13))


def test_status_says_it() -> None:
    """Behind the sums, once, and only while there is such a machine."""
    desk, done = a_day()
    page = nodes_page(done, desk.rulebook)
    far = replace(page, nodes=tuple(replace(row, price_source=SOURCE) for row in page.nodes))

    assert SENTENCE in status.totals(far)
    assert "another region" not in status.totals(page)


def test_the_page_says_it() -> None:
    """With its sums, and only while there is such a machine; `money.js` shows it below them."""
    desk, done = a_day()
    rows = nodes_page(done, desk.rulebook).nodes

    assert fleet_view.totals(done, [replace(row, price_source=SOURCE) for row in rows]).elsewhere == SENTENCE
    assert fleet_view.totals(done, rows).elsewhere is None


def test_scan_says_it_and_names_the_source_of_each_price() -> None:
    """In the document and in the remarks below the table."""
    place = Surveyed(where="eu-west-1", region="eu-west-1", watched=True, nodes=(a_node("i-1", region="eu-west-1"),))
    looked = Looked(cloud="", provider="aws", places=(place,), use={}, unmonitored={}, price=lambda _: FAR)
    found = scan_document([looked], fleet="lab", now=NOW, days=7)

    assert [row.price_source for row in found.machines] == [SOURCE]
    assert SENTENCE in list(scan_table.remarks(found, ()))


def test_blocked_says_it() -> None:
    """Below its sums."""
    idle = a_node("i-1", signal=NodeReport(verdict=a_verdict("i-1", State.IDLE, 9000.0)), protected="a tag")
    desk = a_priced_desk(idle)
    desk.prices = {"g6.xlarge": replace(PRICE, source=SOURCE)}

    assert list(sums(blocked_of(desk.plan(), desk)))[-1] == SENTENCE


@pytest.mark.parametrize("command", [("cost", "--month", "2026-03"), ("report", "--month", "2026-03")])
def test_what_was_metered_at_such_prices_says_it(command: tuple[str, ...], tmp_path: Path) -> None:
    """The ledger keeps the source of each price, and so which region's it was."""
    at = NOW.replace(year=2026, month=3, day=1, hour=10)
    ledger = (place := Place(LedgerSettings(path=str(tmp_path / "ledger.db")))).open()
    for hour in range(3):
        moment = at.replace(hour=10 + hour)
        seen = replace(a_round(moment, a_busy_node("i-1", moment)), prices={"g6.xlarge": FAR})
        SpendBook(ledger).meter(seen, Metering(zone=ZoneInfo("UTC"), silent_after_seconds=7200))
    ledger.close()
    config = tmp_path / "gpuwatch.yaml"
    config.write_text(f"ledger: {{path: {place.settings.path}}}\n")
    done = CliRunner().invoke(commands, [*command, "--config", str(config)])

    assert SENTENCE in " ".join(done.output.split()), done.output
