"""One ledger, asked everywhere: cost, waste, what nobody knows and what has no price are the same to the cent."""

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dashboards.source import cost as board
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.money import Price
from gpuwatch.money.accounting.settings import CostSettings, EnergySettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.report.cost import as_text, cost_document, cost_report
from gpuwatch.money.report.document import report_document
from gpuwatch.money.report.gather import gather_report
from gpuwatch.money.report.period import period_of
from gpuwatch.money.report.sections import figures
from gpuwatch.notify.reports import ReportContent
from gpuwatch.notify.transports.file import FORMATS
from tests.support.builders.fleet import NOW, Desk, a_node
from tests.support.builders.served_page import PRICE, Site, a_site

_USD = re.compile(r"\$([0-9,]+\.[0-9]{2})")
ODD = Price(usd_per_hour=Decimal("21.957642"), source="test", as_of=NOW.date())


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Two hours of a busy, an idle and a parked machine, one without an agent and one without a price."""
    desk = Desk(prices={"g6.xlarge": PRICE, "p4d.24xlarge": ODD})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0, owner="ann", instance_type="p4d.24xlarge"))
    desk.fleet.put(a_node("i-idle", held=60.0, pool="training", protected="its owner wants it"))
    desk.fleet.put(a_node("i-parked", State.PARKED, 60.0, owner="ann"))
    desk.fleet.put(replace(a_node("i-silent", instance_type="p4d.24xlarge"), signal=NodeReport()))
    desk.fleet.put(a_node("i-odd", State.BUSY, 60.0, instance_type="unheard.of"))
    with a_site(desk) as site:
        for _ in range(121):
            site.round()
        yield site


def cents(usd: Fraction) -> Decimal:
    """A sum as every surface shows it."""
    return Decimal(round(usd * 100)).scaleb(-2)


def amounts(text: str) -> list[Decimal]:
    """The sums of money in a text."""
    return [Decimal(each.replace(",", "")) for each in _USD.findall(text)]


def counted(rows: list[Row], matcher: str) -> float:
    """What a panel of the board adds up of the counter of dollars by use, as the controller counts it."""
    metrics = ControllerMetrics("enforce", "test", Desk().clock)
    metrics.count_billed(rows)
    pattern = matcher.removeprefix('use=~"').removesuffix('"')
    page = metrics.page().body.decode()
    found = re.findall(r'^gpuwatch_billed_usd_total\{.*?use="(\w+)".*?\} ([0-9.e+-]+)$', page, re.MULTILINE)
    assert found
    return sum(float(value) for use, value in found if re.fullmatch(pattern, use))


def test_every_surface_tells_the_same_cents(site: Site) -> None:
    """Rows by hand, `cost`, its JSON, the API, the report in all forms, and what the board adds up of the metrics."""
    now, zone, spend = site.desk.clock.now(), ZoneInfo("UTC"), SpendBook(site.desk.ledger)
    period = period_of(zone, now, day=f"{now:%Y-%m-%d}")
    rows = spend.rows(period.since, period.until)
    priced = [row for row in rows if row.terms.usd_per_hour is not None]
    by_hand = {"usd": Fraction(0), "usd_wasted": Fraction(0), "usd_unproven": Fraction(0)}
    for row in priced:
        _useful, idle, parked, stalled, down, unknown, silent = row.amounts[:7]
        rate = Fraction(row.terms.usd_per_hour or 0) / 3_600_000
        by_hand["usd"] += rate * sum(row.amounts[:7])
        by_hand["usd_wasted"] += rate * (idle + parked + stalled + down)
        by_hand["usd_unproven"] += rate * (unknown + silent)
    expected = {name: cents(usd) for name, usd in by_hand.items()}
    lacking = sum(sum(row.amounts[:7]) for row in rows if row.terms.usd_per_hour is None) / 3_600_000

    cost = cost_report(spend, period, "pool")
    report = gather_report(site.desk.ledger, period, now, CostSettings(), 60.0)
    totals: list[Any] = [
        cost_document(cost, EnergySettings()).total,
        report_document(report).total,
        *(
            {"usd": None, **site.ask(f"/api/v1/cost?period={each}&by={by}").json["total"]}
            for each in ("today", "month")
            for by in ("pool", "owner", "node")
        ),
    ]
    for total in totals:
        told = (
            total
            if isinstance(total, dict)
            else {name: getattr(total, name) for name in total.__slots__ or ()}
            | {name: getattr(total, name) for name in ("usd", "usd_wasted", "usd_unproven", "unpriced_machine_hours")}
        )
        assert {name: Decimal(told[name]) for name in expected} == expected
        assert told["unpriced_machine_hours"] == pytest.approx(lacking)
    lines = as_text(cost, EnergySettings()).splitlines()
    [whole] = [line for line in lines if line.startswith("all ")]
    assert amounts(whole) == [expected["usd"], expected["usd_wasted"], expected["usd_unproven"]]
    shown = {each.name: amounts(each.value) for each in figures(report).figures}
    assert [shown[name] for name in ("Cost", "Wasted", "Use not known")] == [[usd] for usd in expected.values()]
    for form in ("txt", "html"):
        page = FORMATS[form](ReportContent(report))
        assert all(f"${usd:,.2f}" in page for usd in expected.values())
    assert counted(rows, board.WASTED) == pytest.approx(float(by_hand["usd_wasted"]))
    assert counted(rows, board.UNPROVEN) == pytest.approx(float(by_hand["usd_unproven"]))
    assert counted(rows, 'use=~".*"') == pytest.approx(float(by_hand["usd"]))
    assert expected["usd_wasted"] > 10
    assert expected["usd_unproven"] > 40


def test_the_headline_has_proven_waste_first_and_what_nobody_knows_apart(site: Site) -> None:
    """A machine without an agent is no proof; a machine without a price is told with what to do."""
    now, zone = site.desk.clock.now(), ZoneInfo("UTC")
    report = gather_report(site.desk.ledger, period_of(zone, now, day=f"{now:%Y-%m-%d}"), now, CostSettings(), 60.0)
    text = FORMATS["txt"](ReportContent(report))
    words = " ".join(text.split())

    assert re.search(r"\(.*%\) was proven waste, and nobody knows the use of another \$43\.\d\d\.", words)
    assert "machine-hours have no known price (unheard.of in us-east-1): they are in no sum of money" in words
