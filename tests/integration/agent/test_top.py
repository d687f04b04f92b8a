"""`gpuwatch top` beside a real agent on the stand-in driver, and without one: what people see of sick and busy GPUs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bcrypt
import msgspec
import pytest

from gpuwatch.agent.control import order
from gpuwatch.model.host_page import HostPage
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.certificates import Authority

GIB = 1 << 30
PASSWORD = "correct horse"  # noqa: S105  of a user of this test


def top(driver: StubDriver, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One look."""
    environment = {**driver.environment, "GPUWATCH_AGENT__EVIDENCE__ENABLED": "false", "COLUMNS": "120", **variables}
    command = [sys.executable, "-m", "gpuwatch", "top", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def as_json(driver: StubDriver, *arguments: str, **variables: str) -> dict[str, Any]:
    """The same for a program."""
    done = top(driver, "--json", *arguments, **variables)
    assert not done.stderr, done.stderr
    return msgspec.json.decode(done.stdout, type=dict[str, Any])


@pytest.fixture
def worker() -> Iterator[int]:
    """A process of this user's that is on a GPU."""
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.kill()
    process.wait()


def test_the_agents_page_is_what_is_shown(driver: StubDriver, worker: int) -> None:
    """GPUs, who uses them and why, from the agent that has watched them all the time."""
    driver.gpus(2)
    driver.gpu(0).utilization(0.97).processes({worker: 3 * GIB})
    with RunningAgent(driver.environment) as agent:
        eventually(lambda: '"program":"sleep"' in agent.get("/v1/host"), lambda: agent.get("/v1/host"))
        shown = top(driver, "--agent", agent.url, "--once")
        page = as_json(driver, "--agent", agent.url)

    (process,) = page["processes"]
    assert shown.returncode == 0, shown.stderr
    assert "sleep" in shown.stdout
    assert "utilization 97 %" in shown.stdout
    assert (process["pid"], process["program"], process["gpus"][0]["memory_bytes"]) == (worker, "sleep", 3 * GIB)
    assert "600" not in json.dumps(process["program"])
    assert [gpu["state"] for gpu in page["gpus"]] == ["busy", "idle"]
    assert page["driver_version"] == "580.65.06"
    assert page["note"] == ""


def test_the_page_is_of_its_schema(driver: StubDriver) -> None:
    """And asking for it does not disturb the others."""
    with RunningAgent(driver.environment) as agent:
        eventually(lambda: agent.health()["gpus_up"])
        page = msgspec.json.decode(agent.get("/v1/host"), type=HostPage)
        verdict = agent.verdict()

    assert page.schema == 1
    assert page.verdict.node_id == verdict.node_id == "node-1"


def test_a_lost_gpu_has_its_row_with_cause_and_remedy(driver: StubDriver) -> None:
    """The other one is shown as ever."""
    driver.gpus(2)
    with RunningAgent(driver.environment) as agent:
        eventually(lambda: agent.health()["gpus_up"] == 2)
        driver.lose(1)
        eventually(lambda: '"lost"' in agent.get("/v1/host"))
        shown = top(driver, "--agent", agent.url, "--once").stdout

    assert any(line.startswith("  0") and "idle" in line for line in shown.splitlines())
    assert "lost: " in shown
    assert "reboot" in shown


def test_a_hung_gpu_has_its_row_with_cause_and_remedy(driver: StubDriver) -> None:
    """While the next probe serves the other one."""
    driver.gpus(2)
    with RunningAgent(driver.environment, deadline=0.5, restart_min=0.1) as agent:
        eventually(lambda: agent.health()["gpus_up"] == 2)
        driver.hang(1)
        eventually(lambda: agent.health()["gpus_up"] == 1 and '"hang"' in agent.get("/v1/host"))
        shown = top(driver, "--agent", agent.url, "--once").stdout

    row = next(line for line in shown.splitlines() if line.startswith("  1"))
    assert " down " in row
    assert "hang: " in shown
    assert "reset" in shown


def test_released_gpus_say_by_whom_and_how_to_take_them_again(driver: StubDriver, tmp_path: Path) -> None:
    """Nothing is read behind the agent's back."""
    socket = tmp_path / "agent.sock"
    with RunningAgent(driver.environment, control_socket=socket) as agent:
        eventually(lambda: agent.health()["gpus_up"])
        assert order(socket, "release", "MIG change").done
        eventually(lambda: '"released"' in agent.get("/v1/host"))
        shown = top(driver, "--agent", agent.url, "--once")

    assert shown.returncode == 1
    assert "MIG change" in shown.stdout
    assert "gpuwatch agent acquire" in shown.stdout


def test_mig_instances_are_rows_of_their_own(driver: StubDriver) -> None:
    """With their size and their work."""
    driver.gpu(0).mig((1, "3g.40gb", 40 * GIB, 5 * GIB, 80), (2, "3g.40gb", 40 * GIB, 0, 0))
    with RunningAgent(driver.environment) as agent:
        eventually(lambda: "3g.40gb" in agent.get("/v1/host"), lambda: agent.get("/v1/host"))
        shown = top(driver, "--agent", agent.url, "--once").stdout

    assert [line.split()[0] for line in shown.splitlines() if "3g.40gb" in line] == ["0:1", "0:2"]


def test_without_an_agent_top_reads_itself(driver: StubDriver, worker: int) -> None:
    """With the agent's own code, and says that idle times begin now; no process is left behind."""
    driver.gpu(0).utilization(0.4).processes({worker: GIB})
    page = as_json(driver, GPUWATCH_AGENT__PORT="1")

    assert page["note"] == "no agent runs here: read directly; idle times begin now"
    assert [gpu["state"] for gpu in page["gpus"]] == ["busy"]
    assert [process["program"] for process in page["processes"]] == ["sleep"]


def test_without_a_driver_top_says_what_to_do(tmp_path: Path) -> None:
    """One line with the remedy, and exit status 1."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "GPUWATCH_AGENT__PORT": "1"}
    command = [sys.executable, "-m", "gpuwatch", "top", "--once"]
    environment["GPUWATCH_AGENT__EVIDENCE__ENABLED"] = "false"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stderr) == (1, "")
    assert "install the NVIDIA driver" in " ".join(done.stdout.split())


def test_a_protected_agent_is_asked_with_a_password_over_its_own_certificate(
    driver: StubDriver, tmp_path: Path
) -> None:
    """Found by its configuration, its certificate is believed itself, whatever name it bears."""
    issued = Authority(tmp_path / "ca").issue("agent", "gpu-7.example.com")
    users, password = tmp_path / "users", tmp_path / "password"
    users.write_text(f"ann:{bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()}\n", encoding="ascii")
    password.write_text(PASSWORD, encoding="ascii")
    tls = {"tls_certificate": issued.certificate, "tls_key": issued.key}
    with RunningAgent(driver.environment, users_file=users, **tls) as agent:
        port = agent.url.rpartition(":")[2]
        settings = {f"GPUWATCH_AGENT__{name.upper()}": str(value) for name, value in tls.items()}
        settings["GPUWATCH_AGENT__PORT"] = port
        let_in = as_json(driver, "--user", "ann", "--password-file", str(password), **settings)
        refused = as_json(driver, **settings)

    assert (let_in["note"], let_in["verdict"]["node_id"]) == ("", "node-1")
    assert "wants a user and a password: --user NAME: read directly" in refused["note"]
