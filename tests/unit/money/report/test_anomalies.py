"""A day, a pool or an owner that costs what its past does not explain is reported once, with its machines."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.ledger import Ledger
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.scope import mark_tags
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.accounting.totals import Row
from gpuwatch.money.report.anomalies import Anomaly, find_anomalies
from gpuwatch.money.report.gather import gather_report, unusual_spending
from gpuwatch.money.report.period import Period
from gpuwatch.notify.reports import ReportContent
from tests.support.builders.fleet import a_node
from tests.support.builders.money import a_billed_row, a_round

BEGAN = date(2026, 1, 1)
CALENDAR = Calendar(ZoneInfo("UTC"))
Machine = tuple[str, str, str]  # its name, pool and owner
Days = Mapping[Machine, Callable[[date], float]]  # what each machine costs on a day


def rows(days: Days, day: date, usd: Callable[[date], str], account: str | None = None) -> list[Row]:
    """What was billed on a day: one row a machine, at that day's price an hour."""
    made = []
    for (name, pool, owner), cost in days.items():
        hours = cost(day) / float(usd(BEGAN))
        if hours:
            row = a_billed_row(hours, 0, pool=pool, owner=owner, usd=usd(day))
            terms = replace(row.terms, account=account)
            made.append(replace(row, terms=terms, node_id=name, begin=CALENDAR.midnight(day)))
    return made


def found_on(
    day: date, days: Days, usd: Callable[[date], str] = lambda _: "10", began: date = BEGAN
) -> tuple[Anomaly, ...]:
    """What is not usual on that day."""
    dates = [began + timedelta(days=number) for number in range((day - began).days + 1)]
    by_day = {at: rows(days, at, usd) for at in dates}
    lately = [row for at in dates[-8:-1] for row in by_day[at]]
    times = [row for each in by_day.values() for row in each]
    return find_anomalies(day, times, by_day[day], lately, CALENDAR, began)


def steady(
    count: int, usd: float, pool: str = "train", owner: str = "ben", prefix: str = "i"
) -> dict[Machine, Callable[[date], float]]:
    """So many machines that cost the same each day."""
    return {(f"{prefix}-{number}", pool, owner): lambda _: usd for number in range(count)}


def since(first: date, usd: float, last: date = date.max) -> Callable[[date], float]:
    """So much on each day from one to another."""
    return lambda day: usd if first <= day <= last else 0.0


def sentences(found: Sequence[Anomaly]) -> list[str]:
    """As people read them."""
    return [each.sentence for each in found]


def test_a_pool_that_doubles_is_reported_once_with_its_new_machines() -> None:
    """Ten machines of one owner: one sentence for pool, owner and fleet, on the first day and on no later one."""
    day = date(2026, 3, 16)
    days = steady(10, 240.0) | {(f"n-{number}", "train", "ben"): since(day, 240.0) for number in range(10)}

    [found] = found_on(day, days)
    assert [int(usd) for usd in (found.usd, found.usd_usual, found.usd_more)] == [4800, 2400, 2400]
    assert set(found.machines) == {f"n-{number}" for number in range(10)}
    assert {found.what, *found.also} == {"owner ben", "pool train"}
    assert found.sentence.startswith(
        "Owner ben cost $4,800.00 on 2026-03-16, $2,400.00 more than usual (also pool train)"
    )
    assert [found_on(day + timedelta(days=later), days) for later in range(1, 10)] == [()] * 9


def test_a_new_owner_is_reported_and_one_who_takes_over_is_not() -> None:
    """Mia's machines on top of 2,000 a day; where they were Ben's before, the fleet costs what it did."""
    day = date(2026, 3, 16)
    base = steady(15, 100.0, owner="ann")
    bens = {(f"b-{number}", "train", "ben"): since(BEGAN, 250.0, day - timedelta(days=1)) for number in range(2)}
    mias = {(f"m-{number}", "train", "mia"): since(day, 250.0) for number in range(2)}

    [found] = found_on(day, base | steady(2, 250.0, prefix="b") | mias)
    assert (found.what, int(found.usd_more), set(found.machines)) == ("owner mia", 500, {"m-0", "m-1"})
    assert found_on(day, base | bens | mias) == ()


def test_a_batch_at_each_months_end_is_explained_and_a_dearer_one_is_reported_against_it() -> None:
    """3,000 more on the last two days of each month; the first one is reported, the sixth is not, twice as much is."""

    def batch(usd: float) -> Callable[[date], float]:
        return lambda day: usd * ((day + timedelta(days=2)).month != day.month)

    base = steady(10, 240.0)
    usual = base | {("batch", "close", "finance"): batch(3000.0)}
    doubled = base | {("batch", "close", "finance"): lambda day: batch(6000.0 if day.month == 6 else 3000.0)(day)}

    assert [each.usd_more for each in found_on(date(2026, 1, 30), usual)] == [3000]
    assert found_on(date(2026, 1, 31), usual) == ()
    assert [found_on(date(2026, month, 30), usual) for month in (3, 4, 6)] == [()] * 3
    assert [each.usd_more for each in found_on(date(2026, 6, 29), doubled)] == [3000]


def test_the_end_of_a_holiday_is_no_anomaly_and_widens_nothing() -> None:
    """A week at an eighth, and then as before; months later a doubling is reported."""
    last = date(2026, 3, 8)
    days: Days = {
        ("i", "train", "ben"): lambda day: 300.0 if timedelta(0) < last - day <= timedelta(days=7) else 2400.0,
        ("n", "train", "ben"): since(date(2026, 4, 20), 2400.0),
    }

    assert [found_on(last + timedelta(days=later), days) for later in range(3)] == [()] * 3
    assert [each.usd_more for each in found_on(date(2026, 4, 20), days)] == [2400]


def test_a_new_price_is_reported_once_as_that_and_for_no_owner() -> None:
    """14 owners whose hours are as they were: the type, its price, what that makes a day."""
    day = date(2026, 3, 16)
    days = {(f"i-{number}", "train", f"o{number}"): lambda _: 240.0 for number in range(14)}

    [found] = found_on(day, days, lambda at: "12" if at >= day else "10")
    assert (found.what, int(found.usd_more)) == ("g6.xlarge in us-east-1", 14 * 48)
    assert found.cause == "its price is +20%, the hours are as they were"
    assert found_on(day + timedelta(days=1), days, lambda at: "12" if at >= day else "10") == ()
    assert found_on(day, days, lambda at: "10.30" if at >= day else "10") == (), "an exchange rate"


def test_an_account_that_was_never_metered_is_the_cause_that_is_named() -> None:
    """It was connected, or its machines were enrolled, on that day."""
    day = date(2026, 3, 16)
    old, new = steady(10, 240.0), {("n", "train", "mia"): since(day, 480.0)}
    dates = [BEGAN + timedelta(days=number) for number in range((day - BEGAN).days + 1)]
    times = [row for at in dates for row in (*rows(old, at, lambda _: "10"), *rows(new, at, lambda _: "10", "777"))]
    today = [row for row in times if row.begin == CALENDAR.midnight(day)]

    lately = [row for at in dates[-8:-1] for row in rows(old, at, lambda _: "10")]

    [found] = find_anomalies(day, times, today, lately, CALENDAR, BEGAN)
    assert (found.what, found.cause) == ("owner mia", "777 was not metered before")


def test_machines_that_were_enrolled_are_named_as_the_cause() -> None:
    """They ran before as machines of nobody's fleet, which are in no sum."""
    day = date(2026, 3, 16)
    old, new = steady(10, 240.0), {("n", "train", "mia"): lambda _: 480.0}
    dates = [BEGAN + timedelta(days=number) for number in range((day - BEGAN).days + 1)]

    def foreign(at: date) -> list[Row]:
        made = rows(new, at, lambda _: "10")
        return [replace(row, terms=replace(row.terms, tags=mark_tags((), ""))) for row in made] if at < day else made

    by_day = {at: [*rows(old, at, lambda _: "10"), *foreign(at)] for at in dates}
    lately, times = ([row for at in some for row in by_day[at]] for some in (dates[-8:-1], dates))

    [found] = find_anomalies(day, list(times), by_day[day], list(lately), CALENDAR, BEGAN)
    assert (found.what, found.cause) == ("owner mia", "1 machine that ran before, too, was enrolled")


def test_nothing_is_reported_in_the_first_two_weeks() -> None:
    """Neither a first Monday nor a third day says what is usual."""
    days: Days = {("i", "train", "ben"): lambda day: 1500.0 if day.weekday() < 5 else 300.0}

    assert [found_on(BEGAN + timedelta(days=number), days) for number in range(60)] == [()] * 60


def test_growth_of_one_percent_a_day_stands_out_on_no_day() -> None:
    """No day is far from the one before."""
    days: Days = {("i", "train", "ben"): lambda day: 1000 * 1.01 ** (day - BEGAN).days}

    assert [found_on(BEGAN + timedelta(days=number), days) for number in range(15, 60, 3)] == [()] * 15


def test_a_group_that_always_varies_is_reported_only_beyond_all_that() -> None:
    """Days between 500 and 5,000: 5,200 is silent, 15,000 is not. A year of such days has at most 12 false alarms."""
    draw = random.Random(4)
    values = [math.exp(draw.uniform(math.log(500), math.log(5000))) for _ in range(400)]
    day = date(2026, 4, 5)

    def costs(usd: float) -> Days:
        return {("i", "train", "ben"): lambda at: usd if at == day else values[(at - BEGAN).days]}

    assert found_on(day, costs(5200.0)) == ()
    assert found_on(day, costs(15_000.0)) != ()
    alarms = sum(len(found_on(BEGAN + timedelta(days=number), costs(0.0))) for number in range(100, 400, 10))
    assert alarms <= 1


@pytest.mark.parametrize("usd", [0.4, 4.0, 9.0])
def test_a_few_dollars_are_no_anomaly(usd: float) -> None:
    """Ten times nothing is nothing."""
    day = date(2026, 3, 16)

    assert found_on(day, steady(1, 0.4) | {("n", "train", "mia"): since(day, usd)}) == ()


def test_many_owners_with_chance_between_them_are_left_alone() -> None:
    """40 owners who use their machines on some days: none of a month is reported."""
    draw = random.Random(7)
    costs = {number: [draw.expovariate(1) * 300 * (draw.random() < 0.6) for _ in range(60)] for number in range(40)}
    days: Days = {
        (f"i-{number}", "train", f"o{number}"): lambda day, mine=mine: mine[(day - BEGAN).days]  # type: ignore[misc]
        for number, mine in costs.items()
    }

    assert sum(len(found_on(BEGAN + timedelta(days=number), days)) for number in range(40, 60, 4)) == 0


def test_days_that_nobody_saw_make_no_anomaly_of_the_next_one() -> None:
    """A controller that was down, and machines that then run as before."""
    day = date(2026, 3, 16)
    dates = [BEGAN + timedelta(days=number) for number in range((day - BEGAN).days + 1)]
    hole = frozenset({day - timedelta(days=1), day - timedelta(days=2)})
    times = [row for at in dates if at not in hole for row in rows(steady(3, 240.0), at, lambda _: str(Decimal(10)))]

    assert find_anomalies(day, times, rows(steady(3, 240.0), day, lambda _: "10"), [], CALENDAR, BEGAN, hole) == ()


def test_report_cost_and_chat_have_what_is_not_usual() -> None:
    """Of a ledger: eight machines more on the seventeenth day; on the day after all of them are silent."""
    ledger, begin = Ledger.in_memory(), datetime(2026, 1, 1, tzinfo=UTC)
    rules, grown = Metering(zone=ZoneInfo("UTC"), silent_after_seconds=30_000), begin + timedelta(days=16)
    for quarter in range(18 * 4 + 1):
        at = begin + timedelta(hours=6 * quarter)
        more = [a_node(f"n-{number}", launched_at=grown) for number in range(8 * (at >= grown))]
        SpendBook(ledger).meter(a_round(at, a_node("i-1", launched_at=begin), *more), rules)
    period = Period(zone=ZoneInfo("UTC"), first=grown.date(), after=grown.date() + timedelta(days=1))
    later = Period(zone=ZoneInfo("UTC"), first=period.after, after=period.after + timedelta(days=1))
    now = begin + timedelta(days=18)
    content = ReportContent(gather_report(ledger, period, now, CostSettings(), 60.0))

    [found] = unusual_spending(SpendBook(ledger), period, now)
    assert (found.what, int(found.usd_more), len(found.machines)) == ("pool default", 8 * 240, 8)
    assert unusual_spending(SpendBook(ledger), later, now) == ()
    assert "What is not usual" in content.text()
    assert found.sentence in " ".join(content.text().split())
    assert found.sentence in content.chat()
    assert [each["what"] for each in content.document("")["anomalies"]] == ["pool default"]


@pytest.mark.parametrize("usd", [("4", "20"), ("20", "4")])
def test_machines_of_one_type_with_different_prices_are_no_anomaly(usd: tuple[str, str]) -> None:
    """Own prices, or spot prices of two zones: steady for a month, and one of them ends."""
    day = date(2026, 2, 1)
    both = [steady(1, 24.0 * float(each), owner=f"o{number}", prefix=each) for number, each in enumerate(usd)]
    dates = [BEGAN + timedelta(days=number) for number in range((day - BEGAN).days + 1)]

    def of(at: date, machines: int = 2) -> list[Row]:
        pairs = list(zip(both, usd, strict=True))[:machines]
        return [row for days, each in pairs for row in rows(days, at, lambda _, each=each: each)]  # type: ignore[misc]

    lately, before = ([row for at in dates[first:-1] for row in of(at)] for first in (-8, 0))
    for today in (of(day), of(day, 1)):
        assert find_anomalies(day, [*before, *today], today, lately, CALENDAR, BEGAN) == ()


def test_of_two_prices_of_one_type_the_one_that_changes_is_told() -> None:
    """$4 stays and $20 becomes $30: $240.00 more, a price that is 50 % above the old one, and no owner's doing."""
    day = date(2026, 2, 1)
    cheap, dear = steady(1, 96.0, owner="ann", prefix="c"), steady(1, 480.0, owner="bob", prefix="d")
    dates = [BEGAN + timedelta(days=number) for number in range((day - BEGAN).days)]
    by_day = {at: rows(cheap, at, lambda _: "4") + rows(dear, at, lambda _: "20") for at in dates}
    today = rows(cheap, day, lambda _: "4") + rows(dear, day, lambda at: "30" if at == day else "20")
    lately = [row for at in dates[-7:] for row in by_day[at]]

    [found] = find_anomalies(
        day, [*(row for each in by_day.values() for row in each), *today], today, lately, CALENDAR, BEGAN
    )
    assert (found.what, found.usd, found.usd_more) == ("g6.xlarge in us-east-1", Decimal("816.00"), Decimal("240.00"))
    assert "its price is +50%" in found.sentence


def test_a_new_machine_with_a_price_of_its_own_is_its_owners_anomaly() -> None:
    """$4 stays, and a second machine of the type comes at $20: Mia's $480.00, and no new price."""
    day = date(2026, 2, 1)
    old, new = steady(1, 96.0), steady(1, 480.0, owner="mia", prefix="n")
    dates = [BEGAN + timedelta(days=number) for number in range((day - BEGAN).days)]
    before = [row for at in dates for row in rows(old, at, lambda _: "4")]
    today = rows(old, day, lambda _: "4") + rows(new, day, lambda _: "20")

    [found] = find_anomalies(day, [*before, *today], today, before[-7:], CALENDAR, BEGAN)
    assert (found.usd_more, found.machines) == (Decimal("480.00"), ("n-0",))
    assert "price" not in found.sentence
