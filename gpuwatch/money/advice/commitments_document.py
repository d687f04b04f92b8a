"""The document of `gpuwatch recommend commitments --json`; money is text with all its digits."""

from dataclasses import dataclass
from decimal import Decimal

from gpuwatch.money.advice.commitment_plan import Part, Plan
from gpuwatch.money.advice.commitments import Advice, Case, Reserved, Tried
from gpuwatch.runtime.json_document import fill_document


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentTerms:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDocument:
    """The load, in units."""

    hours: int
    mean: float
    peak: float


@dataclass(frozen=True, slots=True, kw_only=True)
class YearDocument:
    """What a year costs."""

    usd_per_year: Decimal
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDocument:
    """The same under other assumptions: what the advised plan saves then, and a plan made for them."""

    case: str
    advised_saved_usd_per_year: Decimal
    replanned_saved_usd_per_year: Decimal
    replanned_reserve_one_year: int
    replanned_reserve_three_year: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEvenDocument:
    """From which share of hours in use on a reserved unit pays off."""

    one_year: float
    three_year: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StaysDocument:
    """What would be cheapest if every year were like the history."""

    reserve_one_year: int
    reserve_three_year: int
    saved_usd_per_year: Decimal
    tried: Tried


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitmentsDocument:
    """What to reserve, in units of the load, and what a year costs today and then.

    The plan is the least that each of the last four weeks would have justified.
    """

    terms: CommitmentTerms
    load: LoadDocument
    reserve_one_year: int
    reserve_three_year: int
    today: YearDocument
    advised: YearDocument
    saved_usd_per_year: Decimal
    saved_ratio: float | None
    tried: Tried
    if_load_stays: StaysDocument
    reserved_today: Reserved | None
    break_even_utilization: BreakEvenDocument
    sensitivity: list[CaseDocument]
    warnings: list[str]


def commitments_document(advice: Advice, source: str, warnings: list[str]) -> CommitmentsDocument:
    """For programs; `source` is the price's."""
    today, stays = advice.today.usd_per_year, advice.if_load_stays
    return fill_document(
        CommitmentsDocument,
        advice,
        terms=fill_document(
            CommitmentTerms, advice.terms, price_source=source, spot_price_with_interruptions=advice.terms.spot_price
        ),
        load=LoadDocument(hours=advice.hours, mean=advice.mean_units, peak=advice.peak_units),
        reserve_one_year=advice.advised.one_year_units,
        reserve_three_year=advice.advised.three_year_units,
        today=_year(advice.today),
        advised=_year(advice.advised),
        saved_ratio=float(advice.saved_usd_per_year / today) if today else None,
        if_load_stays=StaysDocument(
            reserve_one_year=stays.one_year_units,
            reserve_three_year=stays.three_year_units,
            saved_usd_per_year=today - stays.usd_per_year,
            tried=advice.tried_if_load_stays,
        ),
        reserved_today=advice.reserved,
        break_even_utilization=BreakEvenDocument(
            one_year=advice.break_even_one_year, three_year=advice.break_even_three_year
        ),
        sensitivity=[_case(case) for case in advice.cases],
        warnings=warnings,
    )


def _year(plan: Plan) -> YearDocument:
    return fill_document(YearDocument, plan)


def _case(case: Case) -> CaseDocument:
    return CaseDocument(
        case=case.name,
        advised_saved_usd_per_year=case.today_usd_per_year - case.advised_usd_per_year,
        replanned_saved_usd_per_year=case.today_usd_per_year - case.replanned.usd_per_year,
        replanned_reserve_one_year=case.replanned.one_year_units,
        replanned_reserve_three_year=case.replanned.three_year_units,
    )
