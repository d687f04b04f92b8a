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
from dashboards.source.queries import WASTED
from gpuwatch.cli import status
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeReport, NodeState, NodeVerdict
from gpuwatch.model.money import Price
from gpuwatch.money.accounting.scope import count_in
from gpuwatch.money.accounting.settings import CostSettings, EnergySettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.accounting.useful_time import OF_NO_USE
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.money.budgets.tracker import Budgeting
from gpuwatch.money.report.cost import as_text, cost_document, cost_report
from gpuwatch.money.report.document import report_document
from gpuwatch.money.report.gather import gather_report
from gpuwatch.money.report.period import period_of
from gpuwatch.money.report.saved import saved_by_pool
from gpuwatch.money.report.sections import figures
from gpuwatch.notify.reports import ReportContent
from gpuwatch.notify.transports.file import FORMATS
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, a_verdict
from tests.support.builders.served_page import PRICE, Site, a_site

_USD = re.compile(r"\$([0-9,]+\.[0-9]{2})")
WASTED_NOW = WASTED.replace('=~"', '="(').removesuffix('"') + ')"'  # the board's matcher as an expression
ODD = Price(usd_per_hour=Decimal("21.957642"), source="test", as_of=NOW.date())


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Two hours of machines: busy, idle, parked, busy on one GPU of eight, without an agent, without a price.

    Three others are not ours: another fleet's, one that nobody enrolled, and one of them without a price.
    """
    desk = Desk(prices={"g6.xlarge": PRICE, "p4d.24xlarge": ODD})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0, owner="ann", instance_type="p4d.24xlarge"))
    desk.fleet.put(a_node("i-idle", held=60.0, pool="training", protected="its owner wants it"))
    desk.fleet.put(a_node("i-parked", State.PARKED, 60.0, owner="ann"))
    desk.fleet.put(replace(a_node("i-silent", instance_type="p4d.24xlarge"), signal=NodeReport()))
    desk.fleet.put(
        a_node("i-shared", gpu_count=8, instance_type="p4d.24xlarge", signal=NodeReport(verdict=one_of_eight()))
    )
    desk.fleet.put(a_node("i-odd", State.BUSY, 60.0, instance_type="unheard.of"))
    desk.fleet.put(a_node("i-vision", enrolled=False, instance_type="p4d.24xlarge", tags={"gpuwatch:fleet": "vision"}))
    desk.fleet.put(a_node("i-stray", State.PARKED, 60.0, enrolled=False, pool="strays", owner="zoe"))
    desk.fleet.put(a_node("i-stray-odd", State.BUSY, 60.0, enrolled=False, instance_type="unheard.of"))
    with a_site(desk) as site:
        for _ in range(121):
            site.round()
        yield site


def one_of_eight() -> NodeVerdict:
    """A machine of which one GPU works and seven do nothing."""
    verdict = a_verdict("i-shared", State.BUSY, 60.0, gpus=8)
    return replace(verdict, gpus=(*verdict.gpus[:1], *a_verdict("i-shared", State.IDLE, 60.0, gpus=8).gpus[1:]))


def cents(usd: Fraction) -> Decimal:
    """A sum as every surface shows it."""
    return Decimal(round(usd * 100)).scaleb(-2)


def amounts(text: str) -> list[Decimal]:
    """The sums of money in a text."""
    return [Decimal(each.replace(",", "")) for each in _USD.findall(text)]


def metrics_page(rows: list[Row]) -> str:
    """What a scrape of a controller says that has billed this."""
    metrics = ControllerMetrics("enforce", "test", Desk().clock)
    metrics.count_billed(rows)
    return metrics.page().body.decode()


def counted(rows: list[Row], matcher: str) -> float:
    """What a panel of the board adds up of the counter of dollars by use, as the controller counts it."""
    pattern = matcher.removeprefix('use=~"').removesuffix('"')
    found = re.findall(
        r'^gpuwatch_billed_usd_total\{.*?use="(\w+)".*?\} ([0-9.e+-]+)$', metrics_page(rows), re.MULTILINE
    )
    assert found
    return sum(float(value) for use, value in found if re.fullmatch(pattern, use))


def summed(rows: list[Row], name: str) -> float:
    """What all series of a counter add up to."""
    found = re.findall(rf"^gpuwatch_{name}\{{.*?\}} ([0-9.e+-]+)$", metrics_page(rows), re.MULTILINE)
    assert found
    return sum(map(float, found))


def test_every_surface_tells_the_same_cents(site: Site) -> None:
    """Rows by hand, `cost`, its JSON, the API, the report in all forms, and what the board adds up of the metrics."""
    now, zone, spend = site.desk.clock.now(), ZoneInfo("UTC"), SpendBook(site.desk.ledger)
    period = period_of(zone, now, day=f"{now:%Y-%m-%d}")
    rows = spend.rows(period.since, period.until)
    everything, rows = rows, [row for row in rows if row.terms.foreign is None]
    others = [row for row in everything if row.terms.foreign is not None]
    priced = [row for row in rows if row.terms.usd_per_hour is not None]
    by_hand = {"usd": Fraction(0), "usd_wasted": Fraction(0), "usd_unproven": Fraction(0), "usd_foreign": Fraction(0)}
    for row in others:
        by_hand["usd_foreign"] += Fraction(row.terms.usd_per_hour or 0) * sum(row.amounts[:7]) / 3_600_000
    for row in priced:
        _useful, idle, parked, stalled, down, unknown, silent = row.amounts[7:14]
        rate = Fraction(row.terms.usd_per_hour or 0) / 3_600_000 / row.terms.gpus
        by_hand["usd"] += rate * row.terms.gpus * sum(row.amounts[:7])
        by_hand["usd_wasted"] += rate * (idle + parked + stalled + down)
        by_hand["usd_unproven"] += rate * (unknown + silent)
    expected = {name: cents(usd) for name, usd in by_hand.items()}
    lacking = sum(sum(row.amounts[:7]) for row in rows if row.terms.usd_per_hour is None) / 3_600_000
    apart = {
        "unpriced_machine_hours": lacking,
        "unpriced_machines": 1,
        "foreign_machine_hours": sum(sum(row.amounts[:7]) for row in others) / 3_600_000,
        "foreign_unpriced_machine_hours": lacking,
        "foreign_machines": 3,
    }

    cost = cost_report(spend, period, "pool")
    report = gather_report(site.desk.ledger, period, now, CostSettings(), 60.0)
    totals: list[Any] = [
        cost_document(cost, EnergySettings()).total,
        report_document(report).total,
        *(
            {"usd": None, **site.ask(f"/api/v1/cost?period={each}&by={by}").json["total"]}
            for each in ("today", "month")
            for by in ("pool", "owner", "node", "day")
        ),
    ]
    for total in totals:
        told = (
            total
            if isinstance(total, dict)
            else {name: getattr(total, name) for name in total.__slots__ or ()}
            | {name: getattr(total, name) for name in (*expected, *apart)}
        )
        assert {name: Decimal(told[name]) for name in expected} == expected
        assert {name: told[name] for name in apart} == pytest.approx(apart)
    lines = as_text(cost, EnergySettings()).splitlines()
    [whole] = [line for line in lines if line.startswith("all ")]
    assert amounts(whole) == [expected["usd"], expected["usd_wasted"], expected["usd_unproven"]]
    [foreign] = [line for line in lines if line.startswith("Not ours: ")]
    assert amounts(foreign) == [expected["usd_foreign"]]
    assert "of 3 machines" in foreign
    shown = {each.name: amounts(each.value) for each in figures(report).figures}
    names = ("Cost", "Wasted", "Use not known", "Not ours")
    assert [shown[name] for name in names] == [[usd] for usd in expected.values()]
    for form in ("txt", "html"):
        page = FORMATS[form](ReportContent(report))
        assert all(f"${usd:,.2f}" in page for usd in expected.values())
    assert counted(rows, board.WASTED) == pytest.approx(float(by_hand["usd_wasted"]))
    assert counted(rows, board.UNPROVEN) == pytest.approx(float(by_hand["usd_unproven"]))
    assert counted(everything, 'use=~".*"') == pytest.approx(float(by_hand["usd"]))
    assert summed(everything, "foreign_usd_total") == pytest.approx(float(by_hand["usd_foreign"]))
    assert summed(everything, "foreign_node_seconds_total") == pytest.approx(apart["foreign_machine_hours"] * 3600)
    assert summed(everything, "billed_unpriced_node_seconds_total") == pytest.approx(lacking * 3600)
    assert expected["usd_wasted"] > 10
    assert expected["usd_unproven"] > 40
    assert expected["usd_foreign"] > 50


def test_an_account_counts_every_machine_on_every_surface(site: Site) -> None:
    """With `cost.scope: account` the same ledger has no foreign machine, and sums are those of all rows."""
    now, zone, spend = site.desk.clock.now(), ZoneInfo("UTC"), SpendBook(site.desk.ledger)
    period = period_of(zone, now, day=f"{now:%Y-%m-%d}")
    ours = cost_report(spend, period, "pool").whole
    count_in("account")
    cost = cost_report(spend, period, "pool")
    report = gather_report(site.desk.ledger, period, now, CostSettings(scope="account"), 60.0)

    assert cost.whole.usd == report.whole.usd == ours.usd + ours.foreign.usd
    assert cost.whole.node_ms == ours.node_ms + ours.foreign.node_ms
    assert not cost.whole.foreign.node_ms
    assert "cost.scope: account" in as_text(cost, EnergySettings())
    assert counted(spend.rows(period.since, period.until), 'use=~".*"') == pytest.approx(float(cost.whole.usd))


def test_the_page_and_the_table_of_now_leave_out_what_is_not_ours(site: Site) -> None:
    """The cost of now, the waste of now, a pool's cost and the gauges are of our machines, and say what others cost."""
    done = site.web.state.last()
    totals = site.ask("/api/v1/fleet").json["totals"]
    page = nodes_page(done, site.desk.rulebook)
    metrics = ControllerMetrics("enforce", "test", site.desk.clock, rules=site.desk.rulebook)
    metrics.round(done, 1.0)
    scrape = metrics.page().body.decode()
    ours, others = 3 * ODD.usd_per_hour + 2 * PRICE.usd_per_hour, ODD.usd_per_hour + PRICE.usd_per_hour
    wasted = 2 * PRICE.usd_per_hour + ODD.usd_per_hour * 7 / 8

    assert Decimal(totals["usd_per_hour"]) == ours
    assert Decimal(totals["usd_per_hour_not_used"]) == wasted
    assert (totals["foreign"], totals["foreign_unpriced"]) == (3, 1)
    assert Decimal(totals["usd_per_hour_foreign"]) == others
    words = status.totals(page)
    assert f"${ours:,.2f}/h" in words
    assert f"wasted now: ${wasted:,.2f}/h" in words
    gpus = re.findall(r'^gpuwatch_fleet_running_gpus\{.*?activity="(\w+)".*?\} ([0-9.]+)$', scrape, re.MULTILINE)
    assert sum(float(count) for _, count in gpus) == 13
    assert sum(float(count) for activity, count in gpus if activity in OF_NO_USE) == 9
    for name in ("node_wasted_usd_per_hour", "usd_per_hour"):
        found = re.findall(rf"^gpuwatch_fleet_{name}(\{{.*?\}}) ([0-9.]+)$", scrape, re.MULTILINE)
        told = [float(usd) for labels, usd in found if name != "usd_per_hour" or re.search(WASTED_NOW, labels)]
        assert sum(told) == pytest.approx(float(wasted))
    assert f"not ours, in no sum: 3 nodes, ${others:,.2f}/h, the price of 1 is not known" in words
    found = re.findall(r"^gpuwatch_fleet_(foreign_)?usd_per_hour\{.*?\} ([0-9.]+)$", scrape, re.MULTILINE)
    assert sum(float(usd) for foreign, usd in found if not foreign) == pytest.approx(float(ours))
    assert sum(float(usd) for foreign, usd in found if foreign) == pytest.approx(float(others))


def test_the_headline_has_proven_waste_first_and_what_nobody_knows_apart(site: Site) -> None:
    """A machine without an agent is no proof; a machine without a price is told with what to do."""
    now, zone = site.desk.clock.now(), ZoneInfo("UTC")
    report = gather_report(site.desk.ledger, period_of(zone, now, day=f"{now:%Y-%m-%d}"), now, CostSettings(), 60.0)
    text = FORMATS["txt"](ReportContent(report))
    words = " ".join(text.split())

    assert re.search(r"\(.*%\) was proven waste, and nobody knows the use of another \$43\.\d\d\.", words)
    assert words.startswith("GPU report")
    assert "6 machines cost" in words
    assert "machine-hours of 1 machine have no known price (unheard.of in us-east-1): they are in no sum" in words
    assert "zoe" not in words


def test_a_stopped_machine_that_its_cloud_goes_on_billing_is_in_the_cost_of_now_everywhere() -> None:
    """The ledger bills it; so page, status, metrics and the rate of a budget count it, too."""
    desk = Desk(prices={"g6.xlarge": PRICE})
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0))
    desk.fleet.put(replace(a_node("i-held"), state=NodeState.STOPPED, still_billed="it is stopped, not deallocated"))
    budget = Budgeting(ledger=desk.ledger, budgets={"all": Budget(usd_per_month=Decimal(1000))}, zone=ZoneInfo("UTC"))
    with a_site(desk) as site:
        site.round()
        site.round()
        done = site.web.state.last()
        told = site.ask("/api/v1/fleet").json["totals"]["usd_per_hour"]
        not_used = site.ask("/api/v1/fleet").json["totals"]["usd_per_hour_not_used"]
        metrics = ControllerMetrics("enforce", "test", desk.clock, rules=desk.rulebook)
        metrics.round(done, 1.0)
        scrape = metrics.page().body.decode()
        [state] = budget.states(done.observation)
        rows = SpendBook(desk.ledger).rows(0, 2**40, by_node=True)
    both = 2 * PRICE.usd_per_hour
    found = re.findall(r"^gpuwatch_fleet_usd_per_hour\{.*?\} ([0-9.]+)$", scrape, re.MULTILINE)

    assert {row.node_id: sum(row.amounts[:7]) for row in rows} == {"i-busy": 60_000, "i-held": 60_000}
    assert Decimal(told) == state.usd_per_hour == both
    assert f"${both:,.2f}/h; wasted now: ${PRICE.usd_per_hour:,.2f}/h (down" in status.totals(
        nodes_page(done, desk.rulebook)
    )
    assert not_used == str(PRICE.usd_per_hour)
    assert sum(map(float, found)) == pytest.approx(float(both))


@pytest.fixture(scope="module")
def stops() -> Iterator[Site]:
    """A stop that lasts, one that somebody undoes after some minutes, one that goes on being billed; and an ending."""
    rules = replace(RULES, idle=replace(RULES.idle, action="terminate"))
    desk = Desk(prices={"g6.xlarge": ODD}, limits=Limits(), pools={"default": RULES, "batch": rules})
    for name in ("i-off", "i-missed", "i-held"):
        desk.fleet.put(a_node(name))
    desk.fleet.put(a_node("i-ended", pool="batch"))
    with a_site(desk) as site:
        off_at = None
        for minute in range(180):
            site.round()
            stopped = set(desk.fleet.stops())
            if off_at is None and "i-missed" in stopped:
                off_at = minute
            if off_at is not None and minute == off_at + 7:
                desk.fleet.start("i-missed", "ann")
                desk.fleet.show("i-missed", State.BUSY)
            if "i-held" in stopped:
                node = desk.fleet.nodes_["i-held"]
                held = replace(node, state=NodeState.STOPPED, still_billed="it is not deallocated")
                desk.fleet.put(replace(held, signal=NodeReport()))
        yield site


def test_savings_are_the_same_cents_on_every_surface(stops: Site) -> None:
    """The report in all forms, its JSON, the API and the metrics: with the ending, and less what the wait cost."""
    desk, zone, now = stops.desk, ZoneInfo("UTC"), stops.desk.clock.now()
    report = gather_report(desk.ledger, period_of(zone, now), now, CostSettings(), 60.0)
    document = report_document(report).saved
    told = stops.ask("/api/v1/savings").json["month"]
    metrics = ControllerMetrics("enforce", "test", desk.clock)
    metrics.tell_savings(saved_by_pool(desk.ledger, zone, now, 60.0, desk.rulebook))
    page = metrics.page().body.decode()
    found = re.findall(r'^gpuwatch_(\w+)\{.*?pool="(\w+)"\} (\S+)$', page, re.MULTILINE)
    month, hour = (
        {pool: float(usd) for name, pool, usd in found if name == asked}
        for asked in ("saved_usd", "fleet_saved_usd_per_hour")
    )

    assert (told["stops"], told["terminations"], told["regretted_stops"]) == (3, 1, 1)
    assert Decimal(told["usd_waiting"]) > 0
    assert Decimal(told["usd"]) == Decimal(str(document.usd)) == cents(Fraction(sum(month.values())))
    assert {pool: cents(Fraction(usd)) for pool, usd in month.items()} == {
        each.name: Decimal(str(each.usd)) for each in document.by_pool
    }
    assert hour == {"batch": float(ODD.usd_per_hour), "default": float(ODD.usd_per_hour)}
    for form in ("txt", "html"):
        assert f"${Decimal(told['usd']):,.2f}" in FORMATS[form](ReportContent(report))
