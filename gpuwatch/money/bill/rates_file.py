"""`gpuwatch cost rates`: a bill's effective rates, as a table, and as entries of the file of own prices."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

from gpuwatch.model.currency import display_currency
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import EFFECTIVE
from gpuwatch.model.usage import GPU, HOUR_MS
from gpuwatch.money.accounting.slices import Calendar
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.bill.charge import BillError
from gpuwatch.money.bill.open_bill import open_bill
from gpuwatch.money.bill.parse import Columns
from gpuwatch.money.bill.rates import Metered, Rate, Rates, effective_rates
from gpuwatch.money.prices import catalogue, overrides_file
from gpuwatch.money.prices.overrides import OwnRow
from gpuwatch.runtime.table import align_rows

_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRow:
    """What an hour of a type cost by the bill, in `currency`, and at the public price (null: the bill lacks it).

    `committed_ratio` is of its cost. It holds from `first` until before `until`; `source` stands with each figure made
    from it.
    """

    provider: str
    region: str
    instance_type: str
    capacity_type: CapacityType
    price_per_hour: Decimal
    list_price_per_hour: Decimal | None
    currency: str
    hours: Decimal
    machines: int
    committed_ratio: Decimal
    first: date
    last: date
    until: date
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesDocument:
    """The effective rates of bills, and why other days of machines made none, with their number."""

    rates: list[RateRow]
    left_out: dict[str, int]


def read_rates(
    spend: SpendBook,
    path: Path,
    zone: ZoneInfo,
    provider: str,
    own: Columns | None = None,
    names: Mapping[str, str] | None = None,
) -> RatesDocument:
    """The rates of a bill, of types with GPUs and of those that the ledger has metered; the file is read twice.

    Raises:
        BillError: the file cannot be read as a bill.

    """
    with open_bill(path, zone, own) as lines:
        days = [each.day for each in lines if each.machine is not False and not each.fee]
    metered = _metered_days(spend, zone, min(days), max(days)) if days else {}
    with open_bill(path, zone, own) as lines:
        found: Rates = effective_rates(lines, metered, names)
    types = {each.instance_type for each in metered.values()}
    rates = [each for each in found.rates if _has_gpus(provider, each.kind.instance_type, types)]
    if not rates and not found.left_out:
        raise BillError(f"{path} has no hours of machines with GPUs; is it the right export?")
    return RatesDocument(rates=[_row(provider, each) for each in rates], left_out=dict(found.left_out))


def _has_gpus(provider: str, instance_type: str, metered: set[str]) -> bool:
    return instance_type in metered or catalogue.find_type(provider, instance_type) is not None


def _metered_days(spend: SpendBook, zone: ZoneInfo, first: date, last: date) -> dict[tuple[str, date], Metered]:
    """What the ledger knows of its machines on these days."""
    calendar = Calendar(zone)
    found: dict[tuple[str, date], Metered] = {}
    for row in spend.rows(calendar.midnight(first), calendar.midnight(last + _DAY), by_node=True, by_time=True):
        key = (row.node_id or "", calendar.local((row.begin or 0) * 1000).date())
        hours = Fraction(sum(row.amounts[:GPU]), HOUR_MS)
        before = found.get(key)
        found[key] = Metered(
            region=row.terms.region,
            instance_type=row.terms.instance_type,
            capacity_type=row.terms.capacity_type,
            hours=hours + (before.hours if before else 0),
        )
    return found


def _row(provider: str, rate: Rate) -> RateRow:
    return RateRow(
        provider=provider,
        region=rate.kind.region,
        instance_type=rate.kind.instance_type,
        capacity_type=rate.kind.capacity_type,
        price_per_hour=rate.per_hour,
        list_price_per_hour=rate.list_per_hour,
        currency=rate.kind.currency,
        hours=rate.hours,
        machines=rate.machines,
        committed_ratio=rate.committed_ratio,
        first=rate.first,
        last=rate.last,
        until=rate.until,
        source=rate.source,
    )


def as_text(found: RatesDocument) -> str:
    """A table with the list price next to what is paid; then what made no rate."""
    heads = ("CLOUD", "REGION", "TYPE", "CAPACITY", "PAID/HOUR", "LIST/HOUR", "OFF", "COMMITTED", "HOURS", "HOLDS")
    rows = [
        (
            each.provider,
            each.region,
            each.instance_type,
            each.capacity_type.value,
            f"{each.price_per_hour:.4f} {each.currency}",
            "?" if each.list_price_per_hour is None else f"{each.list_price_per_hour:.4f}",
            "?" if not each.list_price_per_hour else f"{1 - each.price_per_hour / each.list_price_per_hour:.1%}",
            f"{each.committed_ratio:.1%}",
            f"{each.hours:,.1f}",
            f"{each.first} to {each.until - _DAY}",
        )
        for each in found.rates
    ]
    lines = align_rows([heads, *rows], left={0, 1, 2, 3, 9}) if rows else ["The bill makes no rate."]
    for why, count in sorted(found.left_out.items()):
        one = "1 machine's day makes" if count == 1 else f"{count:,} days of machines make"
        lines.append(f"{one} no rate: {why}.")
    if any(each.committed_ratio for each in found.rates):
        lines.append("What is committed is paid also while machines are stopped: a stop of these hours saves nothing.")
    lines += filter(None, [display_currency().note])
    return "\n".join(lines)


def merge_rates(text: str, rows: Sequence[OwnRow], rates: Sequence[RateRow]) -> tuple[str, list[str]]:
    """A YAML file of own prices with these rates as entries, and in sentences what was left as it is.

    Entries that people wrote stay as they are. Of an earlier rate of the same machines, the new one ends the time.
    """
    ours = [row for row in rows if row.source.startswith(EFFECTIVE)]
    theirs = [row for row in rows if not row.source.startswith(EFFECTIVE)]
    notes: list[str] = []
    made: list[str] = []
    kept = {row.line: row for row in ours}
    for rate in rates:
        scope = (rate.provider, rate.region, rate.instance_type, rate.capacity_type)
        taken = [row for row in theirs if _scope(row) == scope and _overlaps(row, rate.first, rate.until)]
        if taken:
            notes.append(f"{rate.instance_type} in {rate.region}: your own price in line {taken[0].line} stays")
            continue
        for line, row in list(kept.items()):
            if _scope(row) != scope:
                continue
            if row.begins is None or row.begins.date() >= rate.first:
                del kept[line]
            elif row.ends is None or row.ends.date() > rate.first:
                kept[line] = replace(row, ends=datetime(rate.first.year, rate.first.month, rate.first.day, tzinfo=UTC))
        made.append(_entry(rate))
    lines = text.splitlines() or ["prices:"]
    gone = {row.line for row in ours}
    result = [line for number, line in enumerate(lines, start=1) if number not in gone]
    result += [_kept_entry(row) for row in kept.values()] + made
    return "\n".join(result) + "\n", notes


def write_rates(path: Path, rates: Sequence[RateRow], currency: str) -> list[str]:
    """Put the rates into a file of own prices, which is made if it is missing; replaced in one step.

    Raises:
        OSError: it cannot be read or written.
        PricesError: it has a mistake, or would have one.
        BillError: it is a CSV table, which keeps no comments and no order.

    """
    if path.suffix.lower() == ".csv":
        raise BillError(f"{path} is a CSV table; write the rates into a YAML file, such as prices.yaml")
    there = path.exists()
    rows = overrides_file.read_prices(path, currency).rows if there else ()
    text, notes = merge_rates(path.read_text(encoding="utf-8-sig") if there else "prices:\n", rows, rates)
    new = path.with_name(f".{path.name}.new.yaml")
    try:
        new.write_text(text, encoding="utf-8")
        overrides_file.read_prices(new, currency)
        if there:
            new.chmod(path.stat().st_mode & 0o777)
        os.replace(new, path)  # noqa: PTH105  in one step, over what is there
    finally:
        new.unlink(missing_ok=True)
    return notes


def _scope(row: OwnRow) -> tuple[object, ...]:
    return (row.provider, row.region, row.instance_type, row.capacity_type) if row.node is None else ()


def _overlaps(row: OwnRow, first: date, until: date) -> bool:
    begins = row.begins is None or row.begins.date() < until
    return begins and (row.ends is None or row.ends.date() > first)


def _entry(rate: RateRow) -> str:
    return _line(
        rate.provider, rate.region, rate.instance_type, rate.capacity_type.value,
        (rate.price_per_hour, rate.currency, rate.first.isoformat(), rate.until.isoformat()), rate.source,
    )  # fmt: skip


def _kept_entry(row: OwnRow) -> str:
    begins = "" if row.begins is None else row.begins.date().isoformat()
    ends = "" if row.ends is None else row.ends.date().isoformat()
    capacity = "any" if row.capacity_type is None else row.capacity_type.value
    return _line(
        row.provider, row.region, row.instance_type, capacity,
        (row.price or Decimal(0), row.currency, begins, ends), row.source,
    )  # fmt: skip


def _line(
    provider: str | None,
    region: str | None,
    instance_type: str | None,
    capacity: str,
    price: tuple[Decimal, str, str, str],
    source: str,
) -> str:
    """An entry in one line, which the next bill finds again."""
    per_hour, currency, begins, ends = price
    named = {"provider": provider, "region": region, "instance_type": instance_type}
    cells = [f"{name}: {_quote_text(value)}" for name, value in named.items() if value]
    cells += [f"capacity_type: {capacity}", f"price: {per_hour:f}", f"currency: {currency}"]
    cells += [f"{name}: {value}" for name, value in (("from", begins), ("until", ends)) if value]
    return f"  - {{{', '.join(cells)}, source: {_quote_text(source)}}}"


def _quote_text(text: str) -> str:
    """A text as YAML reads it back: in quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def rates_document(results: Sequence[RatesDocument]) -> RatesDocument:
    """The rates of several bills."""
    left_out: dict[str, int] = {}
    for why, count in _all_left_out(results):
        left_out[why] = left_out.get(why, 0) + count
    return RatesDocument(rates=[rate for each in results for rate in each.rates], left_out=left_out)


def _all_left_out(results: Sequence[RatesDocument]) -> Iterator[tuple[str, int]]:
    for each in results:
        yield from each.left_out.items()
