"""Recorded load: both forms come in as they were written; what cannot be is refused by file, line and reason."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.simulate.fleet.traces import TraceError, lives_of, read_trace

SAMPLES = "time_s,node,gpu,utilization_ratio"


def a_trace(folder: Path, text: str) -> Path:
    """A file with that text."""
    path = folder / "trace.csv"
    path.write_text(text)
    return path


@given(
    st.dictionaries(
        st.sampled_from(["a", "b/1", "ç,d"]),
        st.dictionaries(
            st.integers(0, 3),
            st.dictionaries(
                st.integers(0, 10**6),
                st.tuples(st.floats(0, 1), st.integers(0, 2**40)),
                min_size=1,
                max_size=5,
            ),
            min_size=1,
            max_size=2,
        ),
        min_size=1,
    ),
    st.booleans(),
)
def test_samples_come_in_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory,
    nodes: dict[str, dict[int, dict[int, tuple[float, int]]]],
    packed: bool,
) -> None:
    """Any nodes, GPUs, times, ratios and memories survive the way through a file, plain or packed."""
    lines = [f"{SAMPLES},memory_bytes"]
    for node, gpus in nodes.items():
        for gpu, rows in gpus.items():
            lines += [f'{at},"{node}",{gpu},{ratio!r},{held}' for at, (ratio, held) in sorted(rows.items())]
    path = tmp_path_factory.mktemp("trace") / "trace"
    text = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(text) if packed else text)
    read = read_trace(path).samples

    assert list(read) == sorted(nodes)
    for node, gpus in nodes.items():
        for gpu, rows in gpus.items():
            got = {row.seconds: (row.utilization_ratio, row.memory_bytes) for row in read[node][gpu]}

            assert got == rows


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 500)), min_size=1, max_size=20))
def test_busy_intervals_become_exactly_so_much_load(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    """Gaps of any length, zero included, between intervals of any length: the life is busy for their sum."""
    at, lines = 0, ["node,busy_from_s,busy_to_s"]
    for gap, length in steps:
        at += gap
        lines.append(f"n,{at},{at + length}")
        at += length
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    path.write_text("\n".join(lines))
    recording = read_trace(path)
    (life,) = lives_of(recording, gpus_per_node=2)

    assert recording.end == at
    assert len(life.gpus) == 2
    span = at - recording.begin
    assert life.gpus[0].busy(span).overlap(0, span) == sum(length for _, length in steps)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("60,n,0", "it has 3 fields; expected the 4 of the header"),
        ("x,n,0,0.5", "time_s is 'x'; expected a finite number, not negative"),
        ("-1,n,0,0.5", "time_s is '-1'"),
        ("nan,n,0,0.5", "time_s is 'nan'"),
        ("inf,n,0,0.5", "time_s is 'inf'"),
        ("60,,0,0.5", "node is empty"),
        ("60,n,zero,0.5", "gpu is 'zero'; expected a whole number from 0 on"),
        ("60,n,-1,0.5", "gpu is '-1'"),
        ("60,n,0,nan", "utilization_ratio is 'nan'"),
        ("60,n,0,-0.1", "utilization_ratio is '-0.1'"),
        ("60,n,0,57", "utilization_ratio is 57; expected a ratio from 0 to 1 (percent divided by 100)"),
        ("0,n,0,0.5", "time_s is 0 and the row before of gpu 0 of n is of 0; expected rising times"),
        ('60,"n,0,0.5', "expected plain CSV"),
    ],
)
def test_a_broken_sample_is_refused_by_line_reason_and_remedy(tmp_path: Path, row: str, reason: str) -> None:
    """No row is ever skipped or guessed."""
    path = a_trace(tmp_path, f"{SAMPLES}\n0,n,0,0.5\n{row}\n")
    with pytest.raises(TraceError) as caught:
        read_trace(path)

    assert str(caught.value).startswith(f"{path}:3: ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("n,30,30", "busy_to_s is 30 and busy_from_s is 30; expected an end after its begin"),
        ("n,19,40", "it begins at 19, and the interval before of n ends at 20"),
        ("n,5,8", "expected intervals of a node in order, without overlap"),
        ("n,30,nan", "busy_to_s is 'nan'"),
        ("n,30,1767225600000", "busy_to_s is 1767225600000; expected seconds (milliseconds divided by 1000)"),
    ],
)
def test_a_broken_interval_is_refused_by_line_reason_and_remedy(tmp_path: Path, row: str, reason: str) -> None:
    """Intervals of one node stand in order and do not overlap."""
    path = a_trace(tmp_path, f"node,busy_from_s,busy_to_s\nn,10,20\n{row}\n")
    with pytest.raises(TraceError) as caught:
        read_trace(path)

    assert str(caught.value).startswith(f"{path}:3: ")
    assert reason in str(caught.value)


@given(st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=40))
def test_no_row_whatsoever_breaks_the_reader_itself(tmp_path_factory: pytest.TempPathFactory, row: str) -> None:
    """Any text as a row is either read or refused as a TraceError with its line."""
    path = tmp_path_factory.mktemp("trace") / "trace.csv"
    path.write_text(f"{SAMPLES}\n0,n,0,0.5\n{row}\n", encoding="utf-8")
    try:
        read_trace(path)
    except TraceError as error:
        assert str(error).startswith(f"{path}:3: ")  # noqa: PT017  both ends are right


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{SAMPLES},power\n", "1: column 'power' is not known; the columns are time_s,node,gpu,utilization_ratio[,"),
        (f"{SAMPLES},gpu\n", "1: column 'gpu' stands there twice"),
        ("time_s,node,gpu\n", "1: column 'utilization_ratio' is missing"),
        ("node,busy_from_s\n", "1: column 'busy_to_s' is missing"),
        ("node,busy_from_s,busy_to_s,time_s\n", "1: column 'time_s' is not known"),
        ("", " is empty; the columns are time_s"),
        (f"{SAMPLES}\n", " has no rows below its header"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    """Unknown, double and missing columns are named, and the two forms told."""
    path = a_trace(tmp_path, text)
    with pytest.raises(TraceError) as caught:
        read_trace(path)

    assert f"{path}:{reason}" in str(caught.value)


def test_a_cut_off_gzip_file_and_a_missing_one_are_told(tmp_path: Path) -> None:
    """A half-copied recording is not half a recording."""
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(f"{SAMPLES}\n0,n,0,0.5\n".encode())[:-9])
    with pytest.raises(TraceError, match=r"cut\.csv\.gz: is no whole gzip file"):
        read_trace(cut)
    with pytest.raises(TraceError, match=r"none: cannot be read: No such file"):
        read_trace(tmp_path / "none")


def test_a_node_without_rows_for_more_than_five_intervals_is_silent(tmp_path: Path) -> None:
    """The last row holds for one interval, then there is silence up to the next row; five intervals are none."""
    times = [0, 60, 120, 420, 480, 841]  # a gap of exactly five intervals, and one of six
    path = a_trace(tmp_path, "\n".join([SAMPLES, *(f"{at},n,0,0.5" for at in times)]))
    recording = read_trace(path)
    (life,) = lives_of(recording)

    assert recording.sampling_seconds == 60
    assert list(life.silent) == [(540, 841)]
    assert list(life.gpus[0].busy(901)) == [(0, 540), (841, 901)]


def test_a_gpu_without_rows_on_a_node_that_has_some_is_lost(tmp_path: Path) -> None:
    """What a node does not tell of one of its GPUs is unknown, not idle."""
    rows = [f"{at},n,0,0" for at in range(0, 1200, 60)] + ["0,n,1,0", "60,n,1,0", "1140,n,1,0"]
    (life,) = lives_of(read_trace(a_trace(tmp_path, "\n".join([SAMPLES, *rows]))))

    assert list(life.silent) == []
    assert [list(lost.spans) for lost in life.lost] == [[], [(120, 1140)]]
