"""A group of metrics is switched off under a real Prometheus, and a scrape asks for some groups only."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually, free_port
from tests.support.real.prometheus import RunningPrometheus

pytestmark = pytest.mark.component("prometheus")

SWITCHED = "gpuwatch_gpu_pcie_link_width"
KEPT = "gpuwatch_gpu_utilization_ratio"
BREAK = "5s"  # a restart, and a scrape or two beside it


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """A configuration with one group more than the default."""
    path = tmp_path / "gpuwatch.yaml"
    path.write_text("agent: {metrics: [default, pcie_detail]}\n", encoding="ascii")
    return path


@pytest.fixture
def agent(driver: StubDriver, configured: Path) -> Iterator[RunningAgent]:
    """An agent with that configuration, on a port of its own so that it comes back there."""
    environment = {**driver.environment, "GPUWATCH_CONFIG": str(configured)}
    with RunningAgent(environment, port=free_port()) as running:
        yield running


def test_a_group_that_is_switched_off_ends_and_the_others_go_on(
    agent: RunningAgent, configured: Path, tmp_path: Path
) -> None:
    """Its series are stale at the next scrape, not five minutes later; no other one is missing for longer than that."""
    prometheus = RunningPrometheus(tmp_path / "prometheus", agent.url.removeprefix("http://"))
    try:
        prometheus.sees(SWITCHED, {"0": 16.0})
        began = prometheus.query("vector(time())")[""]
        configured.write_text("agent: {metrics: [default]}\n", encoding="ascii")
        agent.process.send_signal(signal.SIGHUP)
        prometheus.sees(f"{SWITCHED} or on () vector(-1)", {"": -1.0})
        prometheus.sees(KEPT, {"0": 0.0})
        span = f"{int(1000 * (prometheus.query('vector(time())')[''] - began))}ms"

        assert prometheus.query(f"min_over_time(absent(last_over_time({KEPT}[{BREAK}]))[{span}:250ms])") == {}
        assert prometheus.query(f"last_over_time({SWITCHED}[5m])") == {"0": 16.0}, "its past stays"
        assert prometheus.query(SWITCHED) == {}
    finally:
        prometheus.close()


def test_a_scrape_asks_for_some_groups(agent: RunningAgent, tmp_path: Path) -> None:
    """`params` of a scrape configuration, as for node_exporter."""
    access = "    params: {'collect[]': [core, pcie_detail]}"
    prometheus = RunningPrometheus(tmp_path / "prometheus", agent.url.removeprefix("http://"), access)
    try:
        prometheus.sees("up", {"": 1.0})
        prometheus.sees(KEPT, {"0": 0.0})
        prometheus.sees(SWITCHED, {"0": 16.0})

        assert prometheus.query("gpuwatch_gpu_health") == {}
        assert prometheus.query("gpuwatch_gpu_pcie_tx_bytes_total") == {}
    finally:
        prometheus.close()


@pytest.mark.nightly  # a scrape that asks for what is there runs each day
def test_a_scrape_that_asks_for_what_is_not_there_fails(agent: RunningAgent, tmp_path: Path) -> None:
    """`up` is 0 and the body says which groups there are: a mistake shows at once."""
    access = "    params: {'collect[]': [core, nvlink_links]}"
    prometheus = RunningPrometheus(tmp_path / "prometheus", agent.url.removeprefix("http://"), access)
    try:
        prometheus.sees("up", {"": 0.0})
    finally:
        prometheus.close()

    assert "'nvlink_links' is not on this agent's page (agent.metrics)" in agent.get("/metrics?collect[]=nvlink_links")
    assert "groups here are core, profiling," in agent.get("/metrics?collect[]=nonsense")


def test_other_exporters_names_alone(driver: StubDriver) -> None:
    """compat_only: the page has that exporter's names, all with a value, and none of ours."""
    driver.gpu(0).utilization(0.5)
    with RunningAgent(driver.environment, compat="dcgm", compat_only="true") as agent:
        eventually(lambda: "DCGM_FI_DEV_GPU_UTIL{" in agent.get("/metrics"), lambda: agent.log)
        page = agent.get("/metrics")

        assert {line.split("_")[0] for line in page.splitlines() if not line.startswith("#")} == {"DCGM"}
        assert "none: agent.compat_only is set" in agent.get("/metrics?collect[]=core")
