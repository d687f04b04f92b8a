"""Own or rent: by hand arithmetic, and never dearer than owning any other number."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.money.advice.ownership import Terms, advise, year_usd

LOADS = st.lists(st.integers(0, 80).map(lambda tenths: tenths / 10), min_size=1, max_size=40)
TERMS = st.builds(
    Terms,
    price_usd=st.decimals("1000", "400000", places=0),
    rent_usd_per_hour=st.decimals("0.10", "60", places=2),
    years=st.integers(1, 6).map(Decimal),
    resale=st.integers(0, 10).map(lambda each: Decimal(each) / 20),
    watts_busy=st.integers(500, 12000).map(Decimal),
    staff_usd_per_year=st.integers(0, 30000).map(Decimal),
)
# 100,000 over four years without resale, interest, repairs: 25,000 a year. 10 kW at $0.10 and a PUE of 1.2: $1.20/h.
PLAIN = Terms(
    price_usd=Decimal(100_000),
    rent_usd_per_hour=Decimal(12),
    years=Decimal(4),
    resale=Decimal(0),
    capital_cost=Decimal(0),
    repairs=Decimal(0),
    watts_busy=Decimal(10_000),
    watts_idle=Decimal(2_500),
    pue=Decimal("1.2"),
    usd_per_kwh=Decimal("0.10"),
)


NO_POWER = replace(PLAIN, watts_busy=Decimal(0), watts_idle=Decimal(0))


def test_the_break_even_by_hand() -> None:
    """At rest it takes $0.30 an hour, at work $0.90 more: (25,000 + 8,760 x 0.30) / (12 - 0.90) / 365 hours a day."""
    found = advise(PLAIN)

    assert found.break_even_hours_a_day == pytest.approx((25_000 + 8_760 * 0.30) / 11.10 / 365)
    day = next(point for point in found.curve if point.hours_a_day == 8)
    assert day.own_usd == Decimal("25000.00") + Decimal(8_760 * 30 + 2_920 * 90) / 100
    assert day.rent_usd == Decimal(8 * 365 * 12)


def test_value_interest_and_repairs_by_hand() -> None:
    """$100,000 that are worth 20 % after four years: 20,000 a year, 6 % of the mean of 60,000, 3 % for repairs."""
    terms = Terms(price_usd=Decimal(100_000), rent_usd_per_hour=Decimal(12), years=Decimal(4))

    assert dict(terms.fixed) == {
        "loss of value": Decimal(20_000),
        "cost of the money": Decimal(3_600),
        "repairs": Decimal(3_000),
        "staff": 0,
        "hosting": 0,
    }


def test_of_a_load_that_base_is_owned_which_is_busy_for_long_enough() -> None:
    """Two machines day and night and a third for two hours: the break-even is about seven hours."""
    found = advise(PLAIN, [2.0] * 22 + [3.0] * 2).load

    assert found is not None
    assert (found.own_machines, found.hours) == (2, 24)
    assert found.advised_usd < min(found.rented_usd, found.owned_usd)


@pytest.mark.parametrize(("rent", "pays"), [("0.80", False), ("2.00", False), ("5.00", True)])
def test_who_rents_for_less_than_the_power_never_buys(rent: str, pays: bool) -> None:
    """Nor who would have to be busy for more than 24 hours a day."""
    terms = Terms(
        price_usd=Decimal(100_000),
        rent_usd_per_hour=Decimal(rent),
        years=Decimal(4),
        resale=Decimal(0),
        watts_busy=Decimal(10_000),
        pue=Decimal(1),
        usd_per_kwh=Decimal("0.10"),
    )

    assert (advise(terms).break_even_hours_a_day is not None) is pays


@given(terms=TERMS, load=LOADS)
def test_no_other_number_of_machines_costs_less(terms: Terms, load: list[float]) -> None:
    """Tried one by one."""
    found = advise(terms, load).load
    assert found is not None
    years = [year_usd(terms, load, machines) for machines in range(int(max(load)) + 3)]

    assert year_usd(terms, load, found.own_machines) <= min(years) + Decimal("0.000001")


@given(terms=TERMS)
def test_at_the_break_even_both_cost_the_same(terms: Terms) -> None:
    """Where there is one."""
    found = advise(terms).break_even_hours_a_day

    if found is not None:
        busy = found * 365
        assert float(terms.own_usd(busy)) == pytest.approx(float(terms.rent_usd(busy)), rel=1e-6)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("price_usd", "0", "price_usd is 0; it must be above 0"),
        ("years", "-1", "years is -1; it must be above 0"),
        ("pue", "0.9", "pue is 0.9; a building never takes less"),
        ("watts_idle", "1", "watts_idle is 1; it must not be above watts_busy, 0"),
    ],
)
def test_what_cannot_be_is_refused(field: str, value: str, says: str) -> None:
    """By name and value."""
    changed: dict[str, Any] = {field: Decimal(value)}
    with pytest.raises(ValueError, match=says):
        replace(NO_POWER, **changed)
