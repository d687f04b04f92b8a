"""PURE: what to commit to, what that saves, and how far it depends on what was assumed (`commitment_plan`)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import ceil
from statistics import fmean

from gpuwatch.money.advice.commitment_plan import (
    CENT,
    HOURS_A_YEAR,
    WEEK,
    Plan,
    Terms,
    advised_plan,
    known_values,
    plan,
    steady_plan,
)

HOURS_OF_FOUR_WEEKS = 672

_FALLS = (10, 20, 40)  # % a year
_MOST_MOMENTS = 12
_STRONG = 0.2  # a change of the mean from the first half of the history to the second


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
    known = known_values(load)
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
        tried_if_load_stays=_try(load, terms, lambda past, offer: advised_plan(known_values(past), offer)),
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


def _try(load: Sequence[float | None], terms: Terms, rule: Callable[[Sequence[float | None], Terms], Plan]) -> Tried:
    """A rule at each week's end of the past, charged for what came after; nothing there is known ahead of time."""
    paid, instead, ratios = Decimal(0), Decimal(0), []
    ends = range(HOURS_OF_FOUR_WEEKS, len(load) - HOURS_OF_FOUR_WEEKS + 1, WEEK)
    for now in ends[:: max(1, ceil(len(ends) / _MOST_MOMENTS))]:
        before, after = load[:now], known_values(load[now:])
        if not known_values(before) or not any(after):
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
        unused_usd_per_year=unused.quantize(CENT),
        more_units=max(0, advised.one_year_units + advised.three_year_units - today.one_year_units),
    )


def _today(load: Sequence[float], terms: Terms, committed_units: int) -> Plan:
    return plan(load, replace(terms, tolerant=Decimal(0)), committed_units, 0)


def _cases(load: Sequence[float], terms: Terms) -> list[tuple[str, Sequence[float], Terms]]:
    """One thing changed at a time."""
    cases: list[tuple[str, Sequence[float], Terms]] = [
        ("load 20 % lower", [units * 0.8 for units in load], terms),
        ("load 20 % higher", [units * 1.2 for units in load], terms),
    ]
    for words, by in (("5 points smaller", Decimal("-0.05")), ("5 points larger", Decimal("0.05"))):
        moved = replace(terms, one_year=_share(terms.one_year + by), three_year=_share(terms.three_year + by))
        cases.append((f"discounts {words}", load, moved))
    cases += [(f"prices fall {fall} % a year", load, replace(terms, fall=Decimal(fall) / 100)) for fall in _FALLS]
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
