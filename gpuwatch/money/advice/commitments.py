"""What to reserve for one and three years, what to run on spot, what to leave on demand, from a measured load curve.

A unit (a GPU or a machine) that is reserved costs the same in every hour; one that is not costs only in the hours in
which it is used. So the k-th unit is worth reserving if the hours in which the load reaches it would cost more
otherwise. At the optimum the share of hours in use of the last unit is the ratio of the two prices (the quantile of
the load duration curve, as of the newsvendor). docs/advice.md has the formulas. Load is known as float means;
money is Decimal.

A reservation outlives the load that it was made for. So what is advised is the least that each of the last four weeks,
and the whole history, would have justified; the advice also has the optimum of the whole history.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil, fsum
from statistics import fmean

HOURS_A_YEAR = 8760
HOURS_OF_FOUR_WEEKS = 672

_WEEK = 168
_WEEKS = 4
_MOST_MOMENTS = 12
_CENT = Decimal("0.01")
_STRONG = 0.2  # a change of the mean from the first half of the history to the second


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is on offer. Discounts are shares of the on-demand price: 0.3 means that 70 % of it is paid.

    The defaults are assumptions for a first look, not a quote; docs/advice.md says where they are from.
    """

    price_per_hour: Decimal  # of one unit on demand
    one_year: Decimal = Decimal("0.30")
    three_year: Decimal = Decimal("0.50")
    spot: Decimal = Decimal("0.45")
    spot_availability: Decimal = Decimal("0.5")  # of the hours in which it is wanted
    interruption_cost: Decimal | None = None  # per spot unit-hour; None: 5 % of the on-demand price
    tolerant: Decimal = Decimal(0)  # the share of the load that may be interrupted
    three_year_load: Decimal = Decimal("0.8")  # of the load measured: what three years are planned for

    def __post_init__(self) -> None:
        """Refuse what is no price and no share.

        Raises:
            ValueError: names the field, its value and what would be right.

        """
        if not (self.price_per_hour.is_finite() and self.price_per_hour > 0):
            raise ValueError(f"price_per_hour is {self.price_per_hour}; it must be above 0")
        for name in ("one_year", "three_year", "spot", "spot_availability", "tolerant", "three_year_load"):
            share = getattr(self, name)
            if not (share.is_finite() and 0 <= share <= 1):
                raise ValueError(f"{name} is {share}; it is a share from 0 to 1")
        cost = self.interruption_cost
        if cost is not None and not (cost.is_finite() and cost >= 0):
            raise ValueError(f"interruption_cost is {cost}; it must not be below 0")

    @property
    def one_year_price(self) -> Decimal:
        """The price of a unit for an hour, reserved for one year, used or not."""
        return self.price_per_hour * (1 - self.one_year)

    @property
    def three_year_price(self) -> Decimal:
        """The price of a unit for an hour, reserved for three years, used or not."""
        return self.price_per_hour * (1 - self.three_year)

    @property
    def spot_price(self) -> Decimal:
        """The price of a used unit-hour on spot, with the cost of interruptions."""
        cost = self.price_per_hour * Decimal("0.05") if self.interruption_cost is None else self.interruption_cost
        return self.price_per_hour * (1 - self.spot) + cost

    @property
    def spot_share(self) -> Decimal:
        """Of the unreserved hours that tolerate interruption: those run on spot; none where spot is not cheaper."""
        return self.spot_availability if self.spot_price < self.price_per_hour else Decimal(0)

    @property
    def tolerant_price(self) -> Decimal:
        """Of an unreserved unit-hour that tolerates interruption: spot while there is any, else on demand."""
        return self.spot_share * self.spot_price + (1 - self.spot_share) * self.price_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one kind of capacity costs in a year like the one measured; parts add up to the plan to the cent.

    `units` is null for what is not reserved, `used_ratio` (of the unit-hours paid for) where nothing is paid for.
    """

    name: str
    units: int | None
    unit_hours_per_year: Decimal
    used_ratio: float | None
    usd_per_year: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How many units to reserve, and what a year costs with them."""

    one_year_units: int
    three_year_units: int
    parts: tuple[Part, ...]

    @property
    def usd_per_year(self) -> Decimal:
        """The sum of its parts."""
        return sum((part.usd_per_year for part in self.parts), Decimal(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Were things otherwise: what a year would cost today's way, with the advised plan, and with the advice then."""

    name: str
    today_usd_per_year: Decimal
    advised_usd_per_year: Decimal
    replanned: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a rule would have saved of all on demand: committed to at the end of a past week, paid for ever since.

    `saved_ratio` is of all `moments` together, `lost_ratio` the share of them at which it would have lost money, and
    `worst_ratio` what the worst of them saved; below 0: a loss. All three are null where no week has four weeks before
    it and four after it.
    """

    moments: int
    saved_ratio: float | None
    lost_ratio: float | None
    worst_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """What is reserved today, how much of it is used, and what a year of its unused hours costs.

    The advised plan is for when it has run out; until then `more_units` are worth reserving besides.
    """

    units: int
    used_ratio: float
    unused_usd_per_year: Decimal
    more_units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The plan, what it saves against today, and how far that depends on what was assumed."""

    terms: Terms
    hours: int
    mean_units: float
    peak_units: float
    today: Plan
    advised: Plan
    if_load_stays: Plan  # the cheapest for a year like the history
    tried: Tried
    tried_if_load_stays: Tried
    reserved: Reserved | None  # None: nothing is
    break_even_one_year: float  # share of hours from which a unit pays off that would be on demand otherwise
    break_even_three_year: float
    cases: tuple[Case, ...]
    warnings: tuple[str, ...]

    @property
    def saved_usd_per_year(self) -> Decimal:
        """Against today; below zero where more is reserved today than the last weeks would justify."""
        return self.today.usd_per_year - self.advised.usd_per_year


def advise(load: Sequence[float | None], terms: Terms, committed_units: int = 0) -> Advice:
    """What to commit to.

    Args:
        load: units in use in each hour; holes (None) are left out.
        terms: what is on offer.
        committed_units: reserved today, at the one-year price; the advised plan is for when they have run out.

    Raises:
        ValueError: no hour is known, or one is below zero.

    """
    known = _known_values(load)
    if not known:
        raise ValueError("the load curve holds no value")
    if min(known) < 0:
        raise ValueError(f"the load curve holds {min(known):g} units; a load is never below 0")
    advised = steady_plan(load, terms)
    today = _today(known, terms, committed_units)
    return Advice(
        terms=terms,
        hours=len(known),
        mean_units=fmean(known),
        peak_units=max(known),
        today=today,
        advised=advised,
        if_load_stays=advised_plan(known, terms),
        tried=_try(load, terms, steady_plan),
        tried_if_load_stays=_try(load, terms, lambda past, offer: advised_plan(_known_values(past), offer)),
        reserved=_reserved_today(today, advised, terms) if committed_units else None,
        break_even_one_year=float(1 - terms.one_year),
        break_even_three_year=float(1 - terms.three_year),
        cases=tuple(
            Case(
                name=name,
                today_usd_per_year=_today(changed, other, committed_units).usd_per_year,
                advised_usd_per_year=plan(
                    changed, other, advised.one_year_units, advised.three_year_units
                ).usd_per_year,
                replanned=advised_plan(changed, other),
            )
            for name, changed, other in _cases(known, terms)
        ),
        warnings=tuple(_warnings(load, known, advised, committed_units)),
    )


def advised_plan(load: Sequence[float], terms: Terms) -> Plan:
    """The plan: three years for what pays off even at the load planned for then, one year for what pays off now."""
    later = [units * float(terms.three_year_load) for units in load]
    three = cheapest(later, terms, terms.three_year_price) if terms.three_year > terms.one_year else 0
    one = max(three, cheapest(load, terms, terms.one_year_price)) - three
    return plan(load, terms, one, three)


def steady_plan(load: Sequence[float | None], terms: Terms) -> Plan:
    """The plan with no more units than each of the last four weeks, and the whole history, would have justified.

    A week of which less than half was measured is left out. What only three years justify is not reserved for one.
    """
    known = _known_values(load)
    weeks = [_known_values(load[max(0, end - _WEEK) : end]) for end in range(len(load), 0, -_WEEK)][:_WEEKS]
    judged = [known, *(each for each in weeks if 2 * len(each) > _WEEK)]
    three = min(advised_plan(each, terms).three_year_units for each in judged)
    one = min(cheapest(each, terms, terms.one_year_price) for each in judged)
    return plan(known, terms, max(three, one) - three, three)


def _known_values(load: Sequence[float | None]) -> list[float]:
    return [units for units in load if units is not None]


def _try(load: Sequence[float | None], terms: Terms, rule: Callable[[Sequence[float | None], Terms], Plan]) -> Tried:
    """A rule at each week's end of the past, charged for what came after; nothing there is known ahead of time."""
    paid, instead, ratios = Decimal(0), Decimal(0), []
    ends = range(HOURS_OF_FOUR_WEEKS, len(load) - HOURS_OF_FOUR_WEEKS + 1, _WEEK)
    for now in ends[:: max(1, ceil(len(ends) / _MOST_MOMENTS))]:
        before, after = load[:now], _known_values(load[now:])
        if not _known_values(before) or not any(after):
            continue
        made = rule(before, terms)
        cost = plan(after, terms, made.one_year_units, made.three_year_units).usd_per_year
        nothing = plan(after, terms, 0, 0).usd_per_year
        if nothing:
            paid, instead = paid + cost, instead + nothing
            ratios.append(float(1 - cost / nothing))
    return Tried(
        moments=len(ratios),
        saved_ratio=float(1 - paid / instead) if ratios else None,
        lost_ratio=sum(each < 0 for each in ratios) / len(ratios) if ratios else None,
        worst_ratio=min(ratios, default=None),
    )


def _reserved_today(today: Plan, advised: Plan, terms: Terms) -> Reserved:
    parts = (each for each in today.parts if each.units == today.one_year_units and each.used_ratio is not None)
    used = next(parts).used_ratio or 0.0
    unused = Decimal(1 - used) * today.one_year_units * HOURS_A_YEAR * terms.one_year_price
    return Reserved(
        units=today.one_year_units,
        used_ratio=used,
        unused_usd_per_year=unused.quantize(_CENT),
        more_units=max(0, advised.one_year_units + advised.three_year_units - today.one_year_units),
    )


def cheapest(load: Sequence[float], terms: Terms, price: Decimal) -> int:
    """The least number of units reserved at a price per hour with which an hour costs least.

    A further unit never saves more than the one before it, so that the first one not worth its price is the end.
    """
    low, high = 0, ceil(max(load))
    while low < high:
        middle = (low + high) // 2
        if _unreserved_usd(load, terms, middle) - _unreserved_usd(load, terms, middle + 1) > price:
            low = middle + 1
        else:
            high = middle
    return low


def plan(load: Sequence[float], terms: Terms, one_year_units: int, three_year_units: int) -> Plan:
    """What a year costs with so many units reserved; three years' are used first, spot and on demand last."""
    firm, tolerant = _beyond(load, terms, one_year_units + three_year_units)
    spot = tolerant * terms.spot_share
    three_used = _mean_use(load, three_year_units)
    one_used = _mean_use(load, one_year_units + three_year_units) - three_used
    parts = (
        _reserved_part("reserved for 3 years", three_year_units, three_used, terms.three_year_price),
        _reserved_part("reserved for 1 year", one_year_units, one_used, terms.one_year_price),
        _as_used("spot", spot, terms.spot_price),
        _as_used("on demand", firm + tolerant - spot, terms.price_per_hour),
    )
    return Plan(one_year_units=one_year_units, three_year_units=three_year_units, parts=parts)


def _today(load: Sequence[float], terms: Terms, committed_units: int) -> Plan:
    return plan(load, replace(terms, tolerant=Decimal(0)), committed_units, 0)


def _mean_use(load: Sequence[float], units: int) -> float:
    """The mean of what of the load so many units carry."""
    return fsum(min(each, units) for each in load) / len(load)


def _beyond(load: Sequence[float], terms: Terms, units: int) -> tuple[Decimal, Decimal]:
    """The mean load that so many units do not carry: what must not be interrupted, and what may be.

    What must not be interrupted is put on reserved units first.
    """
    firm_share = 1 - float(terms.tolerant)
    firm = fsum(max(0.0, each * firm_share - units) for each in load) / len(load)
    whole = fsum(max(0.0, each - units) for each in load) / len(load)
    return Decimal(firm), max(Decimal(0), Decimal(whole) - Decimal(firm))


def _unreserved_usd(load: Sequence[float], terms: Terms, units: int) -> Decimal:
    """What an hour costs besides so many reserved units."""
    firm, tolerant = _beyond(load, terms, units)
    return firm * terms.price_per_hour + tolerant * terms.tolerant_price


def _reserved_part(name: str, units: int, used: float, price: Decimal) -> Part:
    hours = Decimal(units * HOURS_A_YEAR)
    return Part(
        name=name,
        units=units,
        unit_hours_per_year=hours,
        used_ratio=used / units if units else None,
        usd_per_year=(hours * price).quantize(_CENT),
    )


def _as_used(name: str, used: Decimal, price: Decimal) -> Part:
    hours = used * HOURS_A_YEAR
    return Part(
        name=name,
        units=None,
        unit_hours_per_year=hours.quantize(_CENT),
        used_ratio=1.0 if hours else None,
        usd_per_year=(hours * price).quantize(_CENT),
    )


def _cases(load: Sequence[float], terms: Terms) -> list[tuple[str, Sequence[float], Terms]]:
    """One thing changed at a time."""
    cases: list[tuple[str, Sequence[float], Terms]] = [
        ("load 20 % lower", [units * 0.8 for units in load], terms),
        ("load 20 % higher", [units * 1.2 for units in load], terms),
    ]
    for words, by in (("5 points smaller", Decimal("-0.05")), ("5 points larger", Decimal("0.05"))):
        moved = replace(terms, one_year=_share(terms.one_year + by), three_year=_share(terms.three_year + by))
        cases.append((f"discounts {words}", load, moved))
    if terms.tolerant > 0:
        for words, by in (("lower", Decimal("-0.2")), ("higher", Decimal("0.2"))):
            moved = replace(terms, spot_availability=_share(terms.spot_availability + by))
            cases.append((f"spot availability 20 points {words}", load, moved))
    return cases


def _share(value: Decimal) -> Decimal:
    return min(Decimal(1), max(Decimal(0), value))


def _warnings(
    load: Sequence[float | None], known: Sequence[float], advised: Plan, committed_units: int
) -> Iterator[str]:
    if len(load) < HOURS_OF_FOUR_WEEKS:
        yield f"only {len(load)} hours were measured; four weeks (672 h) are the least to commit on"
    if len(known) < len(load):
        yield f"{len(load) - len(known)} of {len(load)} hours hold no value and are left out"
    half = len(known) // 2
    before, after = fmean(known[:half] or known), fmean(known[half:])
    if abs(after - before) > _STRONG * max(before, after):
        yield (
            f"the load is not steady: a mean of {before:.4g} units in the first half of the history, {after:.4g} in "
            "the second; commit to what will stay"
        )
    units = advised.one_year_units + advised.three_year_units
    if committed_units > units:
        yield f"{committed_units} units are reserved today, {units} are worth it; saving begins as reservations run out"
