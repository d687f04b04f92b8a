"""Commands about what is spent: cost and its reconciliation with a bill, budgets, and idle money that is blocked."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import (
    a_plan,
    commands,
    config_option,
    explain_errors,
    json_option,
    print_text,
    refuse_unknown_pools,
    settings_of,
)
from gpuwatch.model.currency import display_currency
from gpuwatch.model.readable import how_many
from gpuwatch.runtime.json_document import json_text
from gpuwatch.runtime.printable import legible

if TYPE_CHECKING:
    from gpuwatch.config.settings import Settings
    from gpuwatch.money.accounting.store import SpendBook
    from gpuwatch.money.bill.rates_file import RatesDocument


_PERIOD = (
    click.option("--from", "first", metavar="DAY", help="The first day, such as 2026-03-01."),
    click.option("--to", "last", metavar="DAY", help="The last day, which counts; without it, today."),
    click.option("--month", metavar="MONTH", help="A month, such as 2026-03; without any of these, this month."),
    click.option("--day", metavar="DAY", help="One day."),
)


def period_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the options above."""
    for option in reversed(_PERIOD):
        command = option(command)
    return command


def _bill_option(file: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--bill",
        "bills",
        required=True,
        multiple=True,
        metavar="[CLOUD=]FILE",
        help=f"The bill's {file}, also gzipped; of several clouds one each, as CLOUD=FILE.",
    )


@commands.group(invoke_without_command=True)
@period_options
@click.option(
    "--by",
    default="pool",
    show_default=True,
    metavar="WHAT",
    help="pool, cloud, provider, owner, account, node, type, region, capacity, day, tag:KEY; in Kubernetes namespace, "
    "workload or workload-owner.",
)
@click.option("--explain", is_flag=True, help="Make all totals again from single rows; exit status 1 if one differs.")
@click.option("--unused", is_flag=True, help="Ask the cloud also for what no running machine uses, by the month.")
@config_option
@json_option
@click.pass_context
def cost(
    context: click.Context,
    /,
    by: str,
    path: Path | None,
    *,
    explain: bool,
    unused: bool,
    as_json: bool,
    **days: str | None,
) -> None:
    """Show what was billed, how much of it was useful or wasted, and the energy, from the ledger's metering."""
    if context.invoked_subcommand is not None:
        context.obj = path
        return
    with open_spend(path) as (settings, spend, _):
        from zoneinfo import ZoneInfo

        from gpuwatch.money.report import cost as report
        from gpuwatch.money.report import proof
        from gpuwatch.money.report.gather import unusual_spending
        from gpuwatch.money.report.period import period_of
        from gpuwatch.runtime.clock import SystemClock

        zone, now = ZoneInfo(settings.cost.timezone), SystemClock().now()
        period = period_of(zone, now, **days)
        result, unusual = report.cost_report(spend, period, by), unusual_spending(spend, period, now)
        proved = proof.prove_report(spend, result) if explain else None
        document = replace(report.cost_document(result, settings.cost.energy), anomalies=unusual)
        lines = [report.as_text(result, settings.cost.energy)]
        lines += ["", "Not usual:", *(legible(each.sentence) for each in unusual)] if unusual else []
        if proved is not None:
            document = replace(document, wrong=proved.wrong)
            lines += ["", proof.as_text(proved)]
        if unused:
            from gpuwatch.cli.parts import cloud_of
            from gpuwatch.money import unused as left

            found, silent = left.list_leftovers(cloud_of(settings, SystemClock()))
            document = replace(document, unused=left.unused_document(found, silent, today=now.date()))
            lines += ["", "In addition, now, without a running machine:", left.as_text(found, silent, today=now.date())]
        print_text(json_text("cost", document) if as_json else "\n".join(lines))
        sys.exit(1 if proved is not None and proved.wrong else 0)


@cost.command()
@_bill_option("CSV file")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="WHAT=NAME",
    help="What a column is called in a bill that is not AWS's: node, start, end, cost, currency, hours, item.",
)
@click.option("--egress", multiple=True, metavar="PATTERN", help="Lines with such an item are egress; AWS's are known.")
@click.option("--cloud", metavar="NAME", help="The bill is of this cloud: what was metered in others is left out.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many lines.")
@config_option
@json_option
@click.pass_obj
def reconcile(  # noqa: PLR0913  one for each option
    above: Path | None,
    bills: tuple[str, ...],
    columns: tuple[str, ...],
    egress: tuple[str, ...],
    cloud: str | None,
    limit: int,
    path: Path | None,
    *,
    as_json: bool,
) -> None:
    """Compare a bill with the ledger: differences by machine and day, largest first, with the likeliest reason."""
    with open_spend(path or above, named=True) as (settings, spend, names):
        from zoneinfo import ZoneInfo

        from gpuwatch.money.bill import statement as reconciling
        from gpuwatch.money.bill.parse import map_columns

        own = map_columns(columns, egress) if columns or egress else None
        _check_cloud(settings, cloud)
        zone, rates = ZoneInfo(settings.cost.timezone), settings.prices.rates
        found = [
            reconciling.compare_bill(spend, file, zone, rates, own, whose, names)
            for whose, file in _bills(settings, bills, cloud)
        ]
        document = reconciling.reconcile_document(found)
        print_text(json_text("cost.reconcile", document) if as_json else reconciling.as_text(found, limit))


@cost.command()
@_bill_option("file, CSV or JSON lines")
@click.option("--column", "columns", multiple=True, metavar="WHAT=NAME", help="As for `cost reconcile`.")
@click.option("--cloud", metavar="NAME", help="The bill is of this cloud.")
@click.option(
    "--write",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Put the rates into this file of own prices (prices.file), next to what people wrote there.",
)
@config_option
@json_option
@click.pass_obj
def rates(
    above: Path | None,
    bills: tuple[str, ...],
    columns: tuple[str, ...],
    cloud: str | None,
    write: Path | None,
    path: Path | None,
    *,
    as_json: bool,
) -> None:
    """Show what an hour of each type cost by a bill, with commitments and discounts, and write it as own prices."""
    with open_spend(path or above, named=True) as (settings, spend, names):
        from zoneinfo import ZoneInfo

        from gpuwatch.money.bill import rates_file
        from gpuwatch.money.bill.parse import map_columns

        own = map_columns(columns) if columns else None
        _check_cloud(settings, cloud)
        providers = {name or each.provider: each.provider for name, each in settings.named_clouds.items()}
        found = []
        for whose, file in _bills(settings, bills, cloud):
            if whose is None and len(set(providers.values())) > 1:
                raise click.BadParameter(f"name the cloud, one of {', '.join(providers)}", param_hint="--cloud")
            provider = providers[whose] if whose is not None else next(iter(providers.values()))
            zone = ZoneInfo(settings.cost.timezone)
            found.append(rates_file.read_rates(spend, file, zone, provider, own, names))
        document = rates_file.rates_document(found)
        print_text(json_text("cost.rates", document) if as_json else rates_file.as_text(document))
        if write is not None:
            _write_rates(write, document, settings, quiet=as_json)


def _write_rates(file: Path, document: "RatesDocument", settings: "Settings", *, quiet: bool) -> None:
    """Put rates into a file of own prices, and say what to do next."""
    from gpuwatch.money.bill import rates_file
    from gpuwatch.money.bill.charge import BillError

    try:
        notes = rates_file.write_rates(file, document.rates, settings.prices.currency)
    except OSError as error:
        raise BillError(f"{error.filename or file} cannot be written: {error.strerror or error}") from error
    used = settings.prices.file is not None and Path(settings.prices.file).resolve() == file.resolve()
    told = [] if used else [f"Set prices.file: {file}"]
    told.append("They apply from now on. Hours that are metered already keep their price.")
    for line in (*notes, f"Wrote {how_many(len(document.rates) - len(notes), 'rate')} into {file}.", *told):
        print_text(line, err=quiet)


def _bills(settings: "Settings", bills: tuple[str, ...], cloud: str | None) -> list[tuple[str | None, Path]]:
    """Each bill with its cloud, which --cloud may name for a bill alone."""
    names = [name or each.provider for name, each in settings.named_clouds.items()]
    found: list[tuple[str | None, Path]] = []
    for bill in bills:
        name, _, file = bill.partition("=")
        if file and name not in names and not Path(bill).exists() and Path(file).exists():
            _check_cloud(settings, name, "--bill")
        found.append((name, Path(file)) if file and name in names else (cloud, Path(bill)))
    whose = {name for name, _ in found}
    if len(found) > 1 and (None in whose or cloud is not None or len(whose) < len(found)):
        raise click.BadParameter(
            f"several bills need a cloud each, such as {names[0]}=FILE, of {', '.join(names)}", param_hint="--bill"
        )
    return found


def _check_cloud(settings: "Settings", cloud: str | None, option: str = "--cloud") -> None:
    """Refuse a name that no cloud of the settings has; a cloud without a name goes by its provider's."""
    names = [name or each.provider for name, each in settings.named_clouds.items()]
    if cloud is not None and cloud not in names:
        raise click.BadParameter(f"the settings have no cloud {cloud!r}, only {', '.join(names)}", param_hint=option)


@contextmanager
def open_spend(path: Path | None, *, named: bool = False) -> Iterator[tuple["Settings", "SpendBook", dict[str, str]]]:
    """The settings, and what was billed, all of one moment; what a person can mend is a sentence, and exit status 2.

    With `named` also the ids of machines by their names.
    """
    with explain_errors():
        from gpuwatch.ledger import Ledger
        from gpuwatch.money.accounting.store import SpendBook
        from gpuwatch.money.bill.charge import BillError
        from gpuwatch.money.bill.statement import machine_names

        settings = settings_of(path)
        ledger = Ledger.connect(settings.ledger, read_only=True)
        try:
            names = machine_names(ledger) if named else {}
            spend = SpendBook(ledger)
            with spend.snapshot():
                yield settings, spend, names
        except (BillError, ValueError) as error:
            print_text(error, err=True)
            sys.exit(2)
        finally:
            ledger.close()


@commands.command()
@click.option("--pool", "only", metavar="NAME", help="One pool only.")
@config_option
@json_option
def blocked(only: str | None, path: Path | None, *, as_json: bool) -> None:
    """Show what idle machines cost per day because a rule forbids stopping them, what would free it, and the risk.

    A machine that several rules hold counts once, under the one to deal with first; `frees` says what else it takes.
    A busy machine is never in it. Machines of unknown use may be busy: their money is shown apart. --json prints what
    GET /api/v1/blocked answers.
    """
    with a_plan(path) as (parts, done):
        from gpuwatch.money.blocked.blocked import blocked_money as blocked_of
        from gpuwatch.money.blocked.text import as_text

        if done.trouble:
            print_text(done.trouble, err=True)
            sys.exit(1)
        refuse_unknown_pools(() if only is None else (only,), (*parts.rules.known, *done.observation.fleet.pools))
        found = blocked_of(done.observation, done.decisions, done.reviews, parts.rules, pool=only)
        if as_json:
            print_text(json_text("blocked", found))
        else:
            print_text(as_text(found, shutil.get_terminal_size().columns))


@commands.command()
@config_option
@json_option
def budget(path: Path | None, *, as_json: bool) -> None:
    """Show for each budget what is spent, the forecast for the end of the month, and the effects."""
    with explain_errors():
        from zoneinfo import ZoneInfo

        from gpuwatch.ledger import Ledger
        from gpuwatch.money.budgets import table
        from gpuwatch.money.budgets.tracker import Budgeting
        from gpuwatch.runtime.clock import SystemClock

        settings = settings_of(path)
        if not settings.budgets:
            print_text("No budget is configured: add one under `budgets`, as docs/budgets.md#budgets shows.", err=True)
            sys.exit(2)
        ledger = Ledger.connect(settings.ledger, read_only=True)
        try:
            newest = ledger.rounds(limit=1)
            if not newest:
                print_text("No round is on record yet; `gpuwatch controller` makes them.", err=True)
                sys.exit(2)
            seen = ledger.observation(newest[0].id)
            zone = ZoneInfo(settings.cost.timezone)
            states = Budgeting(ledger=ledger, budgets=settings.budgets, zone=zone).states(seen)
        finally:
            ledger.close()
        document = table.BudgetDocument(at=seen.now, currency=display_currency().unless_usd, budgets=states)
        print_text(json_text("budget", document) if as_json else table.as_text(states, seen.now, SystemClock().now()))
        sys.exit(1 if any(each.doubt is not None for each in states) else 0)
