"""Reads recorded load from CSV, plain or .gz, row by row, and makes lives from it.

Two forms, recognised by their header (the order of the columns is free):

- samples: `time_s,node,gpu,utilization_ratio[,memory_bytes]`. The rows of one GPU stand in order of time, each time
  once; other GPUs and nodes may come between them. `gpu` is a whole number, `utilization_ratio` from 0 to 1.
- busy intervals: `node,busy_from_s,busy_to_s`. The intervals of one node stand in order and may touch, not overlap.

Times are seconds from any origin, not negative. What is no number, negative, above 1 or NaN is refused, and so are
unknown, missing and double columns and a row of another length.

Of samples, a row holds until the next one of its GPU. After more than five sampling intervals without one it holds for
one interval; from then on that GPU is lost, and a node with no rows of any GPU is silent. A sampling interval is the
median over the nodes of each node's median gap between rows. Intervals know no silence.
"""

import csv
import gzip
import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from gpuwatch.agent.devices.load_profile import Intervals, LoadProfile, Phase
from gpuwatch.model.slips import semicolons
from gpuwatch.runtime.bounded_text import table_lines
from gpuwatch.runtime.printable import not_utf8
from gpuwatch.simulate.fleet.workloads import DemoError, Lost, Workload

SILENT_AFTER_INTERVALS = 5
_SAMPLE_COLUMNS = ("time_s", "node", "gpu", "utilization_ratio")
_MEMORY_COLUMN = "memory_bytes"
_INTERVAL_COLUMNS = ("node", "busy_from_s", "busy_to_s")
_FORMS = f"{','.join(_SAMPLE_COLUMNS)}[,{_MEMORY_COLUMN}] or {','.join(_INTERVAL_COLUMNS)}"
_LONE_ROW_SECONDS = 60.0  # the sampling interval where no node has two rows
_LAST_SECOND = 253_402_300_800.0  # since 1970, of the year 9999: who writes more means milliseconds

# The machine that a recorded node would be: the smallest with at least so many GPUs.
_TYPES = {1: "g6.xlarge", 4: "g6.12xlarge", 8: "p4d.24xlarge"}


class TraceError(DemoError):
    """A recording that cannot be played; the text names file, line, reason and what would be right."""


@dataclass(frozen=True, slots=True)
class Row:
    """One sample of one GPU."""

    seconds: float
    utilization_ratio: float
    memory_bytes: int


@dataclass(slots=True, kw_only=True)
class Recording:
    """A file's content in the order of its nodes' names; times as they stand in it. One of the two forms is empty."""

    samples: dict[str, dict[int, list[Row]]] = field(default_factory=dict)
    intervals: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    sampling_seconds: float | None = None

    @property
    def begin(self) -> float:
        """The first moment that it covers."""
        firsts = [rows[0].seconds for gpus in self.samples.values() for rows in gpus.values()]
        return min(firsts + [spans[0][0] for spans in self.intervals.values()])

    @property
    def end(self) -> float:
        """The last moment that it covers: a last row holds for one sampling interval."""
        lasts = [rows[-1].seconds for gpus in self.samples.values() for rows in gpus.values()]
        held = [last + (self.sampling_seconds or 0.0) for last in lasts]
        return max(held + [spans[-1][1] for spans in self.intervals.values()])


def read_trace(path: Path) -> Recording:
    """The recording in a file.

    Raises:
        TraceError: the file cannot be read, or a row of it cannot be.

    """
    recording = Recording()
    try:
        with table_lines(path) as lines:
            _read_rows(path, lines, recording)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: is no whole gzip file ({error}); copy it again") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: {not_utf8(error)}") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    recording.samples = dict(sorted(recording.samples.items()))
    recording.intervals = dict(sorted(recording.intervals.items()))
    if not recording.samples and not recording.intervals:
        raise TraceError(f"{path}: has no rows below its header")
    if recording.samples:
        recording.sampling_seconds = _sampling(recording.samples.values())
    return recording


def _read_rows(path: Path, lines: Iterator[str], recording: Recording) -> None:
    """All rows into the recording."""
    rows = csv.reader(lines, strict=True)
    try:
        header = next(rows, None)
        if header is None:
            raise TraceError(f"{path}: is empty; the columns are {_FORMS}")
        if wrong := semicolons(header):
            raise TraceError(f"{path}:1: {wrong}; the columns are {_FORMS}")
        intervals = _is_intervals(path, header)
        for values in rows:
            if not values:
                continue
            if len(values) != len(header):
                raise _broken_row(
                    f"it has {len(values)} fields", f"the {len(header)} of the header: {','.join(header)}"
                )
            row = dict(zip(header, values, strict=True))
            (_take_interval if intervals else _take_sample)(recording, row)
    except (_BrokenRow, csv.Error) as error:
        why = str(error) if isinstance(error, _BrokenRow) else f"{error}; expected plain CSV"
        raise TraceError(f"{path}:{rows.line_num}: {why}") from error


class _BrokenRow(Exception):  # noqa: N818  it never leaves this module
    """A row that cannot be."""


def _broken_row(reason: str, right: str) -> _BrokenRow:
    return _BrokenRow(f"{reason}; expected {right}")


def _is_intervals(path: Path, header: Sequence[str]) -> bool:
    """Which of the two forms the header announces."""
    intervals = "busy_from_s" in header or "busy_to_s" in header
    needed = _INTERVAL_COLUMNS if intervals else _SAMPLE_COLUMNS
    known = needed if intervals else (*needed, _MEMORY_COLUMN)
    for name in header:
        if name not in known:
            raise TraceError(f"{path}:1: column {name!r} is not known; the columns are {_FORMS}")
        if header.count(name) > 1:
            raise TraceError(f"{path}:1: column {name!r} stands there twice; the columns are {_FORMS}")
    missing = [name for name in needed if name not in header]
    if missing:
        raise TraceError(f"{path}:1: column {missing[0]!r} is missing; the columns are {_FORMS}")
    return intervals


def _take_sample(recording: Recording, row: dict[str, str]) -> None:
    node, seconds = _name(row), _seconds(row, "time_s")
    if not (row["gpu"].isascii() and row["gpu"].isdigit()):
        raise _broken_row(f"gpu is {row['gpu']!r}", "a whole number from 0 on")
    ratio = _number(row, "utilization_ratio")
    if ratio > 1:
        raise _broken_row(
            f"utilization_ratio is {row['utilization_ratio']}", "a ratio from 0 to 1 (percent divided by 100)"
        )
    memory = _number(row, _MEMORY_COLUMN) if _MEMORY_COLUMN in row else 0.0
    if memory != int(memory):
        raise _broken_row(f"{_MEMORY_COLUMN} is {row[_MEMORY_COLUMN]}", "a whole number of bytes")
    rows = recording.samples.setdefault(node, {}).setdefault(int(row["gpu"]), [])
    if rows and seconds <= rows[-1].seconds:
        before = f"the row before of gpu {row['gpu']} of {node} is of {rows[-1].seconds:g}"
        raise _broken_row(f"time_s is {seconds:g} and {before}", "rising times for each GPU")
    rows.append(Row(seconds, ratio, int(memory)))


def _take_interval(recording: Recording, row: dict[str, str]) -> None:
    node, begin, end = _name(row), _seconds(row, "busy_from_s"), _seconds(row, "busy_to_s")
    if end <= begin:
        raise _broken_row(f"busy_to_s is {end:g} and busy_from_s is {begin:g}", "an end after its begin")
    spans = recording.intervals.setdefault(node, [])
    if spans and begin < spans[-1][1]:
        wrong = f"it begins at {begin:g}, and the interval before of {node} ends at {spans[-1][1]:g}"
        raise _broken_row(wrong, "intervals of a node in order, without overlap")
    spans.append((begin, end))


def _name(row: dict[str, str]) -> str:
    name = row["node"].strip()
    if not name:
        raise _broken_row("node is empty", "the node's name")
    return name


def _number(row: dict[str, str], column: str) -> float:
    """A finite number of at least 0."""
    try:
        number = float(row[column])
    except ValueError:
        number = math.nan
    if not (0 <= number < math.inf):
        raise _broken_row(f"{column} is {row[column]!r}", "a finite number, not negative")
    return number


def _seconds(row: dict[str, str], column: str) -> float:
    """A time in seconds, from whatever beginning: since 1970, say."""
    seconds = _number(row, column)
    if seconds > _LAST_SECOND:
        raise _broken_row(f"{column} is {row[column]}", "seconds (milliseconds divided by 1000)")
    return seconds


def _sampling(nodes: Iterable[dict[int, list[Row]]]) -> float:
    """The median over the nodes of each node's median gap."""
    medians = []
    for gpus in nodes:
        times = _times(gpus)
        if len(times) > 1:
            medians.append(median(after - before for before, after in pairwise(times)))
    return median(medians) if medians else _LONE_ROW_SECONDS


def _times(gpus: dict[int, list[Row]]) -> list[float]:
    """When a node has a row of any GPU."""
    return sorted({row.seconds for rows in gpus.values() for row in rows})


def lives_of(recording: Recording, *, gpus_per_node: int = 1, instance_type: str | None = None) -> tuple[Workload, ...]:
    """One life for each recorded node, beginning at 0. An interval makes all of its node's GPUs busy."""
    begin, end = recording.begin, recording.end
    sampled = (_sampled_life(name, gpus, recording, instance_type) for name, gpus in recording.samples.items())
    intervals = (
        Workload(
            name=name,
            story="recorded",
            instance_type=instance_type or machine_for(gpus_per_node),
            gpus=(LoadProfile(tuple(_interval_phases(spans, begin, end))),) * gpus_per_node,
        )
        for name, spans in recording.intervals.items()
    )
    return (*sampled, *intervals)


def machine_for(gpus: int) -> str:
    """The machine type that a node of so many GPUs is priced as.

    Raises:
        TraceError: no type of the table has that many.

    """
    found = next((name for count, name in _TYPES.items() if count >= gpus), None)
    if found is None:
        raise TraceError(f"no machine type has {gpus} GPUs; name one with --instance-type")
    return found


def _interval_phases(spans: Sequence[tuple[float, float]], begin: float, end: float) -> Iterator[Phase]:
    for number, (busy_from, busy_to) in enumerate(spans):
        if number == 0 or spans[number - 1][1] < busy_from:
            yield Phase(at=busy_from - begin, utilization_ratio=1.0)
        touched = number + 1 < len(spans) and spans[number + 1][0] == busy_to
        if busy_to < end and not touched:
            yield Phase(at=busy_to - begin)


def _sampled_life(name: str, gpus: dict[int, list[Row]], recording: Recording, instance_type: str | None) -> Workload:
    """A node of samples; what was not recorded is silence or a lost GPU, never idleness."""
    begin, end, interval = recording.begin, recording.end, recording.sampling_seconds or _LONE_ROW_SECONDS
    ordered = [rows for _, rows in sorted(gpus.items())]
    holes = [_holes([row.seconds for row in rows], begin, end, interval) for rows in ordered]
    silent = _holes(_times(gpus), begin, end, interval)
    return Workload(
        name=name,
        story="recorded",
        instance_type=instance_type or machine_for(len(gpus)),
        gpus=tuple(
            LoadProfile(tuple(_sampled_phases(rows, hole, begin))) for rows, hole in zip(ordered, holes, strict=True)
        ),
        silent=silent,
        lost=tuple(Lost(gpu=index, spans=hole) for index, hole in enumerate(holes)),
    )


def _holes(times: Sequence[float], begin: float, end: float, interval: float) -> Intervals:
    """Where rows are missing for too long, counted from the recording's begin."""
    longest = SILENT_AFTER_INTERVALS * interval
    found = [(0.0, times[0] - begin)] if times[0] - begin > longest else []
    for before, after in zip(times, [*times[1:], end], strict=True):
        if after - before > longest:
            found.append((before + interval - begin, after - begin))
    return Intervals(found)


def _sampled_phases(rows: Sequence[Row], holes: Intervals, begin: float) -> Iterator[Phase]:
    """The rows as phases; nothing is known to run in a hole."""
    first = rows[0].seconds - begin
    changes = [(row.seconds - begin, row.utilization_ratio, row.memory_bytes) for row in rows]
    if first > 0 and holes.end_of_interval(0.0) is None:  # too short for a hole: as the first row says
        changes[0] = (0.0, *changes[0][1:])
    changes += [(hole, 0.0, 0) for hole, _ in holes]
    last: tuple[float, int] | None = None
    for at, ratio, memory in sorted(changes):
        if (ratio, memory) != last:
            yield Phase(at=at, utilization_ratio=ratio, memory_bytes=memory)
        last = (ratio, memory)
