"""Files without an end, or with one endless line, are refused in bounded memory by readers of tables and settings."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.money.forecast.csv import SeriesError, read_samples
from gpuwatch.runtime import bounded_text
from gpuwatch.runtime.bounded_text import table_lines, text_of
from gpuwatch.simulate.fleet.traces import TraceError, read_trace
from gpuwatch.simulate.spot.recording import read_recording

ZERO = Path("/dev/zero")
READERS: dict[str, tuple[Callable[[Path], object], type[Exception]]] = {
    "a recorded load": (read_trace, TraceError),
    "a series": (read_samples, SeriesError),
    "a recorded spot market": (read_recording, SeriesError),
}
TABLES = {
    "a recorded load": b"time_s,node,gpu,utilization_ratio\n0,node-1,0,0.5\n60,node-1,0,0.5\n",
    "a series": b"time,value\n2026-11-01T00:00:00Z,42.5\n",
    "a recorded spot market": b"time,offer,nodes\n0,aws/p4d,4\n120,aws/p4d,2\n",
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_without_an_end_is_refused_by_every_reader_of_lines(name: str) -> None:
    """A device, where somebody meant a file."""
    read, error = READERS[name]
    with pytest.raises(error, match="line 1 is longer than 1 MiB"):
        read(ZERO)


@pytest.mark.parametrize("name", READERS)
def test_a_packed_bomb_is_refused_by_every_reader_of_lines(name: str, tmp_path: Path) -> None:
    """A few kilobytes that become megabytes of one line."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"0" * (4 << 20)))
    read, error = READERS[name]
    with pytest.raises(error, match="line 1 is longer than 1 MiB"):
        read(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("name", READERS)
def test_a_table_may_come_through_a_pipe(name: str, pack: Callable[[bytes], bytes]) -> None:
    """As a shell gives it for <(zcat load.gz): what was read once cannot be read again."""
    read, _ = READERS[name]
    end, begin = os.pipe()
    os.write(begin, pack(TABLES[name]))
    os.close(begin)
    try:
        assert read(Path(f"/dev/fd/{end}"))
    finally:
        os.close(end)


def test_a_whole_text_has_a_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Settings, prices, users: one character more is too much."""
    monkeypatch.setattr(bounded_text, "MOST_CHARACTERS", 10)
    path = tmp_path / "text"
    path.write_text("0123456789", encoding="utf-8")
    assert text_of(path) == "0123456789"
    path.write_text("0123456789a", encoding="utf-8")
    with pytest.raises(OSError, match="it is larger than") as refused:
        text_of(path)
    assert refused.value.filename == str(path)


def test_lines_come_as_they_are(tmp_path: Path) -> None:
    """With their ends, and the last one without."""
    path = tmp_path / "text"
    path.write_bytes(b"a\r\n\nb" + os.linesep.encode() + b"c")
    with table_lines(path) as lines:
        assert list(lines) == ["a\r\n", "\n", f"b{os.linesep}", "c"]
