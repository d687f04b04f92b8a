"""The document of `gpuwatch recommend commitments --json`; money is text with all its digits."""

from decimal import Decimal
from typing import TypedDict

from gpuwatch.money.advice.commitments import Advice, Case, Plan, Tried


class TermsDocument(TypedDict):
    """What is on offer, for one unit of the load; discounts are shares of the price on demand."""

    price_per_hour: Decimal
    one_year: Decimal
    three_year: Decimal
    spot: Decimal
    spot_availability: Decimal
    tolerant: Decimal
    three_year_load: Decimal
    price_source: str
    spot_price_with_interruptions: Decimal


class LoadDocument(TypedDict):
    """The load, in units."""

    hours: int
    mean: float
    peak: float


class PartDocument(TypedDict):
    """What one kind of capacity costs; `units` is null for what is not reserved."""

    name: str
    units: int | None
    unit_hours_per_year: Decimal
    used_ratio: float | None
    usd_per_year: Decimal


class YearDocument(TypedDict):
    """What a year costs."""

    usd_per_year: Decimal
    parts: list[PartDocument]


class CaseDocument(TypedDict):
    """The same under other assumptions: what the advised plan saves then, and a plan made for them."""

    case: str
    advised_saved_usd_per_year: Decimal
    replanned_saved_usd_per_year: Decimal
    replanned_reserve_one_year: int
    replanned_reserve_three_year: int


class BreakEvenDocument(TypedDict):
    """From which share of hours in use on a reserved unit pays off."""

    one_year: float
    three_year: float


class TriedDocument(TypedDict):
    """What a rule would have saved of all on demand, had it been followed at past weeks' ends; null: too short."""

    moments: int
    saved_ratio: float | None
    lost_ratio: float | None
    worst_ratio: float | None


class StaysDocument(TypedDict):
    """What would be cheapest if every year were like the history."""

    reserve_one_year: int
    reserve_three_year: int
    saved_usd_per_year: Decimal
    tried: TriedDocument


class ReservedDocument(TypedDict):
    """What is reserved today, how much of it is used, and what a year of its unused hours costs.

    The advised plan is for when it has run out; until then `more_units` are worth reserving besides.
    """

    units: int
    used_ratio: float
    unused_usd_per_year: Decimal
    more_units: int


class CommitmentsDocument(TypedDict):
    """What to reserve, in units of the load, and what a year costs today and then.

    The plan is the least that each of the last four weeks would have justified.
    """

    terms: TermsDocument
    load: LoadDocument
    reserve_one_year: int
    reserve_three_year: int
    today: YearDocument
    advised: YearDocument
    saved_usd_per_year: Decimal
    saved_ratio: float | None
    tried: TriedDocument
    if_load_stays: StaysDocument
    reserved_today: ReservedDocument | None
    break_even_utilization: BreakEvenDocument
    sensitivity: list[CaseDocument]
    warnings: list[str]


def as_object(advice: Advice, source: str, warnings: list[str]) -> CommitmentsDocument:
    """For programs; `source` is the price's."""
    terms, today = advice.terms, advice.today.usd_per_year
    return {
        "terms": {
            "price_per_hour": terms.price_per_hour,
            "one_year": terms.one_year,
            "three_year": terms.three_year,
            "spot": terms.spot,
            "spot_availability": terms.spot_availability,
            "tolerant": terms.tolerant,
            "three_year_load": terms.three_year_load,
            "price_source": source,
            "spot_price_with_interruptions": terms.spot_price,
        },
        "load": {"hours": advice.hours, "mean": advice.mean_units, "peak": advice.peak_units},
        "reserve_one_year": advice.advised.one_year_units,
        "reserve_three_year": advice.advised.three_year_units,
        "today": _year(advice.today),
        "advised": _year(advice.advised),
        "saved_usd_per_year": advice.saved_usd_per_year,
        "saved_ratio": float(advice.saved_usd_per_year / today) if today else None,
        "tried": _tried(advice.tried),
        "if_load_stays": {
            "reserve_one_year": advice.if_load_stays.one_year_units,
            "reserve_three_year": advice.if_load_stays.three_year_units,
            "saved_usd_per_year": today - advice.if_load_stays.usd_per_year,
            "tried": _tried(advice.tried_if_load_stays),
        },
        "reserved_today": None
        if advice.reserved is None
        else {
            "units": advice.reserved.units,
            "used_ratio": advice.reserved.used_ratio,
            "unused_usd_per_year": advice.reserved.unused_usd_per_year,
            "more_units": advice.reserved.more_units,
        },
        "break_even_utilization": {"one_year": advice.break_even_one_year, "three_year": advice.break_even_three_year},
        "sensitivity": [_case(case) for case in advice.cases],
        "warnings": warnings,
    }


def _year(plan: Plan) -> YearDocument:
    return {
        "usd_per_year": plan.usd_per_year,
        "parts": [
            {
                "name": part.name,
                "units": part.units,
                "unit_hours_per_year": part.unit_hours,
                "used_ratio": part.used_ratio,
                "usd_per_year": part.usd_per_year,
            }
            for part in plan.parts
        ],
    }


def _tried(tried: Tried) -> TriedDocument:
    return {
        "moments": tried.moments,
        "saved_ratio": tried.saved_ratio,
        "lost_ratio": tried.lost_ratio,
        "worst_ratio": tried.worst_ratio,
    }


def _case(case: Case) -> CaseDocument:
    return {
        "case": case.name,
        "advised_saved_usd_per_year": case.today_usd_per_year - case.advised_usd_per_year,
        "replanned_saved_usd_per_year": case.today_usd_per_year - case.replanned.usd_per_year,
        "replanned_reserve_one_year": case.replanned.one_year_units,
        "replanned_reserve_three_year": case.replanned.three_year_units,
    }
