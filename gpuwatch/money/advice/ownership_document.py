"""The document of `gpuwatch recommend ownership --json`; money is text with all its digits."""

from collections.abc import Sequence
from decimal import Decimal
from typing import TypedDict

from gpuwatch.money.advice.ownership import Advice


class OwnershipTerms(TypedDict):
    """What owning and renting one machine cost; shares are parts of the purchase price."""

    price_usd: Decimal
    rent_usd_per_hour: Decimal
    rent_source: str
    years: Decimal
    resale: Decimal
    capital_cost: Decimal
    repairs: Decimal
    watts_busy: Decimal
    watts_idle: Decimal
    pue: Decimal
    usd_per_kwh: Decimal
    staff_usd_per_year: Decimal
    hosting_usd_per_year: Decimal


class OwnershipPoint(TypedDict):
    """A year at so many busy hours a day."""

    hours_a_day: int
    own_usd: Decimal
    rent_usd: Decimal
    own_usd_per_busy_hour: Decimal


class OwnershipLoad(TypedDict):
    """The load in machines, and a year of it: all rented, with `own_machines` owned, all owned."""

    hours: int
    mean_machines: float
    peak_machines: float
    own_machines: int
    rented_usd: Decimal
    advised_usd: Decimal
    owned_usd: Decimal


class OwnershipDocument(TypedDict):
    """Own or rent; `break_even_hours_a_day` is null where renting is always cheaper, `load` where none was given."""

    terms: OwnershipTerms
    fixed_usd_per_year: dict[str, Decimal]
    break_even_hours_a_day: float | None
    curve: list[OwnershipPoint]
    load: OwnershipLoad | None
    warnings: list[str]


def as_object(advice: Advice, source: str, notes: Sequence[str]) -> OwnershipDocument:
    """For programs."""
    terms = advice.terms
    load: OwnershipLoad = {
        "hours": advice.hours,
        "mean_machines": advice.mean_machines,
        "peak_machines": advice.peak_machines,
        "own_machines": advice.own_machines,
        "rented_usd": advice.rented_usd,
        "advised_usd": advice.advised_usd,
        "owned_usd": advice.owned_usd,
    }
    return {
        "terms": {
            "price_usd": terms.price,
            "rent_usd_per_hour": terms.rent_usd_per_hour,
            "rent_source": source,
            "years": terms.years,
            "resale": terms.resale,
            "capital_cost": terms.capital_cost,
            "repairs": terms.repair_share,
            "watts_busy": terms.watts_busy,
            "watts_idle": terms.watts_idle,
            "pue": terms.pue,
            "usd_per_kwh": terms.usd_per_kwh,
            "staff_usd_per_year": terms.staff_usd_per_year,
            "hosting_usd_per_year": terms.hosting_usd_per_year,
        },
        "fixed_usd_per_year": {name.replace(" ", "_"): usd.quantize(Decimal("0.01")) for name, usd in terms.fixed},
        "break_even_hours_a_day": advice.break_even_hours_a_day if advice.pays else None,
        "curve": [
            {
                "hours_a_day": point.hours_a_day,
                "own_usd": point.own_usd,
                "rent_usd": point.rent_usd,
                "own_usd_per_busy_hour": point.own_usd_per_busy_hour,
            }
            for point in advice.curve
        ],
        "load": load if advice.hours else None,
        "warnings": [*notes, *advice.warnings],
    }
