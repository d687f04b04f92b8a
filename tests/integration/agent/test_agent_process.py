"""`gpuwatch agent` as a user runs it: a real process on the stand-in driver."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from http import HTTPStatus
from pathlib import Path

import pytest

from gpuwatch.agent.daemon import discover_node_id, routes
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.probe.supervisor import ProbeSupervisor
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.request import PROBES
from tests.support.fakes.nvml import StubDriver
from tests.support.paths import ROOT
from tests.support.real.agents import RunningAgent, eventually, is_running


def run_agent(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """An agent that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "gpuwatch", "agent", *arguments],
        env={**os.environ, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def up(agent: RunningAgent) -> dict[str, str]:
    """gpuwatch_gpu_up by index."""
    return dict(re.findall(r'^gpuwatch_gpu_up\{gpu="(\d+)".*\} (\S+)$', agent.get("/metrics"), re.MULTILINE))


def test_an_agent_serves_metrics_health_and_a_verdict(driver: StubDriver) -> None:
    """From the driver through the probe to all three pages."""
    driver.gpus(2)
    driver.gpu(1).utilization(0.5)
    with RunningAgent(driver.environment) as agent:
        eventually(lambda: up(agent) == {"0": "1.0", "1": "1.0"}, lambda: agent.log)
        verdict, health = agent.verdict(), agent.health()

        assert (verdict.node_id, verdict.activity.state) == ("node-1", State.BUSY)
        assert [gpu.activity.state for gpu in verdict.gpus] == [State.IDLE, State.BUSY]
        assert verdict.age_seconds < 2
        assert (health["supervisor"], health["probe"], health["gpus_up"]) == ("running", {"state": "up"}, 2)
        assert 'gpuwatch_node_info{node_id="node-1"} 1.0' in agent.get("/metrics")
        assert [agent.get(path) for path in PROBES] == ["200 yes\n"] * 2


def test_the_running_agent_carries_no_validator(driver: StubDriver) -> None:
    """pydantic, YAML and click were needed for a moment at most, and OpenSSL never: no library of theirs is mapped."""
    with RunningAgent(driver.environment) as agent:
        eventually(lambda: len(agent.verdict().gpus) == 1, lambda: agent.log)
        maps = Path(f"/proc/{agent.process.pid}/maps").read_text(encoding="utf-8")
        loaded = {name for name in ("pydantic_core", "_yaml", "msgspec", "libcrypto") if name in maps}

    assert loaded == {"msgspec"}


def test_no_driver_at_first(driver: StubDriver) -> None:
    """The agent serves, says what is missing and what to do, and recovers by itself when the driver appears."""
    driver.remove()
    with RunningAgent(driver.environment) as agent:
        eventually(lambda: agent.health()["probe"]["state"] == "down", agent.health)
        probe, verdict, page = agent.health()["probe"], agent.verdict(), agent.get("/metrics")
        driver.load()
        eventually(lambda: up(agent) == {"0": "1.0"}, lambda: agent.log)

        assert probe["cause"] == "driver_not_loaded"
        assert "modprobe nvidia" in probe["remedy"]
        assert verdict.activity.state is State.UNKNOWN
        assert 'gpuwatch_probe_down_info{cause="driver_not_loaded"} 1.0' in page
        assert agent.verdict().activity.state is State.IDLE


def test_a_driver_installed_later(driver: StubDriver, tmp_path: Path) -> None:
    """A library that is not there at all is looked for again in each cycle."""
    later = tmp_path / "later"
    later.mkdir()
    with RunningAgent({**driver.environment, "LD_LIBRARY_PATH": str(later)}) as agent:
        eventually(lambda: agent.health()["probe"].get("cause") == "library_not_found", agent.health)
        shutil.copy(driver.library / "libnvidia-ml.so.1", later)

        eventually(lambda: up(agent) == {"0": "1.0"}, lambda: agent.log)


def test_a_lost_gpu(driver: StubDriver) -> None:
    """It is down with its cause; the other is up; the node is unknown; and back again."""
    driver.gpus(2)
    with RunningAgent(driver.environment) as agent:
        eventually(lambda: up(agent) == {"0": "1.0", "1": "1.0"}, lambda: agent.log)
        driver.lose(0)
        eventually(lambda: up(agent) == {"0": "0.0", "1": "1.0"}, lambda: agent.log)
        eventually(lambda: agent.verdict().activity.state is State.UNKNOWN, agent.verdict)
        down = agent.health()["gpus_down"]
        driver.find(0)
        eventually(lambda: up(agent) == {"0": "1.0", "1": "1.0"}, lambda: agent.log)

    assert [(entry["gpu"], entry["cause"]) for entry in down] == [(0, "lost")]


def test_a_hung_gpu(driver: StubDriver) -> None:
    """A driver call that never returns costs that GPU alone, and never the agent's answers."""
    driver.gpus(2)
    with RunningAgent(driver.environment, deadline=1.5, restart_min=0.05) as agent:
        eventually(lambda: up(agent) == {"0": "1.0", "1": "1.0"}, lambda: agent.log)
        driver.hang(0)
        eventually(lambda: 'restarts_total{cause="hang"} 1.0' in agent.get("/metrics"), lambda: agent.log)
        eventually(lambda: up(agent) == {"0": "0.0", "1": "1.0"}, lambda: agent.log)

        assert "GPU 0 was not read within 1.5s" in agent.log
        assert agent.health()["gpus_down"][0]["cause"] == "hang"


def test_a_driver_that_cannot_be_opened(driver: StubDriver) -> None:
    """/healthz is fine and names the cause; the verdict is unknown; all is served once it can be."""
    driver.init_takes(None)
    with RunningAgent(driver.environment, deadline=0.5, start_deadline=2.0, restart_min=0.05) as agent:
        answers = {(agent.get("/livez"), agent.get("/readyz"))}
        eventually(lambda: agent.health()["probe"].get("cause") == "init_hang", agent.health)
        answers.add((agent.get("/livez"), agent.get("/readyz")))
        health, state = agent.health(), agent.verdict().activity.state
        driver.init_takes(0)
        eventually(lambda: up(agent) == {"0": "1.0"}, lambda: agent.log)

    assert (health["supervisor"], health["probe"]["state"], state) == ("running", "down", State.UNKNOWN)
    assert "dmesg" in health["probe"]["remedy"]
    assert ("200 yes\n", "200 yes\n") in answers <= {("200 yes\n", "200 yes\n"), ("200 yes\n", "503 no\n")}


def test_without_its_supervisor_an_agent_is_not_healthy() -> None:
    """/healthz is 503 where nothing feeds the pages any more; the pages themselves say so too."""
    settings, clock = AgentSettings(), SystemClock()
    core = AgentCore(node_id="n", clock=clock, rules=settings.activity, interval_seconds=1.0, stale_after_seconds=8.0)
    exporter = Exporter(core, clock, node_id="n", top_processes=1)
    pages = routes(core, exporter, ProbeSupervisor(core, settings, clock), clock)
    answer = pages["/healthz"]("")

    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert b'"supervisor":"dead"' in answer.body
    assert b"gpuwatch_probe_up 0.0" in pages["/metrics"]("").body
    assert [pages[path]("").status for path in PROBES] == [HTTPStatus.SERVICE_UNAVAILABLE] * 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(driver: StubDriver, number: signal.Signals) -> None:
    """Within two seconds the agent has ended with status 0 and its probe is gone."""
    with RunningAgent(driver.environment) as agent:
        eventually(lambda: up(agent) == {"0": "1.0"}, lambda: agent.log)
        children = agent.children()
        begin = time.perf_counter()
        agent.process.send_signal(number)
        status = agent.process.wait(10)
        took = time.perf_counter() - begin

    assert (status, len(children)) == (0, 1)
    assert took < 2
    assert not is_running(children[0])


def test_a_hung_probe_does_not_outlive_its_agent(driver: StubDriver) -> None:
    """Also in the midst of a hang."""
    driver.hang(0)
    with RunningAgent(driver.environment, deadline=60.0) as agent:
        eventually(lambda: len(agent.children()) == 1)
        eventually(lambda: agent.health()["probe"]["state"] == "starting", agent.health)
        children = agent.children()
        agent.process.terminate()

        assert agent.process.wait(2) == 0

    assert not is_running(children[0])


def test_systemd_is_told(driver: StubDriver, tmp_path: Path) -> None:
    """READY once it serves, STOPPING before it ends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(20)
        environment = {**driver.environment, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with RunningAgent(environment) as agent:
            ready = systemd.recv(100)
            agent.process.terminate()
            stopping = systemd.recv(100)

    assert (ready, stopping) == (b"READY=1", b"STOPPING=1")


def test_beyond_loopback_it_warns(driver: StubDriver) -> None:
    """Listening on all addresses without TLS and authentication is allowed where it is meant, and said aloud."""
    with RunningAgent(driver.environment, host="0.0.0.0", insecure=True) as agent:  # noqa: S104  that is the point
        eventually(lambda: "open to the network without encryption (TLS) and without" in agent.log, lambda: agent.log)


# What it refuses.


def test_a_wrong_setting_is_told_and_ends_it() -> None:
    """Status 2, with the flag as it was typed, the key and the value, and no trace back."""
    ended = run_agent("--interval", "fast", "--listen", "127.0.0.1:0")

    assert ended.returncode == 2
    assert '--interval: agent.interval: "fast" is not a duration' in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_open_door_is_refused() -> None:
    """Beyond loopback without TLS and authentication: status 2, with the keys that mend it."""
    ended = run_agent("--listen", "0.0.0.0:0")

    assert ended.returncode == 2
    assert "agent.host 0.0.0.0 opens the agent to the network without encryption (TLS) and without" in ended.stderr
    for key in ("agent.tls_certificate", "agent.tls_key", "agent.users_file", "agent.insecure: true"):
        assert key in ended.stderr


@pytest.mark.parametrize("key", ["USERS_FILE", "TLS_CERTIFICATE"])
def test_a_door_that_cannot_be_made_ends_it(tmp_path: Path, key: str) -> None:
    """Status 2 and the file: an agent that should be closed is never served open."""
    missing = str(tmp_path / "missing")
    variables = {f"GPUWATCH_AGENT__{each}": missing for each in {key, key.replace("CERTIFICATE", "KEY")}}
    ended = run_agent("--listen", "127.0.0.1:0", **variables)

    assert ended.returncode == 2
    assert f"agent.{key.lower()}: {missing} cannot be read: No such file or directory" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_wrong_address_is_told() -> None:
    """--listen takes HOST:PORT."""
    ended = run_agent("--listen", "9460")

    assert ended.returncode == 2
    assert "'9460' is not HOST:PORT, such as 127.0.0.1:9460 or [::1]:9460" in ended.stderr


def test_a_port_in_use_is_told() -> None:
    """Status 2 and what to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_agent("--listen", f"127.0.0.1:{port}")

    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1 port {port}" in ended.stderr
    assert "Traceback" not in ended.stderr


# Which node it is.


@pytest.mark.parametrize("tag", ["i-0123456789abcdef0\n", "i-1234abcd"])
def test_an_ec2_instance_knows_its_id(tmp_path: Path, tag: str) -> None:
    """The board of a Nitro instance carries the instance id."""
    board = tmp_path / "board_asset_tag"
    board.write_text(tag, encoding="ascii")

    assert discover_node_id(board) == tag.strip()


@pytest.mark.parametrize("tag", [None, "", "Default string", "i-am-a-serial-number", "i-0123456789abcdef0; rm"])
def test_any_other_machine_is_its_host_name(tmp_path: Path, tag: str | None) -> None:
    """What only looks like an instance id is none."""
    board = tmp_path / "board_asset_tag"
    if tag is not None:
        board.write_text(tag, encoding="ascii")

    assert discover_node_id(board) == socket.gethostname()
