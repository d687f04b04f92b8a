"""The command that compares vendors by a person's own scores, and by what gpuwatch knows about them."""

import sys
from pathlib import Path

import click

from gpuwatch.cli.base import config_option, explain_errors, json_option, print_text, settings_of
from gpuwatch.cli.recommend import paid_by_settings, recommend
from gpuwatch.runtime.bounded_text import text_of
from gpuwatch.runtime.json_document import json_text

_DAYS = 90


@recommend.command()
@click.option(
    "--scores",
    "table",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="A CSV of vendors and criteria, with the rows weight, best and worst [docs/advice.md#vendors].",
)
@click.option("--gpu", default="H100", show_default=True, help="Model for the column `price`: its cheapest GPU-hour.")
@config_option
@json_option
def vendors(*, table: Path, gpu: str, path: Path | None, as_json: bool) -> None:
    """Compare vendors by your own scores and weights (SLA, support, latency) and by measured prices."""
    from gpuwatch.money.advice import vendors as advice

    with explain_errors():
        try:
            sheet = advice.read_sheet(text_of(table), table.name)
            measured: dict[str, dict[str, float]] = {}
            sources: dict[str, str] = {}
            columns = {name for row in sheet.values.values() for name, value in row.items() if value is None}
            if advice.PRICE in columns:
                measured[advice.PRICE] = _prices(gpu, path)
                sources[advice.PRICE] = f"US dollars for the cheapest {gpu} for an hour on demand, by the price table"
            if advice.USEFUL_HOUR in columns:
                measured[advice.USEFUL_HOUR] = _useful_hours(path)
                sources[advice.USEFUL_HOUR] = f"US dollars paid per useful GPU-hour in the last {_DAYS} days, metered"
            sheet = advice.fill_measured(sheet, measured)
            advice.unknown_columns(sheet, table.name)
        except UnicodeDecodeError:
            print_text(f"{table} is not UTF-8", err=True)
            sys.exit(2)
        except OSError as error:
            print_text(f"{table} cannot be read: {error.strerror}", err=True)
            sys.exit(2)
        except ValueError as error:
            print_text(error, err=True)
            sys.exit(2)
        document = advice.vendors_document(sheet, tuple(sources))
        print_text(json_text("recommend.vendors", document) if as_json else advice.as_text(sheet, sources))


def _prices(gpu: str, path: Path | None) -> dict[str, float]:
    """The cheapest hour of one GPU of that model on demand, by cloud, in US dollars.

    Raises:
        ValueError: no cloud has that model.

    """
    from gpuwatch.model.fleet import CapacityType
    from gpuwatch.model.slips import meant_name
    from gpuwatch.money.prices import catalogue

    paid, found = paid_by_settings(path), dict[str, float]()
    offers = [each for each in catalogue.offers() if each.gpu_model.lower() == gpu.lower()]
    if not offers:
        models = {each.gpu_model for each in catalogue.offers()}
        raise ValueError(f"--gpu: no machine with a GPU {gpu!r} is known. {meant_name(gpu, models)}")
    for offer in offers:
        usd = paid(offer) if paid is not None else offer.price_per_hour if offer.currency == "USD" else None
        if usd is not None and offer.capacity_type is CapacityType.ON_DEMAND:
            each = float(usd / offer.gpu_count)
            found[offer.provider] = min(each, found.get(offer.provider, each))
    return found


def _useful_hours(path: Path | None) -> dict[str, float]:
    """What a useful GPU-hour cost, by cloud, as metered."""
    from datetime import timedelta

    from gpuwatch.ledger import Ledger
    from gpuwatch.model.usage import HOUR_MS, Use
    from gpuwatch.money.accounting.store import SpendBook
    from gpuwatch.money.accounting.totals import totals
    from gpuwatch.runtime.clock import SystemClock

    ledger, now = Ledger.connect(settings_of(path).ledger, read_only=True), SystemClock().now()
    try:
        rows = SpendBook(ledger).rows(int((now - timedelta(days=_DAYS)).timestamp()), int(now.timestamp()))
    finally:
        ledger.close()
    found = totals(rows, lambda row: row.terms.provider or "")
    return {
        name: float(total.usd) / (total.gpu_ms_by_use[Use.USEFUL] / HOUR_MS)
        for name, total in found.items()
        if name and total.usd and total.gpu_ms_by_use[Use.USEFUL]
    }
