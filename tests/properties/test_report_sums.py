"""The report's sums: parts equal the whole, on days of 23 and 25 hours, at month ends and price changes."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.usage import AMOUNTS, GPU, Terms
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Row, whole
from gpuwatch.money.report.blocks import Table
from gpuwatch.money.report.document import report_document
from gpuwatch.money.report.period import Period
from gpuwatch.money.report.report import Facts, Report, make_report
from gpuwatch.money.report.sections import sections
from gpuwatch.notify.reports import ReportContent
from gpuwatch.notify.transports.file import FORMATS
from tests.support.builders.ledger_fixture import BERLIN, DAY, INTERVAL, KNOBS, a_fortnight, a_report, at, the_fortnight
from tests.support.builders.money import a_busy_node, a_round

CENT = Fraction(1, 100)
SUNDAY = date(2026, 3, 29)  # its clocks go forward


@cache
def ledger() -> Ledger:
    """Through the Sunday whose clocks go forward, into April."""
    return a_fortnight(until=at(date(2026, 4, 1), 7)).ledger


def later(day: date, days: int = 1) -> Report:
    """Of a longer story, told after it."""
    return a_report(ledger(), day, days, now=at(date(2026, 4, 1), 7))


def cents(text: str | None) -> int:
    """Of a sum in the document."""
    return 0 if text is None else round(Decimal(text) * 100)


@st.composite
def rows(draw: st.DrawFn) -> list[Row]:
    """Rows of a few nodes under a few labels at odd prices, some without one."""
    made = []
    for number in range(draw(st.integers(1, 12))):
        usd = draw(st.none() | st.decimals("0.0001", "99.9999", places=4, allow_nan=False, allow_infinity=False))
        terms = Terms(
            pool=draw(st.sampled_from("ab")),
            owner=draw(st.none() | st.sampled_from("xyz")),
            account=None,
            region="r",
            instance_type="t",
            capacity_type="on_demand",
            gpus=draw(st.integers(0, 8)),
            usd_per_hour=usd,
            price_as_of=None,
            price_source=None,
            tags=draw(st.sampled_from(((), (("team", "nlp"),), (("team", "cv"),)))),
        )
        amounts = [0] * len(AMOUNTS)
        for place in draw(st.sets(st.integers(0, GPU - 1), min_size=1)):
            amounts[place] = draw(st.integers(1, 3_600_000))
            amounts[GPU + place] = amounts[place] * terms.gpus
        begin = at(DAY, 0) + timedelta(hours=draw(st.integers(0, 23)))
        made.append(Row(terms=terms, amounts=amounts, begin=int(begin.timestamp()), node_id=f"i-{number % 5}"))
    return made


@given(told=rows())
def test_every_slicing_adds_up_to_the_same_cent(told: list[Row]) -> None:
    """Of every slicing, and of the steps in time, the lines add up to the whole, in cost, waste and GPU-time."""
    period = Period(zone=BERLIN, first=DAY, after=SUNDAY)
    report = make_report(Facts(period=period, now=at(SUNDAY, 7), nodes=told, times=told, tags=("team",)))
    steps = report_document(report).steps

    for lines in report.slices.values():
        assert sum(line.cents for line in lines) == report.cents
        assert sum(line.wasted_cents for line in lines) == report.wasted_cents
        assert sum(line.total.gpu_ms for line in lines) == report.whole.gpu_ms
    assert whole(step.total for step in report.steps).usd == report.whole.usd
    assert all(step.usd is None for step in steps) or sum(100 * (step.usd or 0) for step in steps) == report.cents


@pytest.mark.parametrize("form", ["txt", "html", "json"])
def test_what_is_shown_adds_up(form: str) -> None:
    """Each table that ends in a sum shows rows that add up to it, the row of the others included."""
    report = later(DAY, 3)
    tables = [part for section in sections(report) for part in section.parts if isinstance(part, Table) and part.summed]
    checked = 0
    for table in tables:
        for column in list(zip(*table.rows, strict=True))[1:]:
            numbers = [cell.removesuffix("+?").replace("$", "").replace(",", "") for cell in column]
            if all(number.replace(".", "").isdigit() for number in numbers if number not in {"unknown", "?", ""}):
                values = [Decimal(number) for number in numbers if number not in {"unknown", "?", ""}]
                checked += 1
                assert not values or sum(values[:-1]) == values[-1], (table.caption, column)

    assert checked > 10
    assert FORMATS[form](ReportContent(report))


def test_days_add_up_to_the_stretch() -> None:
    """Three days by themselves are the three days together: cost, waste and savings, exactly."""
    days = [later(DAY - timedelta(days=1)), later(DAY), later(SUNDAY)]
    together = later(DAY - timedelta(days=1), 3)

    assert sum((day.whole.usd for day in days), Fraction(0)) == together.whole.usd
    assert sum((day.whole.usd_wasted for day in days), Fraction(0)) == together.whole.usd_wasted
    assert sum((day.facts.saved.whole.usd for day in days), Fraction(0)) == together.facts.saved.whole.usd
    assert [len(day.steps) for day in days] == [1, 1, 1]  # sealed: no hours are known any more
    assert [step.label for step in together.steps] == ["2026-03-27", "2026-03-28", "2026-03-29"]


@pytest.mark.parametrize(("day", "hours"), [(date(2026, 3, 29), 23), (date(2026, 10, 25), 25), (DAY, 24)])
def test_a_day_has_the_hours_that_its_clocks_show(day: date, hours: int) -> None:
    """A machine that ran all day is billed for 23, 24 or 25 hours, a step each; an hour shown twice is two."""
    ledger, now = Ledger.in_memory(), at(day, 0).astimezone(UTC) - timedelta(hours=1)
    end = at(day + timedelta(days=1), 1).astimezone(UTC)
    while now <= end:
        node = replace(a_busy_node("i-1", now), launched_at=now - timedelta(days=9))
        SpendBook(ledger).meter(a_round(now, node), KNOBS.metering(INTERVAL))
        now += timedelta(hours=1)
    report = a_report(ledger, day, now=end)

    assert report.cents == hours * 10_00
    assert [round(step.total.usd) for step in report.steps] == [10] * hours
    assert report.month is not None or report.no_forecast is not None


def test_a_price_that_changes_in_mid_hour_is_two_prices() -> None:
    """Half an hour at $10 and half at $20 is $15 in that hour, and both prices are frozen where they held."""
    ledger, begin = Ledger.in_memory(), at(DAY, 0)
    for minute in range(0, 25 * 60, 30):
        now = begin + timedelta(minutes=minute)
        node = replace(a_busy_node("i-1", now), launched_at=begin - timedelta(days=1))
        SpendBook(ledger).meter(
            a_round(now, node, usd="10" if minute < 12 * 60 + 30 else "20"), KNOBS.metering(INTERVAL)
        )
    report = a_report(ledger, DAY, now=begin + timedelta(hours=25))
    by_hour = {step.label: float(step.total.usd) for step in report.steps}

    assert (by_hour["11:00"], by_hour["12:00"], by_hour["13:00"]) == (10.0, 15.0, 20.0)
    assert report.cents == (12 * 10 + 15 + 11 * 20) * 100
    assert [line.cents for line in report.slices["node"]] == [report.cents]


def test_the_last_day_of_a_month_is_told_with_its_month() -> None:
    """Of the month's last day, sent on the first of the next, the forecast is what the month came to."""
    report, month = later(date(2026, 3, 31)), later(date(2026, 3, 1), 31)

    assert report.month is not None
    assert (f"{report.month.month:%Y-%m}", report.month.method) == ("2026-03", "measured")
    assert report.month.expected == report.month.actual == Decimal(month.cents) / 100
    assert [f"{each.month:%Y-%m}" for each in report.year][:2] == ["2026-04", "2026-05"]


def test_a_stretch_is_compared_with_its_like() -> None:
    """A day with the same weekday before, a month or a year with the one before, other days with as many before."""
    named = {
        (date(2026, 3, 28), date(2026, 3, 29)): "Saturday 2026-03-21",
        (date(2026, 3, 1), date(2026, 4, 1)): "2026-02-01 to 2026-02-28",
        (date(2026, 1, 1), date(2027, 1, 1)): "2025-01-01 to 2025-12-31",
        (date(2026, 3, 10), date(2026, 3, 13)): "2026-03-07 to 2026-03-09",
    }

    for (first, after), before in named.items():
        assert str(Period(zone=BERLIN, first=first, after=after).before) == before


def test_missing_time_is_told_and_is_never_idle() -> None:
    """Hours without rounds are silent waste with their begin and end; what began late is told as well."""
    report = a_report(the_fortnight())
    document = report_document(report)
    first = report_document(later(date(2026, 3, 14)))

    night = datetime(2026, 3, 28, tzinfo=UTC)
    assert document.missing.gaps == ((night, night + timedelta(hours=5)),)
    assert document.total.gpu_ms["silent"] == 5 * 29 * 3_600_000
    assert first.missing.metered_since == datetime(2026, 3, 13, 23, tzinfo=UTC)
    assert json.loads(FORMATS["json"](ReportContent(report)))["over"] is True


def test_a_day_that_is_not_over_says_so() -> None:
    """Of today all that is metered is told, and until when."""
    report = a_report(a_fortnight(until=at(DAY, 12)).ledger, now=datetime(2026, 3, 28, 11, 30, tzinfo=UTC))

    assert report.over is False
    assert "These days are not over: figures are as of 2026-03-28 12:30." in FORMATS["txt"](ReportContent(report))
    assert all(step.label < "12:00" for step in report.steps)


def test_states_are_of_the_newest_round() -> None:
    """Idle machines are told with what happens next, stopped ones with who stopped them, sick GPUs with the remedy."""
    seen = a_report(the_fortnight()).facts.inventory

    assert seen is not None
    assert [(each.name, each.state) for each in seen.machines.idle if each.name == "odd-1"] == [("odd-1", State.PARKED)]
    assert [(each.name, each.by_gpuwatch) for each in seen.machines.stopped] == [("train-4", True)]
    assert [(seen.names[each.node_id], each.gpu, each.remedy.value) for each in seen.health.not_well] == [
        ("train-2", "3", "reset")
    ]
