"""PURE: own or rent: from how many busy hours a day buying a machine pays, and how many machines of a load to own.

A machine that is owned costs the same in every hour, busy or not, except for what power its load takes. A rented one
costs only while it is used. So owning pays from a share of busy hours on, and the k-th machine of a load is worth
owning if the load reaches it in so large a share of the hours. Money is Decimal; loads and hours are float.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, fsum

DAYS_A_YEAR = 365
HOURS_A_DAY = 24
HOURS_A_YEAR = DAYS_A_YEAR * HOURS_A_DAY

_CENT = Decimal("0.01")
_WATTS_PER_KILOWATT = 1000
_CURVE_HOURS = (2, 4, 6, 8, 10, 12, 16, 20, 24)
_HOURS_OF_FOUR_WEEKS = 672
_LONG_YEARS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What owning and renting one machine cost, in US dollars.

    `price_usd` is paid once, for the machine with its part of network and racks; after `years` the share `resale` of it
    is left. `capital_cost` is the interest of a year, a share of the mean of the value at both ends. `watts_busy` and
    `watts_idle` are of the machine; `pue` multiplies them for the building, `usd_per_kwh` prices them.
    `staff_usd_per_year` and `hosting_usd_per_year` are of this one machine. `repairs` of the price goes to repairs each
    year. A rented machine costs `rent_usd_per_hour` while it is used;
    `rent_source` says who says so.
    """

    price_usd: Decimal
    rent_usd_per_hour: Decimal
    rent_source: str = "as given"
    years: Decimal = Decimal(3)
    resale: Decimal = Decimal("0.2")
    capital_cost: Decimal = Decimal("0.06")
    repairs: Decimal = Decimal("0.03")
    watts_busy: Decimal = Decimal(0)
    watts_idle: Decimal = Decimal(0)
    pue: Decimal = Decimal("1.4")
    usd_per_kwh: Decimal = Decimal("0.12")
    staff_usd_per_year: Decimal = Decimal(0)
    hosting_usd_per_year: Decimal = Decimal(0)

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            ValueError: names the field, its value and what would be right.

        """
        for name in ("price_usd", "rent_usd_per_hour", "years"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.pue < 1:
            raise ValueError(f"pue is {self.pue}; a building never takes less than its machines, so it is 1 or more")
        if self.watts_idle > self.watts_busy:
            raise ValueError(f"watts_idle is {self.watts_idle}; it must not be above watts_busy, {self.watts_busy}")

    @property
    def fixed(self) -> tuple[tuple[str, Decimal], ...]:
        """What a year of an owned machine costs whatever it does, by name."""
        lost = self.price_usd * (1 - self.resale)
        tied_up = self.price_usd * (1 + self.resale) / 2
        return (
            ("loss of value", lost / self.years),
            ("cost of the money", tied_up * self.capital_cost),
            ("repairs", self.price_usd * self.repairs),
            ("staff", self.staff_usd_per_year),
            ("hosting", self.hosting_usd_per_year),
        )

    def power_usd(self, busy_hours: float) -> Decimal:
        """What power a year takes with so many busy hours in it."""
        hours = Decimal(busy_hours)
        watt_hours = hours * self.watts_busy + (HOURS_A_YEAR - hours) * self.watts_idle
        return watt_hours / _WATTS_PER_KILOWATT * self.pue * self.usd_per_kwh

    def own_usd(self, busy_hours: float) -> Decimal:
        """What a year of an owned machine costs with so many busy hours in it."""
        return sum((usd for _, usd in self.fixed), Decimal(0)) + self.power_usd(busy_hours)

    def rent_usd(self, busy_hours: float) -> Decimal:
        """What a year of renting costs with so many busy hours in it."""
        return Decimal(busy_hours) * self.rent_usd_per_hour

    @property
    def break_even_hours_a_day(self) -> float | None:
        """From how many busy hours a day owning is cheaper; None: an hour of power costs as much as renting."""
        saved = self.rent_usd_per_hour - (self.power_usd(1) - self.power_usd(0))
        return None if saved <= 0 else float(self.own_usd(0) / saved / DAYS_A_YEAR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A year at so many busy hours a day, owned and rented."""

    hours_a_day: int
    own_usd: Decimal
    rent_usd: Decimal
    own_usd_per_busy_hour: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadAdvice:
    """The load in machines, and its cost in a year: all rented, with `own_machines` owned, all owned."""

    hours: int
    mean_machines: float
    peak_machines: float
    own_machines: int
    rented_usd: Decimal
    advised_usd: Decimal
    owned_usd: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Own or rent; `break_even_hours_a_day` is null where renting is always cheaper, `load` where none was given.

    `fixed_usd_per_year` is what a year of an owned machine costs whatever it does, by name.
    """

    terms: Terms
    fixed_usd_per_year: Mapping[str, Decimal]
    break_even_hours_a_day: float | None
    curve: tuple[Point, ...]
    load: LoadAdvice | None
    warnings: tuple[str, ...]


def advise(terms: Terms, load: Sequence[float | None] | None = None) -> Advice:
    """From when owning pays, and how many machines of a load to own.

    Args:
        terms: what both cost.
        load: machines in use in each hour; holes (None) are left out. None: no load is known.

    Raises:
        ValueError: no hour of the load is known, or one is below zero.

    """
    hours = terms.break_even_hours_a_day
    return Advice(
        terms=terms,
        fixed_usd_per_year={name.replace(" ", "_"): usd.quantize(_CENT) for name, usd in terms.fixed},
        break_even_hours_a_day=hours if hours is not None and hours < HOURS_A_DAY else None,
        curve=tuple(_point(terms, hours) for hours in _CURVE_HOURS),
        load=None if load is None else _advise_load(terms, load),
        warnings=(*_about_terms(terms), *(() if load is None else _about_load(load))),
    )


def _advise_load(terms: Terms, load: Sequence[float | None]) -> LoadAdvice:
    known = _known_amount(load)
    if not known:
        raise ValueError("the load curve holds no value")
    if min(known) < 0:
        raise ValueError(f"the load curve holds {min(known):g} machines; a load is never below 0")
    peak = ceil(max(known))
    best = _cheapest(terms, known, peak)
    return LoadAdvice(
        hours=len(known),
        mean_machines=fsum(known) / len(known),
        peak_machines=max(known),
        own_machines=best,
        rented_usd=year_usd(terms, known, 0).quantize(_CENT),
        advised_usd=year_usd(terms, known, best).quantize(_CENT),
        owned_usd=year_usd(terms, known, peak).quantize(_CENT),
    )


def _known_amount(load: Sequence[float | None]) -> list[float]:
    return [machines for machines in load if machines is not None]


def year_usd(terms: Terms, load: Sequence[float], machines: int) -> Decimal:
    """A year like the load with so many owned machines, which are used first, and the rest rented."""
    carried = fsum(min(each, machines) for each in load) / len(load)
    beyond = fsum(max(0.0, each - machines) for each in load) / len(load)
    fixed = machines * terms.own_usd(0)
    power = Decimal(carried * HOURS_A_YEAR) * (terms.power_usd(1) - terms.power_usd(0))
    return fixed + power + terms.rent_usd(beyond * HOURS_A_YEAR)


def _cheapest(terms: Terms, load: Sequence[float], most: int) -> int:
    """The fewest owned machines with which a year costs least.

    A further machine never saves more than the one before it, so that the first one that saves nothing is the end.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if year_usd(terms, load, middle + 1) < year_usd(terms, load, middle):
            low = middle + 1
        else:
            high = middle
    return low


def _point(terms: Terms, hours: int) -> Point:
    busy = hours * DAYS_A_YEAR
    own = terms.own_usd(busy)
    return Point(
        hours_a_day=hours,
        own_usd=own.quantize(_CENT),
        rent_usd=terms.rent_usd(busy).quantize(_CENT),
        own_usd_per_busy_hour=(own / busy).quantize(_CENT),
    )


def _about_terms(terms: Terms) -> Iterator[str]:
    if terms.years > _LONG_YEARS:
        yield f"{terms.years} years are long: data-center GPUs lose their price advantage within three to five"
    if not terms.watts_busy:
        yield "no power is counted; give --watts"
    if not terms.staff_usd_per_year and not terms.hosting_usd_per_year:
        yield "neither staff nor hosting is counted; give --staff and --hosting"


def _about_load(load: Sequence[float | None]) -> Iterator[str]:
    known = _known_amount(load)
    if len(load) < _HOURS_OF_FOUR_WEEKS:
        yield f"only {len(load)} hours were measured; four weeks (672 h) are the least to buy on"
    if len(known) < len(load):
        yield f"{len(load) - len(known)} of {len(load)} hours hold no value and are left out"
