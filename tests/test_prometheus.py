"""A real Prometheus scrapes a real agent on the stand-in driver, and its queries find what is true."""

import json
import re
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import bcrypt
import pytest

from gpuwatch.agent.exporter.catalogue import FAMILIES
from tests.agents import RunningAgent, eventually
from tests.certificates import Authority
from tests.components import require
from tests.nvml import StubDriver

pytestmark = pytest.mark.component("prometheus")

CONFIGURATION = """
global: {{scrape_interval: 250ms, scrape_timeout: 250ms}}
scrape_configs:
  - job_name: gpuwatch
    static_configs: [{{targets: ["{target}"]}}]
{access}
"""
BEHIND_THE_DOOR = """
    scheme: https
    tls_config: {{ca_file: {ca}, cert_file: {certificate}, key_file: {key}}}
    basic_auth: {{username: prometheus, password_file: {password}}}
"""


class RunningPrometheus:
    """One server on a free port, scraping one agent."""

    def __init__(self, folder: Path, target: str, access: str = "") -> None:
        """Start it and wait until it is ready."""
        folder.mkdir()
        configuration = folder / "prometheus.yml"
        configuration.write_text(CONFIGURATION.format(target=target, access=access), encoding="ascii")
        self.process = subprocess.Popen(
            [
                require("prometheus"),
                f"--config.file={configuration}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self._log: list[str] = []
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._read_log, args=(self.process.stderr,), daemon=True)
        self._reader.start()
        try:
            eventually(lambda: "ready to receive web requests" in "".join(self._log), lambda: "".join(self._log))
        except AssertionError:
            self.close()
            raise
        self.url = f"http://127.0.0.1:{self._port()}"

    def query(self, expression: str) -> dict[str, float]:
        """An instant query: values by the labels that matter here."""
        found = self._ask(f"query?{urllib.parse.urlencode({'query': expression})}")["result"]
        return {_label(sample["metric"]): float(sample["value"][1]) for sample in found}

    def sees(self, expression: str, expected: dict[str, float]) -> None:
        """Wait until the query gives that."""
        eventually(
            lambda: self.query(expression) == expected,
            lambda: f"{expression} gives {self.query(expression)}, not {expected}\n{self._own_words()}",
        )

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(20)
        self._reader.join()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def _ask(self, path: str) -> dict[str, Any]:
        """An answer of its HTTP API."""
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as response:  # noqa: S310  our own
            answer: dict[str, Any] = json.load(response)["data"]
        return answer

    def _own_words(self) -> str:
        """What it scrapes and what it has logged, for a failing test."""
        return f"{self._ask('targets')['activeTargets']}\n{''.join(self._log)}"

    def _port(self) -> str:
        """The one that it says it listens on."""
        found = re.search(r"Listening on\"? address=127\.0\.0\.1:(\d+)", "".join(self._log))
        assert found is not None, "".join(self._log)
        return found.group(1)

    def _read_log(self, pipe: IO[str]) -> None:
        for line in pipe:
            self._log.append(line)


def _label(metric: dict[str, str]) -> str:
    """gpu, cause and state of a series, as far as it has them."""
    return " ".join(metric[name] for name in ("gpu", "cause", "state") if name in metric)


@pytest.fixture
def agent(driver: StubDriver) -> Iterator[RunningAgent]:
    """An agent on two GPUs: the first works, the second rests."""
    driver.gpus(2)
    driver.gpu(0).utilization(0.5).set(power=400_000).processes({4711: 3 << 30})
    with RunningAgent(driver.environment) as running:
        yield running


@pytest.fixture
def prometheus(agent: RunningAgent, tmp_path: Path) -> Iterator[RunningPrometheus]:
    """A Prometheus that scrapes it."""
    running = RunningPrometheus(tmp_path / "prometheus", agent.url.removeprefix("http://"))
    yield running
    running.close()


def test_queries_find_what_the_driver_shows(prometheus: RunningPrometheus) -> None:
    """Values, verdicts and rates: rate() of the active seconds is the utilization."""
    prometheus.sees("up", {"": 1.0})
    prometheus.sees("gpuwatch_gpu_up", {"0": 1.0, "1": 1.0})
    prometheus.sees("gpuwatch_gpu_utilization_ratio", {"0": 0.5, "1": 0.0})
    prometheus.sees("gpuwatch_gpu_activity == 1", {"0 busy": 1.0, "1 idle": 1.0})
    prometheus.sees("gpuwatch_node_activity == 1", {"busy": 1.0})
    prometheus.sees("gpuwatch_process_memory_bytes", {"0": float(3 << 30)})
    prometheus.sees("round(rate(gpuwatch_gpu_active_seconds_total[3s]), 0.1)", {"0": 0.5, "1": 0.0})
    prometheus.sees('gpuwatch_gpu_power_watts * on (uuid) group_left (name) gpuwatch_gpu_info{gpu="0"}', {"0": 400.0})


def test_it_scrapes_over_tls_with_a_certificate_and_a_password(driver: StubDriver, tmp_path: Path) -> None:
    """The scrape_config of docs/tls-and-auth.md; and the certificate is renewed without a scrape that fails."""
    authority, users, password = Authority(tmp_path / "ca"), tmp_path / "users", tmp_path / "password"
    served, shown = authority.issue("agent"), authority.issue("prometheus")
    users.write_bytes(b"prometheus:" + bcrypt.hashpw(b"correct horse", bcrypt.gensalt(10)) + b"\n")
    password.write_text("correct horse")
    settings = {"tls_certificate": served.certificate, "tls_key": served.key, "tls_client_ca": authority.ca}
    with RunningAgent(driver.environment, users_file=users, **settings) as agent:
        access = BEHIND_THE_DOOR.format(
            ca=authority.ca, certificate=shown.certificate, key=shown.key, password=password
        )
        prometheus = RunningPrometheus(tmp_path / "prometheus", agent.url.removeprefix("https://"), access)
        try:
            prometheus.sees("up", {"": 1.0})
            prometheus.sees("gpuwatch_gpu_up", {"0": 1.0})
            authority.issue("agent")
            prometheus.sees("count_over_time(up[3s]) > bool 10", {"": 1.0})
            prometheus.sees("min_over_time(up[3s])", {"": 1.0})
        finally:
            prometheus.close()


def test_a_lost_gpu_goes_down_and_the_other_stays(prometheus: RunningPrometheus, driver: StubDriver) -> None:
    """Its `up` is 0 with the cause, its values are stale at once, and the other's values are untouched."""
    prometheus.sees("gpuwatch_gpu_up", {"0": 1.0, "1": 1.0})
    driver.lose(1)

    prometheus.sees("gpuwatch_gpu_up", {"0": 1.0, "1": 0.0})
    prometheus.sees("gpuwatch_gpu_down_info", {"1 lost": 1.0})
    prometheus.sees("gpuwatch_gpu_utilization_ratio", {"0": 0.5})
    prometheus.sees("gpuwatch_gpu_idle_seconds", {"0": 0.0})

    driver.find(1)
    prometheus.sees("gpuwatch_gpu_up", {"0": 1.0, "1": 1.0})
    prometheus.sees("gpuwatch_gpu_down_info", {})


def test_every_name_on_a_real_page_is_documented(agent: RunningAgent) -> None:
    """Whatever a real agent exports is in the catalogue, and promtool accepts the page without a remark."""
    eventually(lambda: "gpuwatch_gpu_up" in agent.get("/metrics"), lambda: agent.log)
    page = agent.get("/metrics")
    checked = subprocess.run(
        [require("promtool"), "check", "metrics"], input=page, text=True, capture_output=True, check=False
    )
    names = set(re.findall(r"^(\w+)[{ ]", page, re.MULTILINE))

    assert names - set(FAMILIES) == set()
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
