"""PURE: what a year costs with so many units reserved, and how many to reserve, from a measured load curve.

A unit (a GPU or a machine) that is reserved costs the same in every hour; one that is not costs only in the hours in
which it is used. So the k-th unit is worth reserving if the hours in which the load reaches it would cost more
otherwise. At the optimum the share of hours in use of the last unit is the ratio of the two prices (the quantile of
the load duration curve, as of the newsvendor). Load is known as float means; money is Decimal.

A reservation outlives the load that it was made for. So what is advised is the least that each of the last four weeks,
and the whole history, would have justified.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, fsum

HOURS_A_YEAR = 8760
CENT = Decimal("0.01")
WEEK = 168

_WEEKS = 4
_LONGEST = 3  # years that a reservation lasts


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What is on offer. Discounts are shares of the on-demand price: 0.3 means that 70 % of it is paid.

    The defaults are assumptions for a first look, not a quote.
    """

    price_per_hour: Decimal  # of one unit on demand
    one_year: Decimal = Decimal("0.30")
    three_year: Decimal = Decimal("0.50")
    spot: Decimal = Decimal("0.45")
    spot_availability: Decimal = Decimal("0.5")  # of the hours in which it is wanted
    interruption_cost: Decimal | None = None  # per spot unit-hour; None: 5 % of the on-demand price
    tolerant: Decimal = Decimal(0)  # the share of the load that may be interrupted
    three_year_load: Decimal = Decimal("0.8")  # of the load measured: what three years are planned for
    fall: Decimal = Decimal(0)  # of list prices, as a share of each year's begin; prices are then means of three years

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
    def on_demand_price(self) -> Decimal:
        """The price of a used unit-hour on demand."""
        if not self.fall:
            return self.price_per_hour
        left = 1 - self.fall
        return self.price_per_hour * (1 - left**_LONGEST) / (-left.ln() * _LONGEST)

    @property
    def one_year_price(self) -> Decimal:
        """The price of a unit for an hour, reserved for one year, used or not; the next year's is that of its begin."""
        years = sum(((1 - self.fall) ** year for year in range(_LONGEST)), Decimal(0)) / _LONGEST
        return self.price_per_hour * (1 - self.one_year) * (years if self.fall else 1)

    @property
    def three_year_price(self) -> Decimal:
        """The price of a unit for an hour, reserved for three years, used or not: that of today."""
        return self.price_per_hour * (1 - self.three_year)

    @property
    def spot_price(self) -> Decimal:
        """The price of a used unit-hour on spot, with the cost of interruptions."""
        cost = self.on_demand_price * Decimal("0.05") if self.interruption_cost is None else self.interruption_cost
        return self.on_demand_price * (1 - self.spot) + cost

    @property
    def spot_share(self) -> Decimal:
        """Of the unreserved hours that tolerate interruption: those run on spot; none where spot is not cheaper."""
        return self.spot_availability if self.spot_price < self.on_demand_price else Decimal(0)

    @property
    def tolerant_price(self) -> Decimal:
        """Of an unreserved unit-hour that tolerates interruption: spot while there is any, else on demand."""
        return self.spot_share * self.spot_price + (1 - self.spot_share) * self.on_demand_price


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


def advised_plan(load: Sequence[float], terms: Terms) -> Plan:
    """The plan: three years for what pays off even at the load planned for then, one year for what pays off now."""
    later = [units * float(terms.three_year_load) for units in load]
    three = cheapest(later, terms, terms.three_year_price) if terms.three_year_price < terms.one_year_price else 0
    one = max(three, cheapest(load, terms, terms.one_year_price)) - three
    return plan(load, terms, one, three)


def steady_plan(load: Sequence[float | None], terms: Terms) -> Plan:
    """The plan with no more units than each of the last four weeks, and the whole history, would have justified.

    A week of which less than half was measured is left out. What only three years justify is not reserved for one.
    """
    known = known_values(load)
    weeks = [known_values(load[max(0, end - WEEK) : end]) for end in range(len(load), 0, -WEEK)][:_WEEKS]
    judged = [known, *(each for each in weeks if 2 * len(each) > WEEK)]
    three = min(advised_plan(each, terms).three_year_units for each in judged)
    one = min(cheapest(each, terms, terms.one_year_price) for each in judged)
    return plan(known, terms, max(three, one) - three, three)


def known_values(load: Sequence[float | None]) -> list[float]:
    """The hours that were measured."""
    return [units for units in load if units is not None]


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
        _as_used("on demand", firm + tolerant - spot, terms.on_demand_price),
    )
    return Plan(one_year_units=one_year_units, three_year_units=three_year_units, parts=parts)


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
    return firm * terms.on_demand_price + tolerant * terms.tolerant_price


def _reserved_part(name: str, units: int, used: float, price: Decimal) -> Part:
    hours = Decimal(units * HOURS_A_YEAR)
    return Part(
        name=name,
        units=units,
        unit_hours_per_year=hours,
        used_ratio=used / units if units else None,
        usd_per_year=(hours * price).quantize(CENT),
    )


def _as_used(name: str, used: Decimal, price: Decimal) -> Part:
    hours = used * HOURS_A_YEAR
    return Part(
        name=name,
        units=None,
        unit_hours_per_year=hours.quantize(CENT),
        used_ratio=1.0 if hours else None,
        usd_per_year=(hours * price).quantize(CENT),
    )
