"""The command that says from how many busy hours a day buying a machine pays."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.amounts import explain_series_errors, factor, none_below, price_of, share, usd
from gpuwatch.cli.base import config_option, json_option, print_text, show_money_as_in
from gpuwatch.cli.recommend import recommend
from gpuwatch.cli.recommend_commitments import csv_load, metered_load
from gpuwatch.model.currency import display_currency
from gpuwatch.model.money import column_usd, format_usd, money_head, whole_usd
from gpuwatch.runtime.json_document import json_text
from gpuwatch.runtime.table import align_rows

if TYPE_CHECKING:
    from gpuwatch.money.advice.ownership import Advice, LoadAdvice


@recommend.command()
@click.option(
    "--price", callback=usd, required=True, help="What one machine costs with its share of network and racks, US$."
)
@click.option("--rent", callback=usd, help="What such a machine costs to rent per hour, in US dollars.")
@click.option("--instance-type", help="The rented machine, at its list price; of the ledger, its hours.")
@click.option(
    "--csv",
    "csv_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Lines of time,value: machines in use; plain or .gz.",
)
@click.option("--ledger", is_flag=True, help="The load is what the ledger metered.")
@config_option
@click.option("--years", callback=usd, default="3", show_default=True, help="Until it is sold.")
@click.option(
    "--resale",
    callback=share,
    default="0.2",
    show_default="0.2, assumed",
    help="Share of its price that it then brings.",
)
@click.option("--capital-cost", callback=share, default="0.06", show_default="0.06, assumed", help="Interest a year.")
@click.option(
    "--repairs",
    callback=share,
    default="0.03",
    show_default="0.03, assumed",
    help="Repairs per year, as a share of the price.",
)
@click.option("--watts", callback=none_below, default="0", help="Power of the machine at work, such as 10200.")
@click.option("--idle-watts", callback=none_below, help="Power of the machine at rest [a quarter of --watts].")
@click.option(
    "--pue", callback=factor, default="1.4", show_default="1.4, assumed", help="Power of the building by its own."
)
@click.option("--kwh", callback=none_below, default="0.12", show_default="0.12, assumed", help="Price of one, US$.")
@click.option("--staff", callback=none_below, default="0", help="Staff for this machine per year, US$.")
@click.option("--hosting", callback=none_below, default="0", help="Space and network for it a year, US$.")
@json_option
def ownership(
    *,
    price: Decimal,
    rent: Decimal | None,
    instance_type: str | None,
    csv_path: Path | None,
    ledger: bool,
    path: Path | None,
    as_json: bool,
    **options: Any,  # noqa: ANN401  as click gives them; Terms has the types
) -> None:
    """Recommend to own or to rent: from how many busy hours a day buying pays, and how many machines of a load."""
    from gpuwatch.money.advice.ownership import Terms
    from gpuwatch.money.advice.ownership import advise as advice_of

    if ledger and csv_path is not None:
        raise click.UsageError("give one of --ledger and --csv")
    idle = options["idle_watts"]
    if idle is not None and idle > options["watts"]:
        raise click.BadParameter(
            f"{idle:f} W at rest are more than the {options['watts']:f} W at work of --watts", param_hint="--idle-watts"
        )
    show_money_as_in(path)
    load: list[float | None] | None = None
    notes: list[str] = []
    with explain_series_errors(csv_path or "recommend ownership"):
        if csv_path is not None:
            load, notes = csv_load(csv_path)
        if ledger:
            load, notes, rented, source = metered_load(path, instance_type, rent, price_option="--rent")
        else:
            rented, source = price_of(rent, instance_type, "--rent")
        terms = Terms(
            price_usd=price,
            rent_usd_per_hour=rented,
            rent_source=source,
            years=options["years"],
            resale=options["resale"],
            capital_cost=options["capital_cost"],
            watts_busy=options["watts"],
            watts_idle=options["watts"] / 4 if idle is None else idle,
            pue=options["pue"],
            usd_per_kwh=options["kwh"],
            staff_usd_per_year=options["staff"],
            hosting_usd_per_year=options["hosting"],
            repairs=options["repairs"],
        )
        found = advice_of(terms, load)
        advice = replace(found, warnings=(*notes, *found.warnings))
    print_text(json_text("recommend.ownership", advice) if as_json else _as_text(advice))


def _as_text(advice: "Advice") -> str:
    terms, hours = advice.terms, advice.break_even_hours_a_day
    lines = [_headline(advice)]
    lines += ["" if advice.load is None else f"{_about_load(advice.load)}\n"]
    head = money_head()
    lines.append(f"Rent: {format_usd(terms.rent_usd_per_hour)} an hour ({terms.rent_source}).")
    year = [(name, column_usd(cost)) for name, cost in terms.fixed if cost]
    year.append(("power at rest", column_usd(terms.power_usd(0))))
    lines += align_rows(
        [("a year of an owned machine", head), *year, ("together, at rest", column_usd(terms.own_usd(0)))]
    )
    points = [
        (
            f"{point.hours_a_day} h",
            column_usd(point.own_usd, 0),
            column_usd(point.rent_usd, 0),
            column_usd(point.own_usd_per_busy_hour),
            "own" if hours is not None and point.hours_a_day >= hours else "rent",
        )
        for point in advice.curve
    ]
    titles = ("busy a day", f"own, {head} a year", f"rent, {head} a year", f"own, {head} an hour", "cheaper")
    lines += ["", *align_rows([titles, *points], left=(0, 4))]
    lines += filter(None, [display_currency().note])
    return "\n".join([*lines, *(f"Warning: {each}." for each in advice.warnings)])


def _headline(advice: "Advice") -> str:
    hours = advice.break_even_hours_a_day
    if hours is None:
        return "Rent: owning costs more even if the machine is busy day and night."
    return f"Owning pays from {hours:.1f} busy hours a day on, every day for {advice.terms.years:f} years."


def _about_load(advice: "LoadAdvice") -> str:
    saved = advice.rented_usd - advice.advised_usd
    load = f"{advice.mean_machines:,.4g} machines on average, at most {advice.peak_machines:,.4g}"
    if not advice.own_machines:
        return f"Of the load ({load}) rent all: a year costs {whole_usd(advice.rented_usd)}."
    machines = f"{advice.own_machines} machine{'s' if advice.own_machines > 1 else ''}"
    return (
        f"Of the load ({load}) own {machines} and rent the rest: a year costs {whole_usd(advice.advised_usd)}, "
        f"{whole_usd(saved)} less than renting all."
    )
