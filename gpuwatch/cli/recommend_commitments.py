"""The command that says what to reserve, what to run on spot, and what to leave on demand."""

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.amounts import explain_series_errors, none_below, price_of, share, usd
from gpuwatch.cli.base import config_option, explain_errors, json_option, print_text, settings_of, show_money_as_in
from gpuwatch.cli.recommend import recommend
from gpuwatch.model.currency import display_currency
from gpuwatch.model.money import column_usd, format_price, money_head, whole_usd
from gpuwatch.runtime.json_document import json_text
from gpuwatch.runtime.table import align_rows

if TYPE_CHECKING:
    from gpuwatch.money.advice.commitments import Advice, Tried


@recommend.command()
@click.option(
    "--csv",
    "csv_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Lines of time,value, units in use: ISO 8601 or seconds since 1970; plain or .gz [what the ledger metered].",
)
@config_option
@click.option("--price", callback=usd, help="What one unit of the load costs per hour on demand, in US dollars.")
@click.option("--instance-type", help="The load counts such machines, at their price.")
@click.option("--cloud", metavar="NAME", help="Only what the ledger metered in this cloud.")
@click.option("--one-year", callback=share, default="0.30", show_default="0.30, assumed", help="Discount, as a share.")
@click.option(
    "--three-year", callback=share, default="0.50", show_default="0.50, assumed", help="Discount, as a share."
)
@click.option(
    "--three-year-load",
    callback=share,
    default="0.8",
    show_default=True,
    help="Share of today's load that you expect in 3 years.",
)
@click.option(
    "--tolerant", callback=share, default="0", show_default=True, help="Share of the load that bears interruption."
)
@click.option("--spot", callback=share, default="0.45", show_default=True, help="Spot discount, as a share.")
@click.option("--spot-availability", callback=share, default="0.5", show_default=True, help="Share of hours with spot.")
@click.option(
    "--interruption-cost", callback=none_below, help="Per unit-hour of spot, in US dollars [5 % of the price]."
)
@click.option(
    "--committed", type=click.IntRange(0, 10**9), default=0, show_default=True, help="Units reserved today, 1 year."
)
@json_option
def commitments(
    *,
    csv_path: Path | None,
    path: Path | None,
    price: Decimal | None,
    instance_type: str | None,
    cloud: str | None,
    committed: int,
    as_json: bool,
    **terms: Any,  # noqa: ANN401  as click gives them; Terms has the types
) -> None:
    """Recommend what to reserve for 1 or 3 years and what to run on spot, from the GPUs or machines in use."""
    from gpuwatch.money.advice.commitment_plan import Terms
    from gpuwatch.money.advice.commitments import advise as advice_of
    from gpuwatch.money.advice.commitments_document import commitments_document

    show_money_as_in(path)
    with explain_series_errors(csv_path or "the ledger"):
        if csv_path is not None:
            if cloud is not None:
                raise click.UsageError("--cloud is for what the ledger metered; --csv has no clouds")
            per_hour, source = price_of(price, instance_type)
            load, notes = csv_load(csv_path)
        else:
            load, notes, per_hour, source = metered_load(path, instance_type, price, cloud, committed=committed)
        try:
            offer = Terms(price_per_hour=per_hour, **terms)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        advice = advice_of(load, offer, committed)
    warnings = [*notes, *advice.warnings]
    if as_json:
        print_text(json_text("recommend.commitments", commitments_document(advice, source, warnings)))
    else:
        print_text(_as_text(advice, source, warnings))


def metered_load(
    path: Path | None,
    instance_type: str | None,
    price: Decimal | None,
    cloud: str | None = None,
    *,
    committed: int | None = None,
    price_option: str = "--price",
) -> tuple[list[float | None], list[str], Decimal, str]:
    """Machines in use hour by hour, what is to be known of that, and the price with its source.

    `committed` are those that are known to be reserved; None: that does not matter. `price_option` would give a price.

    Raises:
        ValueError: the load or a price is missing.

    """
    with explain_errors():
        from gpuwatch.ledger import Ledger
        from gpuwatch.money.accounting.store import SpendBook
        from gpuwatch.money.advice.load_curve import load_of

        ledger = Ledger.connect(settings_of(path).ledger, read_only=True)
        try:
            load = load_of(SpendBook(ledger), instance_type, cloud)
        finally:
            ledger.close()
    notes = []
    if load.coarse_hours:
        notes.append(
            f"of {load.coarse_hours} h only the day's mean is kept (ledger.hourly_spend_retention): peaks within are "
            "not seen, so the advice may be for too many"
        )
    if committed == 0 and load.reserved_machines:
        at_once = f"{load.reserved_machines} machine{'s' * (load.reserved_machines > 1)} at once"
        notes.append(f"up to {at_once} were reserved or prepaid in the last week; say with --committed how many stay")
    if price is not None:
        return list(load.hours), notes, price, "as given"
    if load.usd_per_hour is None:
        raise ValueError(f"no price on demand of {load.instance_type} is metered; give {price_option}")
    return list(load.hours), notes, load.usd_per_hour, load.price_source or "as metered"


def csv_load(path: Path) -> tuple[list[float | None], list[str]]:
    """Units in use hour by hour."""
    from gpuwatch.money.forecast.csv import read_samples
    from gpuwatch.money.forecast.series import HOUR_SECONDS, natural_step, resample

    samples = read_samples(path)
    step = natural_step(samples)
    series = resample(samples, step)
    hours = round(step / HOUR_SECONDS)
    notes = list(series.notes)
    if hours > 1:
        notes.append(
            f"the load was measured every {hours} h: peaks between are not seen, so the advice may be for too many"
        )
    return [value for value in series.values for _ in range(hours)], notes


def _tried_words(tried: "Tried") -> list[str]:
    """What past weeks say of the rule; nothing where there are too few."""
    if tried.saved_ratio is None or tried.lost_ratio is None or tried.worst_ratio is None:
        return []
    saved = f"it would have saved {tried.saved_ratio:.0%} since then"
    if tried.moments == 1:
        return [f"Made at the end of one past week {saved}."]
    worst = f"{'a loss' if tried.worst_ratio < 0 else 'a saving'} of {abs(tried.worst_ratio):.0%}"
    sentence = f"Made at {tried.moments} past weeks' ends {saved}; "
    return [sentence + f"{tried.lost_ratio:.0%} of them lost money, the worst: {worst}."]


def _reserve_words(advice: "Advice") -> str:
    """What to reserve; what is reserved already stays until it runs out."""
    plan, held = advice.advised, advice.reserved
    words = f"{plan.three_year_units} for 3 years and {plan.one_year_units} for 1 year"
    if held is None:
        return f"Reserve {words}."
    now, have = f"Reserve {held.more_units or 'no'} more now", "has" if held.units == 1 else "have"
    return f"{now}; once today's {held.units} {have} run out, {words} in all."


def _stays_words(advice: "Advice") -> list[str]:
    """The optimum of the whole history, and what is reserved today."""
    stays, lines = advice.if_load_stays, []
    lines.append(f"If the load stays: {stays.three_year_units} for 3 years and {stays.one_year_units} for 1 year.")
    lines += [f"  {line}" for line in _tried_words(advice.tried_if_load_stays)]
    if advice.reserved is not None:
        lines.append(
            f"Reserved today: {advice.reserved.units}, used for {advice.reserved.used_ratio:.0%} of the time; the rest "
            f"costs {whole_usd(advice.reserved.unused_usd_per_year)} a year."
        )
    return lines


def _as_text(advice: "Advice", source: str, warnings: list[str]) -> str:
    advised, terms = advice.advised, advice.terms
    today = advice.today.usd_per_year
    saved = advice.saved_usd_per_year / today if today else None
    less, change = "more" if advice.saved_usd_per_year < 0 else "less", "" if saved is None else f" ({abs(saved):.0%})"
    then = "" if advice.reserved is None else ", once today's reservations have run out"
    lines = [
        _reserve_words(advice),
        "That is the least that each of the last four weeks would have justified.",
        f"A year costs {whole_usd(abs(advice.saved_usd_per_year))}{change} {less} than today{then}.",
        *_tried_words(advice.tried),
        *_stays_words(advice),
        f"Load: {advice.mean_units:,.4g} units on average, at most {advice.peak_units:,.4g}, in {advice.hours} hours.",
        "",
    ]
    parts = [
        (
            part.name,
            "-" if part.units is None else str(part.units),
            f"{part.unit_hours_per_year:,.0f}",
            "-" if part.used_ratio is None else f"{part.used_ratio:.0%}",
            column_usd(part.usd_per_year),
        )
        for part in advised.parts
    ]
    sums = [
        (name, "", "", "", column_usd(cost))
        for name, cost in (("advised", advised.usd_per_year), ("today", advice.today.usd_per_year))
    ]
    lines += align_rows([("per year", "units", "unit-hours", "used", money_head()), *parts, *sums])
    lines += [
        "",
        f"A unit pays off for 1 year if used in {advice.break_even_one_year:.0%} of the hours or more,",
        f"for 3 years in {advice.break_even_three_year:.0%} of them at {terms.three_year_load:.0%} of this load.",
        "",
    ]
    cases = [
        (
            case.name,
            column_usd(case.today_usd_per_year - case.advised_usd_per_year, 0),
            column_usd(case.today_usd_per_year - case.replanned.usd_per_year, 0),
            f"{case.replanned.three_year_units} + {case.replanned.one_year_units}",
        )
        for case in advice.cases
    ]
    lines += align_rows([("were it otherwise", "plan saves", "new plan", "with 3 y + 1 y"), *cases], left={0, 3})
    lines += [
        "",
        f"Price: {_price(terms.price_per_hour)} an hour ({source}).",
        f"Discounts: 1 year {terms.one_year:.0%}, 3 years {terms.three_year:.0%}; take them from your own offer.",
        f"Spot: {terms.spot:.0%} off in {terms.spot_availability:.0%} of hours, for {terms.tolerant:.0%} of the load.",
    ]
    lines += filter(None, [display_currency().note])
    return "\n".join([*lines, *(f"Warning: {warning}." for warning in warnings)])


def _price(usd_per_hour: Decimal) -> str:
    """With all of its digits in US dollars, which it is written in."""
    return f"${usd_per_hour}" if display_currency().code == "USD" else format_price(usd_per_hour)
