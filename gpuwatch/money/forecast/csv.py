"""Reads `time,value` files: CSV, plain or .gz, with or without a line of heads."""

import csv
import math
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from gpuwatch.model.duration import LONGEST_SECONDS, in_calendar
from gpuwatch.model.slips import readable, semicolons
from gpuwatch.money.forecast.series import Sample
from gpuwatch.runtime.bounded_text import table_lines
from gpuwatch.runtime.printable import not_utf8

_NO_VALUE = frozenset({"", "na", "nan", "null", "none", "-"})
_COLUMNS = ("time", "value")
_LARGEST = 1e15  # sums of a century of such hours are still exact enough


class SeriesError(ValueError):
    """A file that does not say what was measured when; the message names the line and what would be right."""


def read_samples(path: Path) -> list[Sample]:
    """The samples of a file in the order of their lines; lines without a value are holes and give none.

    Raises:
        SeriesError: it cannot be read, a line is wrong, or nothing was measured.

    """
    with open_series(path) as lines:
        samples = list(_samples(path, lines))
    if not samples:
        raise SeriesError(f"{path}: holds no value; lines like 2026-11-01T00:00:00Z,42.5 are read")
    refuse_ages(str(path), *(pick(each.time for each in samples) for pick in (min, max)))
    return samples


@contextmanager
def open_series(path: Path) -> Iterator[Iterator[str]]:
    """Lines of a CSV file.

    Raises:
        SeriesError: it cannot be read.

    """
    try:
        with table_lines(path) as lines:
            yield lines
    except UnicodeDecodeError as error:
        raise SeriesError(f"{path}: {not_utf8(error)}") from error
    except OSError as error:
        raise SeriesError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error, csv.Error) as error:
        raise SeriesError(f"{path}: cannot be read as CSV: {error}") from error


def refuse_ages(path: str, first: datetime, last: datetime) -> None:
    """Refuse times that are more than a century apart: each step between them would be kept.

    Raises:
        SeriesError: they are.

    """
    if (last - first).total_seconds() > LONGEST_SECONDS:
        span = f"from {first:%Y-%m-%d} to {last:%Y-%m-%d}"
        raise SeriesError(f"{path}: its times go {span}, which is more than a century; is one of them mistyped?")


def _samples(path: Path, lines: Iterable[str]) -> Iterator[Sample]:
    rows = csv.reader(lines)
    when, what = 0, 1
    first = True
    for row in rows:
        if not any(cell.strip() for cell in row):
            continue
        if first:
            first = False
            heads = [cell.strip().lower() for cell in row]
            if all(name in heads for name in _COLUMNS):
                when, what = (heads.index(name) for name in _COLUMNS)
                continue
            if not any(_is_time(cell) for cell in row):
                wrong = semicolons(row) or f"the header {','.join(row)!r} has no columns time and value"
                raise SeriesError(f"{path}: line {rows.line_num}: {wrong}; write time,value")
        if len(row) <= max(when, what):
            wrong = semicolons(row) or f"{','.join(row)!r} is not time,value"
            raise SeriesError(f"{path}: line {rows.line_num}: {wrong}; write for example 2026-11-01T00:00:00Z,42.5")
        value = _value(row[what], f"{path}: line {rows.line_num}")
        if value is not None:
            yield Sample(time=time_of(row[when], f"{path}: line {rows.line_num}"), value=value)


def _is_time(cell: str) -> bool:
    try:
        time_of(cell, "")
    except SeriesError:
        return False
    return True


def time_of(cell: str, where: str) -> datetime:
    """ISO 8601, in UTC where it names no zone, or seconds since 1970. `where` begins the message of an error.

    Raises:
        SeriesError: the cell is no time.

    """
    text = cell.strip()
    try:
        seconds = float(text)
    except ValueError:
        pass
    else:
        try:
            return _possible(datetime.fromtimestamp(seconds, UTC))
        except (ValueError, OverflowError, OSError) as error:
            raise SeriesError(f"{where}: time {text!r} are not seconds since 1970 of a year that exists") from error
    try:
        time = _possible(datetime.fromisoformat(text))
    except ValueError as error:
        right = "write 2026-11-01T00:00:00Z or seconds since 1970"
        raise SeriesError(f"{where}: time {text!r} is not a time; {right}") from error
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def _possible(time: datetime) -> datetime:
    """The time, unless it leaves the calendar in some zone or at the next step."""
    if not in_calendar(time):
        raise ValueError
    return time


def _value(cell: str, where: str) -> float | None:
    text = cell.strip()
    if text.lower() in _NO_VALUE:
        return None
    try:
        value = float(text)
    except ValueError as error:
        meant = readable(text)
        right = "leave it empty where nothing was measured" if meant is None else f"write {meant}"
        raise SeriesError(f"{where}: value {text!r} is no number; {right}") from error
    if not math.isfinite(value):
        raise SeriesError(f"{where}: value {text!r} is not finite; leave it empty where nothing was measured")
    if abs(value) > _LARGEST:
        raise SeriesError(f"{where}: value {text!r} is beyond every measurement; expected {_LARGEST:g} at most")
    return value
