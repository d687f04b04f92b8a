"""A real Prometheus scrapes a real agent on the stand-in driver, and its queries find what is true."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest

from gpuwatch.agent.exporter.catalogue import FAMILIES
from tests.support.components import require
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.certificates import Authority
from tests.support.real.prometheus import RunningPrometheus

pytestmark = pytest.mark.component("prometheus")

BEHIND_THE_DOOR = """
    scheme: https
    tls_config: {{ca_file: {ca}, cert_file: {certificate}, key_file: {key}}}
    basic_auth: {{username: prometheus, password_file: {password}}}
"""


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


@pytest.mark.nightly  # what it finds of GPUs that are there is asked each day
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

    assert names - {series for family in FAMILIES.values() for series in family.series} == set()
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
