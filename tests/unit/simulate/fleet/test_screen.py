"""simulate/fleet/screen: the live demo in terminals of every size."""

import functools
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from gpuwatch.cli.console import theme
from gpuwatch.controller.round import ControllerContext, Round, step
from gpuwatch.simulate.fleet.options import STORY_BEGINS, Options, lives
from gpuwatch.simulate.fleet.play import play, stage_play
from gpuwatch.simulate.fleet.screen import Board
from gpuwatch.simulate.memory_ledger import InMemoryLedger
from tests.support.nightly import examples

MONEY = (
    "saved $0.19 so far: 14 of 14 GPU-hours billed, 32% wasted instead of 33%; 3 stopped (0 wrongly), 0 started again"
)
SIZES = [(80, 24), (100, 30), (120, 40), (160, 50)]


@functools.cache
def the_board() -> Board:
    """The story's first half hour: some machines are stopped, others have their notice."""
    options = Options(hours=0.5)
    workloads, horizon = lives(options)
    parts, world = stage_play(options, workloads, horizon, InMemoryLedger("screen"))
    board = Board(world=world, rules=parts.rules, clock=parts.clock, begin=STORY_BEGINS, totals=lambda: MONEY)
    board.page = "The fleet's page: http://127.0.0.1:9461"

    def controller(parts: ControllerContext) -> Round:
        done = step(parts)
        board.round(done)
        return done

    play(parts, world, options, horizon, controller=controller)
    return board


def shown(width: int, height: int | None) -> list[str]:
    """The screen as plain text."""
    return [line.plain for line in the_board().lines(width, height)]


def row(lines: Sequence[str], name: str) -> str:
    """The line of a node."""
    return next(line for line in lines[2:] if line.startswith(name))


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_every_node_is_visible_with_its_reason_and_so_are_log_and_savings(width: int, height: int) -> None:
    """From 80x24 on; nothing is wider or higher than the terminal."""
    lines, names = shown(width, height), [host.life.name for host in the_board().world.hosts.values()]

    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert [line.split(" ")[0] for line in lines if line.split(" ")[0] in names] == names
    assert "what happens next, and why" in lines[1]
    assert re.search(r"stopped 08:\d\d: idle for \w+, its notice", row(lines, "forgotten-3"))
    assert "busy for " in row(lines, "train-1")
    assert re.search(r"parked for \w+ of 16h", row(lines, "notebook-ana"))
    assert sum(line.startswith("day 1 08:") for line in lines) >= 4
    assert " ".join(" ".join(lines[-2:]).split()).endswith(MONEY)


@settings(max_examples=examples(40))
@given(st.integers(40, 240), st.integers(6, 80))
def test_it_never_outgrows_the_terminal_and_always_ends_with_the_savings(width: int, height: int) -> None:
    """Where there is no room the log goes first, then the last nodes."""
    lines = shown(width, height)

    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert "started again" in " ".join(" ".join(lines[-3:]).split())


def test_a_high_terminal_shows_whole_reasons() -> None:
    """The reason wraps where the log still has its place."""
    whole = shown(100, None)
    line = whole.index(row(whole, "notebook-ana"))

    assert whole[line + 1].startswith("  ")
    assert shown(160, 50) == [each for each in shown(160, None) if len(each) <= 160]


def test_the_states_have_the_pages_colours() -> None:
    """By the palette of cli/console."""
    console = Console(force_terminal=True, width=80, height=24, color_system="truecolor", theme=theme("truecolor"))
    with console.capture() as caught:
        console.print(the_board())

    assert "\x1b[1;38;2;42;120;184mbusy" in caught.get()  # #2a78b8
    assert "\x1b[1;38;2;143;99;199mparked" in caught.get()  # #8f63c7
