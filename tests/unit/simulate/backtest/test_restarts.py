"""What no wait can repair: shorter restarts, and work packed onto few nodes; each figure by hand."""

from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli.main import commands
from gpuwatch.simulate.backtest.gaps import history_of
from gpuwatch.simulate.backtest.replay import Recorded
from gpuwatch.simulate.backtest.restarts import advise, rank_spans
from gpuwatch.simulate.fleet.options import Options

HEADER = "node,busy_from_s,busy_to_s\n"
spans = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 99)).map(lambda each: (each[0], sum(each))), max_size=30)


def a_trace(folder: Path, *rows: str) -> Path:
    """A recording of busy intervals."""
    path = folder / "load.csv"
    path.write_text(HEADER + "\n".join(rows))
    return path


def test_a_shorter_restart_by_hand(tmp_path: Path) -> None:
    """One gap of 200 s and one of 1,000 s in 3,600 s, both ended by work, at 600, 400 and 150 s a restart.

    At 600 s: 200, and 600 + 600. At 400: 200, and 400 + 400. At 150: twice 150 + 150. Work takes 2,400 s.
    """
    trace = a_trace(tmp_path, "n,0,1000", "n,1200,2000", "n,3000,3600")
    advice = advise("load", history_of(Options(trace=trace)), 600.0, [("boot", 200.0), ("image", 450.0 - 250.0)])
    deep = advise("load", history_of(Options(trace=trace)), 600.0)

    assert advice.node_hours == 1.0
    assert [(each.name, each.restart_seconds) for each in advice.cases] == [
        ("today", 600.0),
        ("without boot", 400.0),
        ("without image", 400.0),
    ]
    assert [each.node_hours_billed * 3600 for each in advice.cases] == pytest.approx([3800, 3400, 3400])
    assert advice.cases[0].saved_ratio == pytest.approx(1 - 3800 / 3600), "two restarts more than they save"
    assert advice.cases[1].best_ratio == pytest.approx(1 - (2400 + 200 + 400) / 3600)
    assert [each.restart_seconds for each in deep.cases] == [600.0, 450.0, 300.0, 150.0]
    assert deep.cases[3].node_hours_billed * 3600 == pytest.approx(2400 + 4 * 150)


def test_packed_by_hand(tmp_path: Path) -> None:
    """Two nodes take turns each 1,000 s of 4,000; one node could do it all, and would never be idle.

    As recorded each waits 600 s, and restarts for 600 s, once: a's gap of 1,000 s between its work, and b's; a's last
    1,000 s end with the recording: 600 s.
    """
    trace = a_trace(tmp_path, "a,0,1000", "b,1000,2000", "a,2000,3000", "b,3000,4000")
    (pool,) = advise("load", history_of(Options(trace=trace)), 600.0).pools

    assert (pool.nodes, pool.most_at_work) == (2, 1)
    assert pool.packed_node_hours_billed * 3600 == pytest.approx(4000)
    assert pool.node_hours_billed * 3600 == pytest.approx(4000 + 2 * 1200 + 600)
    assert pool.saved_ratio == pytest.approx(1 - 4000 / 7000)


def test_ranks_fill_from_the_first() -> None:
    """Two at work in 0 to 10, one until 20, two again from 30 to 40: the second rests for 20 s, the first for 10."""
    ranks = rank_spans([(0, 20), (0, 10), (30, 40), (30, 40)], 50)

    assert ranks.nodes == 2
    assert [(gap.node_id, gap.begin, gap.end, gap.needed) for gap in ranks.gaps] == [
        ("1", 10, 30, True),
        ("0", 20, 30, True),
        ("0", 40, 50, False),
        ("1", 40, 50, False),
    ]


@given(spans)
def test_ranks_do_all_of_the_work_and_never_overlap(work: list[tuple[int, int]]) -> None:
    """Work and gaps of all ranks fill the time from each rank's first work to the horizon, exactly."""
    ranks = rank_spans(work, 1000)
    by_rank: dict[str, list[Recorded]] = {}
    for gap in ranks.gaps:
        by_rank.setdefault(gap.node_id, []).append(gap)

    assert ranks.nodes <= len(work)
    for gaps in by_rank.values():
        assert all(before.end <= after.begin for before, after in pairwise(gaps))
        assert sum(not gap.needed for gap in gaps) <= 1
    for at in range(0, 1000, 37):
        level = sum(begin <= at < end for begin, end in work)
        idle = sum(gap.begin <= at < gap.end for gap in ranks.gaps)
        begun = max((sum(b <= t < e for b, e in work) for t in range(at + 1)), default=0)
        assert level + idle == begun


def test_people_get_two_tables(tmp_path: Path) -> None:
    """And a mistake in the parts is answered by what would be right."""
    trace = a_trace(tmp_path, "a,0,1000", "b,1000,2000", "a,2000,3000", "b,3000,4000")
    told = CliRunner().invoke(commands, ["recommend", "restarts", "--trace", str(trace), "--image", "4m"])
    wrong = CliRunner().invoke(commands, ["recommend", "restarts", "--trace", str(trace), "--image", "11m"])

    assert told.exit_code == 0, told.output
    assert "without image" in told.output
    assert "42.9%" in told.output
    assert wrong.exit_code == 2
    assert (
        "the parts of a restart are 11m together, longer than the whole restart (10m, --restart-cost)" in wrong.output
    )
