"""The progress bar: people at a terminal see how far long work is; pipes, files and journals see nothing of it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.cli.base import progress
from gpuwatch.cli.doctor.runner import Check, examine
from gpuwatch.cli.main import commands
from gpuwatch.model.progress import no_advance
from gpuwatch.money.forecast.evaluation import try_methods
from gpuwatch.money.forecast.methods import METHODS
from gpuwatch.money.forecast.series import DAY_SECONDS, Series
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.simulate.demo import run_headless
from gpuwatch.simulate.fleet.options import Options
from tests.support.builders.fleet import NOW
from tests.support.real.terminal import Terminal

LONG = (sys.executable, "-m", "gpuwatch", "demo", "--headless", "--hours", "4", "--json")


def test_on_a_pipe_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever the work reports; and rich is not even loaded for it."""
    with progress("working") as advance:
        advance(1, 2)

    assert advance is no_advance
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("terminal", ["", "dumb"])
def test_a_terminal_that_cannot_move_its_cursor_gets_no_bar(terminal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an editor's."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", terminal)
    with progress("working") as advance:
        assert advance is no_advance


def advances_of(work: Callable[[Callable[[float, float], object]], object]) -> list[float]:
    """The shares of the whole that the work tells of."""
    heard: list[tuple[float, float]] = []
    work(lambda done, whole: heard.append((done, whole)))
    assert all(whole > 0 for _, whole in heard)
    return [done / whole for done, whole in heard]


def doctor(advance: Callable[[float, float], object]) -> object:
    """Four checks."""
    checks: list[Check[None]] = [Check(name=f"check-{number}", look=lambda _: ()) for number in range(4)]
    return examine(checks, None, ManualClock(wall=NOW), advance)


def forecast(advance: Callable[[float, float], object]) -> object:
    """Sixty days, by all methods."""
    series = Series(start=NOW, step_seconds=DAY_SECONDS, values=tuple(map(float, range(60))))
    return try_methods(series, 7, {name: METHODS[name] for name in list(METHODS)[:2]}, advance)


@pytest.mark.parametrize("work", [lambda advance: run_headless(Options(hours=2), advance), doctor, forecast])
def test_work_tells_how_far_it_is(work: Callable[[Callable[[float, float], object]], object]) -> None:
    """From the beginning to near the end, and never backwards."""
    shares = advances_of(work)

    assert len(shares) >= 4
    assert shares == sorted(shares)
    assert 0 <= shares[0] < 0.3
    assert 0.6 < shares[-1] <= 1


def test_a_backtest_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Charges and plays of all policies, as one whole."""
    heard: list[tuple[float, float]] = []
    trace = tmp_path / "load.csv"
    trace.write_text("node,busy_from_s,busy_to_s\na,0,7200\na,20000,86400\nb,0,3600\nb,80000,86400\n", encoding="utf-8")

    class Heard:
        def __enter__(self) -> Callable[[float, float], object]:
            return lambda done, whole: heard.append((done, whole))

        def __exit__(self, *_: object) -> None:
            """Nothing to end."""

    monkeypatch.setattr("gpuwatch.cli.backtest.progress", lambda _: Heard())
    done = CliRunner().invoke(commands, ["backtest", "--trace", str(trace), "--check-hours", "24", "--json"])

    assert done.exit_code == 0, done.output
    assert json.loads(done.output)
    shares = [each / whole for each, whole in heard]
    assert shares == sorted(shares)
    assert max(shares) > 0.8


def test_a_bar_is_on_standard_error_alone_and_gone_at_the_end(tmp_path: Path) -> None:
    """In a real terminal, with standard output in a file; without colours where NO_COLOR says so."""
    out = tmp_path / "figures.json"
    command = ("sh", "-c", 'exec "$@" >' + str(out), "sh", *LONG)
    with Terminal(command, {**os.environ, "NO_COLOR": "1"}, width=80, height=24) as terminal:
        assert terminal.ended() == 0
        said = terminal.all

    assert "playing the story" in said
    assert "%" in said
    assert "\x1b[38" not in said
    assert said.rstrip().endswith("\x1b[2K")
    assert json.loads(out.read_text(encoding="utf-8"))["hours"] == 4


def test_a_pipe_gets_the_same_document_and_not_a_word_more() -> None:
    """Standard error is empty."""
    done = subprocess.run(LONG, capture_output=True, check=True, env={**os.environ, "FORCE_COLOR": "1"})

    assert done.stderr == b""
    assert json.loads(done.stdout)["hours"] == 4
