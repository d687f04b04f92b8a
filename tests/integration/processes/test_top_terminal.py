"""`gpuwatch top` in a real terminal: it draws, hears keys, follows the window, and leaves everything as it was."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.terminal import ALTERNATE, SHOWN, USUAL, Terminal

TOP = (sys.executable, "-m", "gpuwatch", "top", "--interval", "100ms")
FOUR = "gpus:\n" + 4 * "  - {name: NVIDIA L4, life: [{at: 0s}]}\n"


@pytest.fixture
def alone(tmp_path: Path) -> dict[str, str]:
    """The environment of a host with four simulated GPUs and without an agent: nobody listens at port 1."""
    script = tmp_path / "script.yaml"
    script.write_text(FOUR, encoding="utf-8")
    settings = {"SOURCE": "simulated", "SCRIPT": str(script), "PORT": "1", "EVIDENCE__ENABLED": "false"}
    return {**os.environ, **{f"GPUWATCH_AGENT__{name}": value for name, value in settings.items()}}


def is_as_before(terminal: Terminal) -> bool:
    """The usual screen, a cursor, keys echoed and lines whole."""
    end = terminal.all[terminal.all.rindex(ALTERNATE) :]
    return USUAL in end and SHOWN in end and terminal.modes() == terminal.modes_before


def a_top(environment: Mapping[str, str], command: Sequence[str] = TOP, **size: int) -> Terminal:
    """The live view in a terminal of its own."""
    return Terminal(command, environment, **size)


def test_it_shows_the_gpus_and_ends_at_q(alone: dict[str, str]) -> None:
    """On a screen of its own, which is gone afterwards."""
    with a_top(alone) as terminal:
        terminal.shows("no agent runs here: read directly; idle times begin now")
        terminal.shows("L4")
        titles = next(line for line in terminal.lines if line.startswith("GPU"))

        assert len(terminal.lines) == 24
        assert [line.split()[:2] for line in terminal.lines if line.startswith("  ") and "L4" in line] == [
            [str(gpu), "L4"] for gpu in range(4)
        ]
        assert titles.endswith("WHY")

        terminal.type("q")
        assert terminal.ended() == 0
        assert is_as_before(terminal)


def test_a_key_sorts_the_processes(alone: dict[str, str]) -> None:
    """The last line says by what."""
    with a_top(alone) as terminal:
        terminal.shows("(by GPU)")
        terminal.type("m")
        terminal.shows("(by memory)")
        terminal.type("u")
        terminal.shows("(by user)")


def test_it_follows_the_window(alone: dict[str, str]) -> None:
    """Smaller and larger, without a key."""
    with a_top(alone, width=120, height=40) as terminal:
        terminal.shows("L4")
        assert len(terminal.lines) == 40
        terminal.resize(60, 12)
        eventually(lambda: len(terminal.lines) == 12 and "q quit" in terminal.lines[-1], lambda: terminal.screen)
        assert max(map(len, terminal.lines)) <= 60


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGHUP, 129, marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, 0, marks=pytest.mark.nightly),  # as Ctrl-C below
    ],
    ids=str,
)
def test_every_signal_leaves_the_terminal_as_it_was(alone: dict[str, str], number: signal.Signals, status: int) -> None:
    """And the exit status says which it was; Ctrl-C is how many end such a view."""
    with a_top(alone) as terminal:
        terminal.shows("q quit")
        terminal.process.send_signal(number)

        assert terminal.ended() == status
        assert is_as_before(terminal)


def test_ctrl_c_ends_it(alone: dict[str, str]) -> None:
    """As the key, through the terminal."""
    with a_top(alone) as terminal:
        terminal.shows("q quit")
        terminal.type("\x03")

        assert terminal.ended() == 0
        assert is_as_before(terminal)


def test_ctrl_z_gives_the_terminal_back_for_as_long_as_it_lasts(alone: dict[str, str]) -> None:
    """The shell gets its screen and its cursor; then it goes on."""
    with a_top(alone) as terminal:
        terminal.shows("q quit")
        terminal.process.send_signal(signal.SIGTSTP)
        eventually(terminal.stopped)
        eventually(lambda: is_as_before(terminal), lambda: terminal.all[-200:])
        terminal.process.send_signal(signal.SIGCONT)
        eventually(lambda: terminal.all.count(ALTERNATE) == 2)
        terminal.shows("q quit")


def test_a_flaw_leaves_the_terminal_as_it_was(alone: dict[str, str]) -> None:
    """Its error is on the usual screen, where it can be read, and the status is that of a command that could not."""
    script = (
        "import sys; from gpuwatch.cli.top import source; sys.argv = ['gpuwatch', 'top']\n"
        "def broken(self): raise RuntimeError('a flaw of ours')\n"
        "source.DirectSource.page = broken\n"
        "from gpuwatch.__main__ import main; sys.exit(main())"
    )
    with a_top(alone, (sys.executable, "-c", script)) as terminal:
        assert terminal.ended() == 2
        assert is_as_before(terminal)
        assert "a flaw of ours" in terminal.all[terminal.all.rindex(USUAL) :]


def test_without_a_terminal_it_prints_once(alone: dict[str, str]) -> None:
    """On a dumb one as well."""
    dumb = ("env", "TERM=dumb", *TOP)
    with a_top(alone, dumb) as terminal:
        assert terminal.ended() == 0
        assert ALTERNATE not in terminal.all
        assert "GPU" in terminal.all


def test_an_agent_that_goes_away_leaves_no_old_numbers(alone: dict[str, str]) -> None:
    """Absent, never stale: the reason takes the table's place."""
    agent = RunningAgent(alone, source="simulated", script=alone["GPUWATCH_AGENT__SCRIPT"])
    with a_top(alone, (*TOP, "--agent", agent.url)) as terminal:
        with agent:
            terminal.shows("L4")
        terminal.shows(f"no agent answers at {agent.url}")

        assert "L4" not in terminal.screen
        terminal.type("q")
        assert terminal.ended() == 0
