"""`gpuwatch status --watch` in a real terminal: drawn again and again, and gone at Ctrl-C."""

import os
import signal
import sys

from tests.support.real.terminal import ALTERNATE, SHOWN, USUAL, Terminal

# What `status --watch` does, with a small fleet in place of a cloud's.
LOOKS = """
import itertools
from rich.text import Text
from gpuwatch.cli.console import console
from gpuwatch.cli.status import Choice, screen
from gpuwatch.cli.console import watch
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.small_fleet import a_day

desk, done = a_day()
looks = itertools.count(1)
watch(
    lambda width, height: [Text(f"look {next(looks)}"), *screen(done, desk.rulebook, Choice(), width, height - 1)],
    console(), SystemClock(), 0.1,
)
print("it ended")
"""


def test_it_looks_again_fits_the_window_and_ends_at_ctrl_c() -> None:
    """The totals come first; where rows are missing, the last line says how many."""
    with Terminal((sys.executable, "-c", LOOKS), dict(os.environ), width=80, height=12) as terminal:
        terminal.shows("look 3")
        lines = terminal.lines

        assert len(lines) == 12
        assert max(map(len, lines)) <= 80
        assert "wasted now" in " ".join(lines[1:3])
        assert any(line.startswith("… ") for line in lines)

        terminal.resize(100, 40)
        terminal.shows("No verdict of its agent: refused.")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == 0
        end = terminal.all[terminal.all.rindex(ALTERNATE) :]
        assert USUAL in end
        assert SHOWN in end
        assert end.rstrip().endswith("it ended")
