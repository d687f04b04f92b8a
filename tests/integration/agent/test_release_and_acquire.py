"""agent/control.py: `gpuwatch agent release` and `acquire`, on real agents."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.control import Answer, ControlServer, order
from gpuwatch.model.activity import State
from tests.support.fakes.nvml import StubDriver
from tests.support.paths import ROOT
from tests.support.real.agents import RunningAgent, eventually, is_running

SINCE = r"since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the control socket is, in a folder that the agent makes."""
    return tmp_path / "run" / "agent.sock"


@pytest.fixture
def agent(driver: StubDriver, path: Path) -> Iterator[RunningAgent]:
    """An agent that reads two GPUs."""
    driver.gpus(2)
    with RunningAgent(driver.environment, control_socket=path) as running:
        eventually(lambda: up(running) == {"0": "1.0", "1": "1.0"}, lambda: running.log)
        yield running


def up(agent: RunningAgent) -> dict[str, str]:
    """gpuwatch_gpu_up by index."""
    return dict(re.findall(r'^gpuwatch_gpu_up\{gpu="(\d+)".*\} (\S+)$', agent.get("/metrics"), re.MULTILINE))


def command(path: Path, verb: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command as an administrator types it."""
    return subprocess.run(
        [sys.executable, "-m", "gpuwatch", "agent", verb, "--socket", str(path), *options],
        env={**{name: value for name, value in os.environ.items() if name != "SUDO_USER"}, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_release_lets_go_of_the_gpus(agent: RunningAgent, path: Path) -> None:
    """When the command returns no probe is left, and every page says by whom, since when and why."""
    (probe,) = agent.children()
    done = command(path, "release", "--reason", "MIG change", SUDO_USER="alice")
    gone = not is_running(probe)
    verdict, health, page = agent.verdict(), agent.health(), agent.get("/metrics")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(rf"released by alice as root {SINCE}: MIG change; `gpuwatch agent acquire`", done.stdout)
    assert gone
    assert verdict.activity.state is State.UNKNOWN
    assert re.search(rf"released by alice as root {SINCE}: MIG change$", verdict.activity.doubt or "")
    assert (health["probe"]["state"], health["probe"]["cause"]) == ("down", "released")
    assert [down["cause"] for down in health["gpus_down"]] == ["released"] * 2
    assert "gpuwatch_probe_up 0.0" in page
    assert 'gpuwatch_probe_down_info{cause="released"} 1.0' in page
    assert up(agent) == {"0": "0.0", "1": "0.0"}
    assert "gpuwatch_gpu_power_watts{" not in page


def test_it_stays_released_and_the_verdict_stays_fresh(agent: RunningAgent, path: Path) -> None:
    """No probe is started, and the controller can tell a released host from one that has died."""
    order(path, "release")
    before = agent.verdict()
    eventually(lambda: agent.verdict().at > before.at, agent.verdict)
    verdict = agent.verdict()

    assert agent.children() == []
    assert (verdict.activity.state, verdict.age_seconds < 1.0) == (State.UNKNOWN, True)
    assert "released by" in (verdict.activity.doubt or "")
    assert 'restarts_total{cause="exit"} 0.0' in agent.get("/metrics")


def test_acquire_reads_them_again(agent: RunningAgent, path: Path) -> None:
    """And nothing of the time in between counts as idle."""
    order(path, "release")
    done = command(path, "acquire")
    eventually(lambda: up(agent) == {"0": "1.0", "1": "1.0"}, agent.health)
    eventually(lambda: agent.verdict().activity.state is State.IDLE, agent.verdict)

    assert (done.returncode, done.stdout, done.stderr) == (0, "the GPUs are read again\n", "")
    assert "gpuwatch_probe_up 1.0" in agent.get("/metrics")


def test_a_second_release_says_who_was_first(agent: RunningAgent, path: Path) -> None:
    """Neither order does harm when it is given twice."""
    first = order(path, "release", "the first")
    second = order(path, "release", "the second")
    acquired = [order(path, "acquire"), order(path, "acquire")]

    assert second == first
    assert [answer.text for answer in acquired] == ["the GPUs are read again", "the GPUs were not released"]
    assert all(answer.done for answer in acquired), agent.log


def test_a_gpu_that_hung_is_read_after_a_reset(driver: StubDriver, path: Path) -> None:
    """Release ends the probe also while a call hangs, and acquire gives each GPU a new chance at once."""
    driver.gpus(2)
    with RunningAgent(driver.environment, control_socket=path, deadline=1.5, restart_min=0.05) as agent:
        eventually(lambda: up(agent) == {"0": "1.0", "1": "1.0"}, lambda: agent.log)
        driver.hang(0)
        eventually(lambda: up(agent) == {"0": "0.0", "1": "1.0"}, lambda: agent.log)
        released = order(path, "release")
        left = agent.children()
        driver.find(0)
        order(path, "acquire")

        eventually(lambda: up(agent) == {"0": "1.0", "1": "1.0"}, agent.health)
    assert (released.done, left) == (True, [])


def test_a_restarted_agent_acquires(driver: StubDriver, path: Path) -> None:
    """A release is kept nowhere; what a killed agent left of its socket is replaced."""
    with RunningAgent(driver.environment, control_socket=path) as first:
        order(path, "release")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
    left = path.is_socket()
    with RunningAgent(driver.environment, control_socket=path) as second:
        eventually(lambda: up(second) == {"0": "1.0"}, lambda: second.log)
        answer = order(path, "acquire")

    assert left
    assert answer == Answer(done=True, text="the GPUs were not released")
    assert not path.exists(), "an agent that ends takes its socket with it"


def test_an_agent_ends_while_released(agent: RunningAgent, path: Path) -> None:
    """SIGTERM does not wait for acquire."""
    order(path, "release")
    agent.process.terminate()

    assert agent.process.wait(5) == 0


# The socket.


def test_only_owner_and_group_may_write_to_it(agent: RunningAgent, path: Path) -> None:
    """Mode 0660."""
    assert stat.S_IMODE(path.stat().st_mode) == 0o660, agent.log


def test_a_path_that_cannot_be_made_is_told(driver: StubDriver, tmp_path: Path) -> None:
    """The agent does all else without it."""
    (tmp_path / "file").touch()
    with RunningAgent(driver.environment, control_socket=tmp_path / "file" / "agent.sock") as agent:
        eventually(lambda: up(agent) == {"0": "1.0"}, lambda: agent.log)

    assert re.search(
        r"WARNING `gpuwatch agent release` will not work: \S+/file/agent\.sock cannot be made \(\w.*\); "
        r"set agent\.control_socket to a path that this user may make, or to none",
        agent.log,
    )


def test_a_second_agent_leaves_the_first_ones_socket_alone(agent: RunningAgent, driver: StubDriver, path: Path) -> None:
    """It says so, and orders go on reaching the first."""
    with RunningAgent(driver.environment, control_socket=path) as second:
        eventually(lambda: "another agent listens there" in second.log, lambda: second.log)
    order(path, "release")

    assert agent.health()["probe"]["cause"] == "released"


def test_without_an_agent_the_command_says_so(path: Path) -> None:
    """Status 1, with the path and what to look at."""
    done = command(path, "release")

    assert (done.returncode, done.stdout) == (1, "")
    assert f"gpuwatch agent release: no agent listens at {path} (No such file or directory)" in done.stderr


def test_the_path_comes_from_the_settings(agent: RunningAgent, path: Path, tmp_path: Path) -> None:
    """The same file and variables as the agent's own."""
    settings = tmp_path / "gpuwatch.yaml"
    settings.write_text(f"agent: {{control_socket: {json.dumps(str(path))}}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "gpuwatch", "agent", "release", "--config", str(settings)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), agent.log


@pytest.fixture
def obeyed(path: Path) -> Iterator[list[tuple[str, str]]]:
    """What a bare socket was ordered to do."""
    orders: list[tuple[str, str]] = []

    def wave(who: str, reason: str) -> Answer:
        orders.append((who, reason))
        return Answer(done=True, text="waved")

    server = ControlServer(path, {"wave": wave})
    server.start()
    yield orders
    server.close()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"wave", b"not an order"),
        (b'{"verb": 7}', b"not an order"),
        (b"\xff" * 5000, b"not an order"),
        (b'{"verb": "bow"}', b"unknown order 'bow'; known are: wave"),
    ],
)
def test_what_is_no_order_is_told(obeyed: list[tuple[str, str]], path: Path, said: bytes, answer: bytes) -> None:
    """And the next order is obeyed."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(said)
        heard = client.recv(65536)

    assert answer in heard
    assert order(path, "wave").done
    assert len(obeyed) == 1


def test_a_silent_client_holds_nobody_up_for_long(obeyed: list[tuple[str, str]], path: Path) -> None:
    """It loses its turn."""
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))

        assert order(path, "wave").done
    assert len(obeyed) == 1


def test_a_reason_is_one_line(obeyed: list[tuple[str, str]], path: Path) -> None:
    """Nothing that is written into it breaks the log or grows without end."""
    order(path, "wave", "a\nb\x1b[31m" + "c" * 500)

    assert obeyed[0][1].startswith(r"a\nb\x1b[31mcc")
    assert len(obeyed[0][1]) == 200
