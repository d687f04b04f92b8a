"""A bill's file, read once, a line at a time: CSV or JSON lines, packed by gzip or not."""

import csv
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from zoneinfo import ZoneInfo

from gpuwatch.money.bill.charge import BillError, Charge, fold_name
from gpuwatch.money.bill.parse import Columns, charges
from gpuwatch.runtime.bounded_text import table_lines
from gpuwatch.runtime.json_document import read_json
from gpuwatch.runtime.printable import not_utf8

Table = tuple[Sequence[str], Iterator[Mapping[str, str]]]


@contextmanager
def open_bill(path: Path, zone: ZoneInfo, own: Columns | None = None) -> Iterator[Iterator[Charge]]:
    """All charges of a bill; days are those of `zone`, as far as the bill has moments.

    Raises:
        BillError: the file cannot be read as a bill.

    """
    with _open_lines(path) as lines:
        header, rows = _table(lines)
        yield charges(header, rows, lambda at: at.astimezone(zone).date(), own, read_json)


def _table(lines: Iterator[str]) -> Table:
    """The columns and rows of a table, or of objects, one in a line, as BigQuery exports them."""
    first = next(lines, "")
    everything = chain([first], lines)
    if not first.lstrip().startswith("{"):
        reader = csv.DictReader(everything, restkey="")
        return reader.fieldnames or (), reader
    objects = _objects(everything)
    one = next(objects, {})
    return list(one), chain([one], objects)


def _objects(lines: Iterator[str]) -> Iterator[Mapping[str, str]]:
    """Each object as a flat row: its columns are called by their whole path, folded."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found = read_json(line)
        except ValueError:
            raise BillError(f"line {number}: it is no JSON object") from None
        if not isinstance(found, dict):
            raise BillError(f"line {number}: it is no JSON object")
        yield {fold_name(name): value for name, value in _flat(found, "")}


def _flat(found: Mapping[str, object], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in found.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            text = json.dumps(value) if isinstance(value, list) else str(value)
            yield f"{prefix}{name}", text


@contextmanager
def _open_lines(path: Path) -> Iterator[Iterator[str]]:
    """Lines of a text file, packed by gzip or not.

    Raises:
        BillError: it is no such file.

    """
    try:
        with table_lines(path) as lines:
            yield lines
    except OSError as error:
        raise BillError(f"{path} cannot be read: {error.strerror or error}") from error
    except BillError as error:
        raise BillError(f"{path}: {error}") from error
    except UnicodeDecodeError as error:
        raise BillError(f"{path} {not_utf8(error)}") from error
    except (EOFError, zlib.error, csv.Error) as error:
        raise BillError(f"{path} is not a CSV file, or not a whole one: {error}") from error
