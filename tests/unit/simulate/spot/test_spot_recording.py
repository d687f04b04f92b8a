"""Recordings of spot capacity: rows hold from their time on, and a wrong one is named."""

import gzip
from pathlib import Path

import pytest

from gpuwatch.money.forecast.csv import SeriesError
from gpuwatch.simulate.spot.recording import read_recording

HEAD = "time,offer,nodes,usd_per_hour\n"


def a_file(folder: Path, text: str) -> Path:
    """A recording."""
    path = folder / "spot.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_row_holds_until_the_next_of_its_offer(tmp_path: Path) -> None:
    """Before its first row an offer has nothing; the last time of all ends the recording."""
    path = a_file(tmp_path, HEAD + "0,a,2,1.5\n180,b,1,1.0\n240,a,0,2.5\n360,b,1,1.0\n")
    found = read_recording(path)

    assert found.minutes == 6
    assert found.nodes == {"a": [2, 2, 2, 2, 0, 0], "b": [0, 0, 0, 1, 1, 1]}
    assert found.usd_per_hour is not None
    assert found.usd_per_hour["a"] == [1.5, 1.5, 1.5, 1.5, 2.5, 2.5]


def test_times_may_be_iso_and_the_file_packed(tmp_path: Path) -> None:
    """And prices may be missing."""
    path = tmp_path / "spot.csv.gz"
    path.write_bytes(gzip.compress(b"time,offer,nodes\n2026-03-01T00:00:00Z,a,1\n2026-03-01T00:02:00Z,a,0\n"))
    found = read_recording(path)

    assert (found.nodes, found.usd_per_hour) == ({"a": [1, 1]}, None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("offer,nodes\na,1\n", "line 1: the header 'offer,nodes' lacks time; write time,offer,nodes"),
        (HEAD + "x,a,1,1\n", "line 2: time 'x' is not a time"),
        (HEAD + "0,a,-1,1\n", "line 2: nodes '-1' is not a number of nodes; write 0, 1, 2"),
        (HEAD + "0,a,1.5,1\n", "line 2: nodes '1.5' is not a number of nodes"),
        (HEAD + "0,a,1,free\n", "line 2: usd_per_hour 'free' is not a price above 0"),
        (HEAD + "0, ,1,1\n", "line 2: the offer is empty"),
        (HEAD + "0,a,1\n", "line 2: '0,a,1' has 3 columns and the header has 4"),
        (HEAD, "holds no line"),
        ("", "is empty; write time,offer,nodes"),
        (HEAD + "0,a,1,1\n30,a,1,1\n", "all its lines are of the same minute"),
        (HEAD + "0,a,1,1\n1e99,a,1,1\n", "line 3: time '1e99'"),
        (HEAD + "0,a,1,1\n1e9,a,1,1\n", "three years are read"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, says: str, tmp_path: Path) -> None:
    """And with what would be right."""
    with pytest.raises(SeriesError) as told:
        read_recording(a_file(tmp_path, text))

    assert says in str(told.value)
