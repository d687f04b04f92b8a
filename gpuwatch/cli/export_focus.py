"""`gpuwatch export focus`: what was metered, as a table in FOCUS columns."""

from datetime import timedelta
from pathlib import Path

import click

from gpuwatch.cli.base import config_option, print_text
from gpuwatch.cli.cost import open_spend, period_options
from gpuwatch.cli.export import export, folder_argument, force_option
from gpuwatch.cli.shipped import write


@export.command()
@folder_argument
@period_options
@click.option(
    "--by",
    type=click.Choice(["node", "workload"]),
    default="node",
    show_default=True,
    help="A row for each day of a machine, or in Kubernetes of a workload.",
)
@config_option
@force_option
def focus(
    *,
    folder: Path,
    by: str,
    path: Path | None,
    force: bool,
    **days: str | None,
) -> None:
    """Write what machines cost and wasted as a CSV table in FOCUS 1.2 columns, for tools that read bills.

    Its sums are those of `gpuwatch cost`, to the cent. Columns of gpuwatch's own begin with x_.
    """
    with open_spend(path) as (settings, spend, _):
        from zoneinfo import ZoneInfo

        from gpuwatch.money.focus_export import focus_table
        from gpuwatch.money.report.period import period_of
        from gpuwatch.runtime.clock import SystemClock

        zone = ZoneInfo(settings.cost.timezone)
        period = period_of(zone, SystemClock().now(), **days)
        table, unpriced = focus_table(spend, period, by)
    last_day = period.after - timedelta(days=1)
    write(folder, {f"focus-{period.first}-to-{last_day}.csv": table}, force)
    if unpriced:
        print_text(
            f"Warning: {unpriced:,.1f} machine-hours have no known price. FOCUS allows no null as a cost: they cost 0 "
            "in the table and stand in x_UnpricedHours. `gpuwatch cost` says what to set.",
            err=True,
        )
