"""What to reserve: never worse than not reserving, and never worse than reserving any other number."""

from decimal import Decimal
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.money.advice.commitment_plan import Terms, advised_plan, cheapest, plan, steady_plan
from gpuwatch.money.advice.commitments import advise

CENTS = Decimal("0.03")  # rounding of the parts

loads = st.lists(st.integers(0, 200).map(lambda tenths: tenths / 10), min_size=1, max_size=60)
shares = st.integers(0, 20).map(lambda each: Decimal(each) / 20)
offers = st.builds(
    Terms,
    price_per_hour=st.decimals("0.01", "100", places=2),
    one_year=shares,
    three_year=shares,
    spot=shares,
    spot_availability=shares,
    interruption_cost=st.none() | st.decimals(0, 10, places=2),
    tolerant=shares,
    three_year_load=shares,
)
OFFER = Terms(price_per_hour=Decimal("2.50"))


def hourly(load: list[float], terms: Terms, units: int, price: Decimal) -> float:
    """What an hour costs with so many units at a price: worked out hour by hour, without the code under test."""
    on_demand, tolerant = float(terms.price_per_hour), float(terms.tolerant)
    spot, share = float(terms.spot_price), float(terms.spot_availability)
    best = min(on_demand, share * spot + (1 - share) * on_demand)
    hours = []
    for used in load:
        firm = max(0.0, used * (1 - tolerant) - units)
        rest = max(0.0, used - units) - firm
        hours.append(units * float(price) + firm * on_demand + rest * best)
    return fmean(hours)


@given(loads, offers)
def test_the_advised_number_is_the_cheapest_of_all(load: list[float], terms: Terms) -> None:
    """No other number of units costs less per hour, found by trying them all."""
    price = terms.one_year_price
    units = cheapest(load, terms, price)

    costs = [hourly(load, terms, number, price) for number in range(25)]
    assert costs[units] == pytest.approx(min(costs), rel=1e-9, abs=1e-9)


@given(loads, offers)
def test_beyond_the_best_every_further_unit_costs_more(load: list[float], terms: Terms) -> None:
    """Costs fall up to the best number and never fall after it."""
    best = cheapest(load, terms, terms.one_year_price)
    costs = [plan(load, terms, number, 0).usd_per_year for number in range(25)]

    assert all(after <= before + CENTS for before, after in pairwise(costs[: best + 1]))
    assert all(after >= before - CENTS for before, after in pairwise(costs[best:]))


@given(loads, offers, st.integers(0, 30))
def test_advice_never_costs_more_than_today(load: list[float], terms: Terms, committed: int) -> None:
    """Not more than all on demand, and not more than what is reserved now."""
    assert advise(load, terms, committed).saved_usd_per_year >= -CENTS


weeks = st.lists(st.integers(0, 20), min_size=1, max_size=9).map(
    lambda each: [float(u) for u in each for _ in range(168)]
)


@given(weeks, offers)
def test_no_week_of_the_last_four_is_reserved_beyond_what_it_would_justify(load: list[float], terms: Terms) -> None:
    """Nor is the whole history, so that the plan never costs more than all on demand."""
    made = steady_plan(load, terms)
    units = made.one_year_units + made.three_year_units
    justified = [advised_plan(load[end - 168 : end], terms) for end in range(len(load), 0, -168)][:4]

    assert units <= min(each.one_year_units + each.three_year_units for each in [*justified, advised_plan(load, terms)])
    assert made.usd_per_year <= plan(load, terms, 0, 0).usd_per_year + CENTS


def test_what_pays_off_over_three_years_only_is_not_reserved_for_one() -> None:
    """GPU 1 works in four of five weeks: it may be worth three years at 75 % off, and never one year at 5 % off."""
    load = [0.0] * 168 + [1.0] * 504 + [3.0] * 168
    terms = Terms(
        price_per_hour=Decimal("0.01"),
        one_year=Decimal("0.05"),
        three_year=Decimal("0.75"),
        three_year_load=Decimal("0.25"),
    )

    assert steady_plan(load, terms).usd_per_year <= plan(load, terms, 0, 0).usd_per_year


def test_the_least_of_four_weeks_is_advised() -> None:
    """Weeks of 10, 10, 4 and 9 GPUs at all hours: 4, though 9 are worth it if the load stays."""
    load = [10.0] * 336 + [4.0] * 168 + [9.0] * 168
    terms = Terms(price_per_hour=Decimal(1), three_year=Decimal(0))
    advice = advise(load, terms)

    assert (advice.advised.one_year_units, advice.if_load_stays.one_year_units) == (4, 9)
    assert advice.advised.usd_per_year == 8760 * (4 * Decimal("0.7") + Decimal("4.25"))
    assert advise([*load, *[9.0] * 336], terms).advised.one_year_units == 4, "until three more weeks have passed"
    assert advise([*load, *[9.0] * 504], terms).advised.one_year_units == 9


def test_the_advice_says_what_it_would_have_saved_and_lost() -> None:
    """Five weeks of ten, then four of two: made after week 4 and 5, ten reserved cost 7 where 2 were paid on demand."""
    terms = Terms(price_per_hour=Decimal(1), three_year=Decimal(0))
    tried = advise([10.0] * 840 + [2.0] * 672, terms).tried

    assert tried.moments == 2
    assert tried.lost_ratio == 1.0
    assert tried.worst_ratio == pytest.approx(1 - 7 / 2)
    after_four = (7 * 5, 10 + 2 * 4)  # of five weeks; of four it is 7 * 4 to 2 * 4
    year = (7 * 8760, 8760 * (after_four[1] / 5))
    assert tried.saved_ratio == pytest.approx(1 - (2 * year[0]) / (year[1] + 2 * 8760), abs=1e-6)
    assert advise([10.0] * 1343, terms).tried.moments == 0


def test_what_is_reserved_today_is_told_with_its_use() -> None:
    """Eight reserved, six used: a quarter of 8 x 8,760 h at $1.75 buys nothing."""
    reserved = advise([6.0] * 672, OFFER, 8).reserved

    assert reserved is not None
    assert (reserved.units, reserved.used_ratio) == (8, 0.75)
    assert reserved.unused_usd_per_year == 2 * 8760 * Decimal("1.75")
    assert advise([6.0] * 672, OFFER).reserved is None


@given(loads, offers, st.integers(0, 10), st.integers(0, 10))
def test_parts_add_up_to_the_cent(load: list[float], terms: Terms, one: int, three: int) -> None:
    """The plan is its parts, and what is used of them is the load."""
    result = plan(load, terms, one, three)

    assert result.usd_per_year == sum(part.usd_per_year for part in result.parts)
    assert all(part.usd_per_year == part.usd_per_year.quantize(Decimal("0.01")) for part in result.parts)
    used = sum(float(part.unit_hours_per_year) * (part.used_ratio or 0.0) for part in result.parts)
    assert used == pytest.approx(fmean(load) * 8760, abs=0.05)


@given(loads, offers)
def test_a_better_offer_never_reserves_less(load: list[float], terms: Terms) -> None:
    """A lower price never makes a reserved unit worth less."""
    price = terms.one_year_price

    assert cheapest(load, terms, price * Decimal("0.8")) >= cheapest(load, terms, price)


def test_a_constant_load_is_reserved_whole() -> None:
    """Ten GPUs that always work: ten at the best price, and the discount is the saving."""
    advice = advise([10.0] * 672, Terms(price_per_hour=Decimal(2), three_year_load=Decimal(1)))

    assert (advice.advised.three_year_units, advice.advised.one_year_units) == (10, 0)
    assert advice.today.usd_per_year == 2 * 10 * 8760
    assert advice.saved_usd_per_year == Decimal("0.5") * 2 * 10 * 8760
    assert advice.warnings == ()


def test_three_years_are_planned_for_less_than_today() -> None:
    """Of ten GPUs eight are thought to be needed in three years; the other two for one."""
    result = advised_plan([10.0] * 672, OFFER)

    assert (result.three_year_units, result.one_year_units) == (8, 2)


def test_a_unit_pays_off_from_the_ratio_of_the_prices_on() -> None:
    """At 30 % off, a GPU used in 71 % of the hours is reserved and one used in 69 % is not."""
    terms = Terms(price_per_hour=Decimal(1), three_year=Decimal(0))

    assert advised_plan([1.0] * 71 + [0.0] * 29, terms).one_year_units == 1
    assert advised_plan([1.0] * 69 + [0.0] * 31, terms).one_year_units == 0
    assert advise([1.0], terms).break_even_one_year == pytest.approx(0.7)


def test_idle_reservations_cost_more_than_none() -> None:
    """The rule to reserve 70 % of the peak loses money where the peak is rare; the advice does not follow it."""
    load = [100.0] * 5 + [10.0] * 95
    seventy = plan(load, OFFER, 70, 0).usd_per_year
    advice = advise(load, OFFER)

    assert seventy > advice.today.usd_per_year > advice.advised.usd_per_year


def test_spot_takes_what_bears_interruption_while_it_is_there() -> None:
    """Half of four GPUs may be interrupted, spot is there for half of the time: a quarter of the hours."""
    terms = Terms(price_per_hour=Decimal(1), one_year=Decimal(0), three_year=Decimal(0), tolerant=Decimal("0.5"))
    parts = {part.name: part for part in advise([4.0] * 672, terms).advised.parts}

    assert parts["spot"].unit_hours_per_year == 8760
    assert parts["spot"].usd_per_year == Decimal("0.60") * 8760, "55 % of the price and 5 % for interruptions"
    assert parts["on demand"].unit_hours_per_year == 3 * 8760


def test_spot_that_costs_more_with_its_interruptions_is_not_used() -> None:
    """A discount of 45 % is none where each hour loses half an hour's work."""
    terms = Terms(price_per_hour=Decimal(1), tolerant=Decimal(1), interruption_cost=Decimal("0.5"))

    assert terms.spot_share == 0
    assert terms.tolerant_price == 1


def test_cheap_and_certain_spot_leaves_nothing_to_reserve() -> None:
    """What can always run at 40 % of the price is not reserved at 50 %."""
    terms = Terms(
        price_per_hour=Decimal(1),
        spot=Decimal("0.6"),
        spot_availability=Decimal(1),
        tolerant=Decimal(1),
        interruption_cost=Decimal(0),
    )
    result = advised_plan([5.0] * 100, terms)

    assert (result.one_year_units, result.three_year_units) == (0, 0)


def test_sensitivity_changes_one_thing_at_a_time() -> None:
    """Load, discounts, prices, and where spot is used its availability; each with the plan kept and one made anew."""
    names = [case.name for case in advise([3.0] * 672, Terms(price_per_hour=Decimal(1), tolerant=Decimal("0.5"))).cases]
    lower = advise([10.0] * 672, OFFER).cases[0]

    assert names == [
        "load 20 % lower",
        "load 20 % higher",
        "discounts 5 points smaller",
        "discounts 5 points larger",
        "prices fall 10 % a year",
        "prices fall 20 % a year",
        "prices fall 40 % a year",
        "spot availability 20 points lower",
        "spot availability 20 points higher",
    ]
    assert (lower.replanned.three_year_units, lower.replanned.one_year_units) == (6, 2)
    assert lower.advised_usd_per_year > lower.replanned.usd_per_year


@pytest.mark.parametrize(
    ("load", "committed", "words"),
    [
        ([5.0] * 671, 0, "only 671 hours were measured"),
        ([5.0] * 700 + [None], 0, "1 of 701 hours hold no value"),
        ([1.0] * 400 + [4.0] * 400, 0, "a mean of 1 units in the first half of the history, 4 in the second"),
        ([5.0] * 672, 9, "9 units are reserved today, 5 are worth it"),
    ],
)
def test_doubts_are_told(load: list[float | None], committed: int, words: str) -> None:
    """Short history, holes, a trend, and more reserved than is worth it."""
    warnings = advise(load, OFFER, committed).warnings

    assert [words in warning for warning in warnings] == [True], warnings


def test_a_hole_is_no_idle_hour() -> None:
    """What was not measured changes no advice."""
    assert advise([5.0, None, 5.0], OFFER).advised == advise([5.0], OFFER).advised


@pytest.mark.parametrize("load", [[], [None], [1.0, -1.0]])
def test_a_load_that_is_none_is_refused(load: list[float | None]) -> None:
    """Nothing measured, or less than nothing."""
    with pytest.raises(ValueError, match="load curve holds"):
        advise(load, OFFER)


@pytest.mark.parametrize(
    ("key", "value"),
    [("price_per_hour", "0"), ("one_year", "1.1"), ("spot", "-0.1"), ("interruption_cost", "-1"), ("tolerant", "NaN")],
)
def test_terms_that_cannot_be_are_refused(key: str, value: str) -> None:
    """By name, with the value: 37 means 0.37."""
    with pytest.raises(ValueError, match=f"{key} is {value}"):
        Terms(**{"price_per_hour": Decimal(1), key: Decimal(value)})


@given(st.sampled_from([Decimal("0.1"), Decimal("0.2"), Decimal("0.4")]), st.decimals(0, 1, places=2))
def test_falling_prices_are_those_of_three_years_paid_day_by_day(fall: Decimal, discount: Decimal) -> None:
    """On demand falls every day, one year when it is renewed, three years never."""
    terms = Terms(price_per_hour=Decimal(10), one_year=discount, three_year=discount, fall=fall)
    days = [10 * float(1 - fall) ** ((day + 0.5) / 365) for day in range(3 * 365)]
    renewed = [10 * float(1 - fall) ** year * float(1 - discount) for year in range(3)]

    assert float(terms.on_demand_price) == pytest.approx(fmean(days), rel=1e-5)
    assert float(terms.one_year_price) == pytest.approx(fmean(renewed))
    assert terms.three_year_price == 10 * (1 - discount)


def test_a_three_year_term_that_falling_prices_make_a_loss_is_shown_as_one() -> None:
    """Ten units in each hour, 50 % off for three years: at 40 % a year on demand costs as much, and a year less."""
    advice = advise([10.0] * 672, Terms(price_per_hour=Decimal(1), three_year_load=Decimal(1)))
    saved = {each.name: each.today_usd_per_year - each.advised_usd_per_year for each in advice.cases}
    then = {each.name: each.replanned for each in advice.cases}

    assert advice.advised.three_year_units == 10
    assert saved["prices fall 10 % a year"] > saved["prices fall 20 % a year"] > saved["prices fall 40 % a year"] > 0
    assert saved["prices fall 40 % a year"] < saved["prices fall 10 % a year"] / 20
    assert then["prices fall 10 % a year"].three_year_units == 10
    assert (then["prices fall 40 % a year"].three_year_units, then["prices fall 40 % a year"].one_year_units) == (0, 10)
