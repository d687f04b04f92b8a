"""Recordings of spot capacity: when how many nodes could be had from each offer, and at what price.

A CSV file, plain or .gz, with a header: `time,offer,nodes` and, if known, `usd_per_hour`. `time` is ISO 8601 or seconds
since 1970, `offer` any name such as aws/us-east-1a/p4d.24xlarge. A row says what holds from its time on; the last time
of all rows is the end. Before its first row an offer has no nodes.
"""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.model.slips import right_way, semicolons
from gpuwatch.money.forecast.csv import SeriesError, open_series, time_of

STEP_SECONDS = 60
_COLUMNS = ("time", "offer", "nodes")
_LONGEST_MINUTES = 3 * 366 * 1440


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """For each offer and minute: the nodes that could be had at once, and what one costs an hour (None: unknown)."""

    minutes: int
    nodes: dict[str, list[int]]
    usd_per_hour: dict[str, list[float]] | None = None

    @property
    def days(self) -> float:
        """How long it is."""
        return self.minutes * STEP_SECONDS / 86_400

    def first(self, minutes: int) -> "Recording":
        """Its first minutes, or all of it."""
        most, prices = min(minutes, self.minutes), self.usd_per_hour
        return Recording(
            minutes=most,
            nodes={name: room[:most] for name, room in self.nodes.items()},
            usd_per_hour=None if prices is None else {name: each[:most] for name, each in prices.items()},
        )

    def only(self, offers: Iterable[str]) -> "Recording":
        """The same with some of the offers."""
        prices = self.usd_per_hour
        return Recording(
            minutes=self.minutes,
            nodes={name: self.nodes[name] for name in offers},
            usd_per_hour=None if prices is None else {name: prices[name] for name in offers},
        )


@dataclass(frozen=True, slots=True)
class _Row:
    seconds: float
    nodes: int
    usd: float | None


def read_recording(path: Path) -> Recording:
    """The recording in a file.

    Raises:
        SeriesError: it cannot be read, or a line is wrong; the message names the line and what would be right.

    """
    with open_series(path) as lines:
        rows = _rows(path, lines)
    return _by_minute(path, rows)


def _rows(path: Path, lines: Iterable[str]) -> dict[str, list[_Row]]:
    reader = csv.reader(lines)
    heads = [cell.strip().lower() for cell in next(reader, [])]
    lacking = [name for name in _COLUMNS if name not in heads]
    if lacking:
        wrong = semicolons(heads) or f"the header {','.join(heads)!r} lacks {lacking[0]}"
        where = f"{path}: line 1: {wrong}" if heads else f"{path}: is empty"
        raise SeriesError(f"{where}; write {','.join(_COLUMNS)}")
    place = {name: heads.index(name) for name in (*_COLUMNS, "usd_per_hour") if name in heads}
    found: dict[str, list[_Row]] = {}
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        where = f"{path}: line {reader.line_num}"
        if len(row) <= max(place.values()):
            raise SeriesError(f"{where}: {','.join(row)!r} has {len(row)} columns and the header has {len(heads)}")
        name = row[place["offer"]].strip()
        if not name:
            raise SeriesError(f"{where}: the offer is empty; write for example aws/us-east-1a/p4d.24xlarge")
        usd = _usd(row[place["usd_per_hour"]], where) if "usd_per_hour" in place else None
        seconds = time_of(row[place["time"]], where).timestamp()
        found.setdefault(name, []).append(_Row(seconds, _count(row[place["nodes"]], where), usd))
    if not found:
        raise SeriesError(
            f"{path}: holds no line; lines like 2026-11-01T00:00:00Z,aws/us-east-1a/p4d.24xlarge,4 are read"
        )
    return found


def _count(cell: str, where: str) -> int:
    try:
        count = int(cell)
    except ValueError:
        count = -1
    if count < 0:
        raise SeriesError(f"{where}: nodes {cell.strip()!r} is not a number of nodes; write 0, 1, 2, …")
    return count


def _usd(cell: str, where: str) -> float:
    try:
        usd = float(cell)
    except ValueError:
        usd = math.nan
    if not (math.isfinite(usd) and usd > 0):
        right = "write for example 12.24" if usd <= 0 else right_way(cell.strip(), "12.24")
        raise SeriesError(f"{where}: usd_per_hour {cell.strip()!r} is not a price above 0; {right}")
    return usd


def _by_minute(path: Path, rows: dict[str, list[_Row]]) -> Recording:
    begin = min(each.seconds for points in rows.values() for each in points)
    end = max(each.seconds for points in rows.values() for each in points)
    minutes = int((end - begin) // STEP_SECONDS)
    if minutes < 1:
        raise SeriesError(f"{path}: all its lines are of the same minute; a recording lasts longer")
    if minutes > _LONGEST_MINUTES:
        raise SeriesError(
            f"{path}: from its first to its last time are {minutes / 1440:.0f} days; three years are read"
        )
    nodes: dict[str, list[int]] = {}
    prices: dict[str, list[float]] = {}
    for name, points in rows.items():
        points.sort(key=lambda each: each.seconds)
        counts, usd = [0] * minutes, [points[0].usd or 0.0] * minutes
        for point, after in zip(points, [*points[1:], None], strict=True):
            first = math.ceil((point.seconds - begin) / STEP_SECONDS)
            last = minutes if after is None else math.ceil((after.seconds - begin) / STEP_SECONDS)
            counts[first:last] = [point.nodes] * (min(last, minutes) - min(first, minutes))
            usd[first:last] = [point.usd or 0.0] * (min(last, minutes) - min(first, minutes))
        nodes[name], prices[name] = counts, usd
    priced = all(point.usd is not None for points in rows.values() for point in points)
    return Recording(minutes=minutes, nodes=nodes, usd_per_hour=prices if priced else None)
