"""The demo: the real controller over a simulated fleet; its figures come from the simulation's truth."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.controller.web.settings import ControllerSettings
from gpuwatch.runtime.installed import install_command
from gpuwatch.simulate.demo import run_headless
from gpuwatch.simulate.fleet.options import Options
from tests.support.components import require
from tests.support.real.agents import eventually
from tests.support.real.browser import chromium

DEMO = [sys.executable, "-m", "gpuwatch", "demo"]
PORT = ControllerSettings().port
MORNINGS, HOURS = (5, "3") if "NIGHTLY_LIVES" in os.environ else (1, "1")
HEADER = "time_s,node,gpu,utilization_ratio"


def a_trace(folder: Path, *lines: str) -> Path:
    """A recording with these lines."""
    path = folder / "trace.csv"
    path.write_text("\n".join(lines))
    return path


def run_demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`gpuwatch demo` as a process, its output no terminal."""
    return subprocess.run([*DEMO, *arguments], capture_output=True, text=True, check=False, timeout=240)


# The demo fleet.


@pytest.mark.nightly  # mornings run each day
def test_a_day_of_the_demo_fleet_saves_money_and_hurts_nobody() -> None:
    """24 hours: idle machines are found and stopped, nobody at work is, and the waste is below the baseline's."""
    figures = run_headless(Options(seed=7, hours=24))

    assert (figures.nodes, figures.hours) == (13, 24.0)
    assert int(figures.stopped) >= 3, "the three forgotten machines at least"
    assert figures.wrongly_stopped == 0
    assert float(figures.waste_ratio) < float(figures.baseline_waste_ratio)
    assert float(figures.saved_usd) > 0
    assert float(figures.silent_gpu_hours) > 0, "a node falls silent, and is billed"


@settings(
    max_examples=5 if "NIGHTLY_LIVES" in os.environ else 3, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(seed=st.integers(0, 2**31))
def test_whatever_the_seed_nobody_at_work_is_stopped(seed: int) -> None:
    """Any fleet's morning: idle machines are stopped, and none that anybody needs."""
    figures = run_headless(Options(seed=seed, hours=6))

    assert int(figures.stopped) > 0
    assert figures.wrongly_stopped == 0
    assert float(figures.waste_ratio) < float(figures.baseline_waste_ratio)


def test_stopping_parked_nodes_hurts_people_and_the_figures_say_so() -> None:
    """The truth is not gpuwatch's verdict: with `parked: stop`, notebooks with people are stopped, and counted."""
    figures = run_headless(Options(seed=7, hours=6, parked="stop"))

    assert int(figures.wrongly_stopped) > 0


def test_the_same_seed_prints_the_same_bytes() -> None:
    """Two processes with different hash seeds print the same JSON object; another seed another one."""

    def printed(seed: str, hash_seed: str) -> str:
        return subprocess.run(
            [*DEMO, "--headless", "--hours", HOURS, "--seed", seed, "--json"],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        ).stdout

    first = printed("7", "1")

    assert first == printed("7", "2")
    assert first != printed("8", "1")
    assert set(json.loads(first)) >= {
        "nodes",
        "gpus",
        "rounds",
        "billed_gpu_hours",
        "useful_gpu_hours",
        "waste_ratio",
        "baseline_waste_ratio",
        "stopped",
        "wrongly_stopped",
        "saved_usd",
    }


# Recorded load.


def test_a_recorded_node_comes_to_the_figures_computed_by_hand(tmp_path: Path) -> None:
    """Idle from 600 s: noticed at 1200, stopped at 1500; wanted at 7200, serving from 7380 to 7800."""
    trace = a_trace(tmp_path, "node,busy_from_s,busy_to_s", "n,0,600", "n,7200,7800")
    figures = run_headless(Options(trace=trace))
    billed, useful = 1500 + 600, 600 + 420

    assert asdict(figures) == {
        "source": "trace.csv",
        "seed": 0,
        "hours": round(7800 / 3600, 4),
        "nodes": 1,
        "gpus": 1,
        "rounds": 129,
        "billed_gpu_hours": round(billed / 3600, 4),
        "useful_gpu_hours": round(useful / 3600, 4),
        "missed_gpu_hours": round(180 / 3600, 4),
        "silent_gpu_hours": 0.0,
        "waste_ratio": round(1 - useful / billed, 6),
        "baseline_waste_ratio": round(1 - 1200 / 7800, 6),
        "stopped": 1,
        "wrongly_stopped": 0,
        "restarts": 1,
        "saved_usd": round(0.8048 * (7800 - billed) / 3600, 2),
    }


def test_silence_is_billed_and_never_idleness(tmp_path: Path) -> None:
    """A node idle for three minutes and then silent for two hours is not stopped; the silence is counted."""
    trace = a_trace(tmp_path, HEADER, *(f"{at},n,0,0" for at in (0, 60, 120, 7200, 7260)))
    figures = run_headless(Options(trace=trace))

    assert figures.stopped == 0
    assert figures.billed_gpu_hours == round(7320 / 3600, 4)
    assert figures.silent_gpu_hours == round((7200 - 180) / 3600, 4)


def test_the_same_rows_without_the_hole_are_idleness(tmp_path: Path) -> None:
    """What the silence above prevents: rows throughout, and the node is stopped."""
    trace = a_trace(tmp_path, HEADER, *(f"{at},n,0,0" for at in range(0, 7261, 60)))

    assert run_headless(Options(trace=trace)).stopped == 1


@pytest.mark.parametrize(("parked", "stopped"), [("stop", 1), ("report", 0)])
def test_held_memory_of_a_recording_is_reclaimed_unless_told_otherwise(
    tmp_path: Path, parked: str, stopped: int
) -> None:
    """A recorded node has nobody at it, so its pool says `parked: stop`; --parked report leaves such nodes alone."""
    rows = (f"{at},n,0,0,20000000000" for at in range(0, 7200, 60))
    trace = a_trace(tmp_path, f"{HEADER},memory_bytes", *rows)
    done = run_demo("--headless", "--trace", str(trace), "--parked", parked, "--json")

    assert json.loads(done.stdout)["stopped"] == stopped, done.stderr


def test_a_broken_recording_ends_the_demo_with_one_sentence(tmp_path: Path) -> None:
    """File, line, reason, what would be right, exit status 2, no traceback."""
    trace = a_trace(tmp_path, HEADER, "0,n,0,57")
    done = run_demo("--headless", "--trace", str(trace))

    assert done.returncode == 2
    assert done.stderr == (
        f"{trace}:2: utilization_ratio is 57; expected a ratio from 0 to 1 (percent divided by 100)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--hours", "3"), "belong to --headless"),
        (("--headless", "--timeout", "soon"), "'soon' is not a duration; write for example 90s"),
        (("--headless", "--timeout", "0s"), "'0s' is not above 0"),
    ],
)
def test_a_wrong_option_is_refused_by_name(arguments: tuple[str, ...], complaint: str) -> None:
    """Options that make no sense end with the sentence that mends them."""
    done = run_demo(*arguments)

    assert done.returncode == 2
    assert complaint in " ".join(done.stderr.split())


# Live.


def test_the_live_demo_gives_notice_then_stops_the_idle_and_nobody_else() -> None:
    """Forty minutes in seconds: each stop follows its notice and hits an idle machine."""
    done = run_demo("--seed", "7", "--speed", "200", "--seconds", "12")
    lines = done.stdout.splitlines()
    noticed = [match[1] for line in lines if (match := re.search(r"notice (\S+): idle for ", line))]
    stopped = [
        match[1] for line in lines if (match := re.search(r"stop (\S+): idle for .*, its notice had run out", line))
    ]

    assert done.returncode == 0, done.stderr
    assert "forgotten-1" in stopped, done.stdout
    assert set(stopped) <= set(noticed)
    assert all(name.startswith(("batch", "forgotten")) for name in stopped)
    assert any("settled forgotten-1: the cloud shows it stopped" in line for line in lines), done.stdout
    assert re.search(r"saved \$\d+\.\d\d so far: .* stopped \(0 wrongly\)", lines[-1]), done.stdout


def test_the_live_demo_needs_no_clouds_package() -> None:
    """It plays where neither boto3 nor moto is installed."""
    missing = "import sys; sys.modules.update(boto3=None, botocore=None, moto=None)"
    script = f"{missing}; from gpuwatch.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "demo", "--speed", "300", "--seconds", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
    assert "after the beginning: saved $" in done.stdout.splitlines()[-1]


def test_without_the_extra_the_demo_says_what_to_install() -> None:
    """A missing part is one sentence with the command that brings it."""
    script = "import sys; sys.modules['sqlalchemy'] = None; from gpuwatch.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "demo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 2
    assert done.stderr.endswith(f"{install_command('demo')}\n")
    assert len(done.stderr.splitlines()) == 1


def test_ctrl_c_ends_the_live_demo_with_its_summary() -> None:
    """SIGINT: exit status 0, the summary is the last line, nothing on stderr."""
    running = subprocess.Popen(
        [*DEMO, "--speed", "300"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    first, second = running.stdout.readline(), running.stdout.readline()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)

    assert first.startswith("The fleet's page: http://127.0.0.1:")
    assert second.startswith("day 1 08:")
    assert running.returncode == 0
    assert "after the beginning: saved $" in out.splitlines()[-1]
    assert err == ""


# Its page.


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where a live demo says that its page is, once it has seen a round. The controller's own port is taken."""
    command = [*DEMO, "--seed", "7", "--speed", "200"]
    with socket.socket() as taken:
        with contextlib.suppress(OSError):  # by somebody else
            taken.bind(("127.0.0.1", PORT))
            taken.listen()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
            try:
                assert running.stdout is not None
                first = running.stdout.readline()
                found = re.fullmatch(r"The fleet's page: (http://127\.0\.0\.1:\d+)\n", first)
                assert found, first + running.stdout.read()
                eventually(lambda: seen(found[1]), lambda: found[1])
                yield found[1]
            finally:
                running.kill()


def fetched(url: str) -> str:
    """What is there."""
    with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310  our own URL
        return str(answer.read().decode())


def seen(url: str) -> dict[str, Any]:
    """The fleet; empty before the first round."""
    try:
        document: dict[str, Any] = json.loads(fetched(f"{url}/api/v1/fleet"))
    except HTTPError as error:
        error.close()
        return {}
    return document


def test_the_live_demo_shows_its_fleet_on_the_controllers_own_page(url: str) -> None:
    """Page, API and metrics of the 13 machines while it runs, on any port where the controller's is taken."""
    fleet = seen(url)

    assert not url.endswith(f":{PORT}")
    assert "<!doctype html>" in fetched(url)
    assert (fleet["fleet"], fleet["mode"], fleet["totals"]["nodes"]) == ("demo", "enforce", 13)
    assert fleet["totals"]["gpus"] == 36
    assert "gpuwatch_fleet_node_usd_per_hour" in fetched(f"{url}/metrics")


@pytest.mark.component("chromium")
def test_a_browser_reckons_by_the_storys_clock(url: str) -> None:
    """The page is drawn without an error, tells what happens next, and does not take the story's January for old."""
    with chromium(require("chromium")) as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        wrong: list[str] = []
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto(url)
        page.wait_for_selector("#rows tr")
        if "GPUWATCH_SCREENSHOT" in os.environ:
            page.screenshot(path=os.environ["GPUWATCH_SCREENSHOT"])

        assert page.locator("#rows tr").count() == 13
        assert "There was no round" not in page.inner_text("body")
        assert wrong == []
