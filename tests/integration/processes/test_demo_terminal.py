"""`gpuwatch demo` in real terminals: the whole fleet at a glance from 80x24 on, and one line at its end."""

import os
import signal
import sys

import pytest

from tests.support.real.terminal import ALTERNATE, SHOWN, USUAL, Terminal

DEMO = (sys.executable, "-m", "gpuwatch", "demo", "--speed", "600")
NODES = 13


@pytest.mark.parametrize(("width", "height"), [(80, 24), pytest.param(160, 50, marks=pytest.mark.nightly)])
def test_the_fleet_its_log_and_its_savings_fit(width: int, height: int) -> None:
    """One line a node at least; Ctrl-C gives the terminal back and says what came of it."""
    with Terminal(DEMO, dict(os.environ), width=width, height=height) as terminal:
        terminal.shows("stopped 08:")
        lines = terminal.lines
        nodes = [line for line in lines if line.partition("-")[0] in {"batch", "forgotten", "notebook", "serve"}]
        nodes += [line for line in lines if line.partition("-")[0] in {"silent", "train"}]

        assert len(nodes) == NODES
        assert len(lines) <= height
        assert max(map(len, lines)) <= width
        assert any(line.startswith("saved $") for line in lines)
        assert any(line.startswith("day 1 08:") for line in lines)

        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 0
        end = terminal.all[terminal.all.rindex(ALTERNATE) :]
        assert USUAL in end
        assert SHOWN in end
        assert "after the beginning: saved $" in end


@pytest.mark.nightly  # tests/unit: the same without a terminal
def test_without_colours_it_still_names_each_state() -> None:
    """NO_COLOR: bold and dim remain."""
    with Terminal(DEMO, {**os.environ, "NO_COLOR": "1"}) as terminal:
        terminal.shows("stopped 08:")

        assert "\x1b[38" not in terminal.all
        assert ";38;" not in terminal.all
        assert "busy" in terminal.screen
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 0
