"""AMD GPUs through real probes: choice of the driver, hangs, a noisy library, two makers on one host."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.devices.messages import Cycle, Down, Reading, decode
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.probe.command import probe_command
from gpuwatch.agent.probe.supervisor import ProbeSupervisor
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import State
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.amd import FILE_ERROR, MIB, AmdHost
from tests.support.fakes.nvml import StubDriver
from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.probe import DEADLINE_SECONDS, PROBE
from tests.support.real.sick_host import QUICK

ACTIVITY = "amdsmi_get_gpu_activity"


@pytest.fixture
def host(tmp_path: Path) -> AmdHost:
    """Two MI300X at rest."""
    return AmdHost(tmp_path, gpus=2)


def probe(host: AmdHost, *options: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """A probe on that host, which ends by itself."""
    command = [*PROBE, "--root", str(host.root), *options]
    environment = {**host.environment, **variables}
    return subprocess.run(command, env=environment, capture_output=True, timeout=DEADLINE_SECONDS, check=False)


# The probe.


def test_the_driver_is_chosen_by_the_cards(host: AmdHost) -> None:
    """Nothing must be set on a host with AMD GPUs alone."""
    host.gpu(1).answer(ACTIVITY, gfx_activity=37)
    done = probe(host, "--once")
    documents = [json.loads(line)["reading"] for line in done.stdout.splitlines()]

    assert (done.returncode, done.stderr) == (0, b"")
    assert [document["info"]["vendor"] for document in documents] == ["amd", "amd"]
    assert [document["utilization_ratio"] for document in documents] == [0.0, 0.37]


def test_what_the_library_prints_is_no_message(host: AmdHost) -> None:
    """Neither its own nor the binding's words reach the probe's channel: they are on standard error."""
    host.set(noise=True)
    done = probe(host, "--once")

    assert len([decode(line) for line in done.stdout.splitlines()]) == 2
    assert b"Getting asic info failed" in done.stderr


def test_no_library(host: AmdHost) -> None:
    """The sentence says what to install, and the status is 1."""
    host.set(library="absent")
    done = probe(host, "--once")

    assert (done.returncode, done.stdout) == (1, b"")
    assert b"install amd-smi-lib" in done.stderr


def test_two_makers_on_one_host(host: AmdHost, driver: StubDriver) -> None:
    """Both are read, and counted together; a fault of one driver leaves the other's GPUs alone."""
    driver.gpus(2)
    host.pci("0000:01:00.0", "0x10de", "0x030200", "nvidia")
    host.gpu(1).error(FILE_ERROR)
    done = probe(host, "--cycles", "1", **driver.environment, AMDSMI_STUB=str(host.state_file))
    messages = [decode(line) for line in done.stdout.splitlines()]
    (gpus,) = [message.gpus for message in messages if isinstance(message, Cycle)]

    assert [(gpu.index, gpu.vendor) for gpu in gpus] == [(0, "nvidia"), (1, "nvidia"), (2, "amd"), (3, "amd")]
    assert [message.reading.info.index for message in messages if isinstance(message, Reading)] == [0, 1, 2]
    assert [message.down.info.index for message in messages if isinstance(message, Down)] == [3]


@pytest.mark.parametrize("source", ["auto", "nvml"])
def test_nothing_of_amd_is_loaded_without_amd(driver: StubDriver, tmp_path: Path, source: str) -> None:
    """Neither its binding nor our room for it: an NVIDIA host pays nothing."""
    script = (
        "import sys; from gpuwatch.agent.probe.main import main\n"
        f"main(['--once', '--source', '{source}', '--root', '{tmp_path}'])\n"
        "print([name for name in sys.modules if 'amd' in name or name.endswith('.both')], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=driver.environment, capture_output=True, text=True, check=False
    )

    assert done.stderr == "[]\n"


# The agent.


class AmdAgent:
    """A supervisor with real probes on that host, and what an agent shows."""

    def __init__(self, host: AmdHost) -> None:
        settings = QUICK
        self.clock = SystemClock()
        self.core = AgentCore(
            node_id="node-1",
            clock=self.clock,
            rules=settings.activity,
            interval_seconds=settings.interval,
            stale_after_seconds=settings.stale_after_seconds,
        )
        self._exporter = Exporter(self.core, self.clock, node_id="node-1", top_processes=1, own_process=False)
        command = (*probe_command(settings), "--root", str(host.root))
        self.supervisor = ProbeSupervisor(self.core, settings, self.clock, command)
        self.supervisor.start()

    @property
    def seen(self) -> tuple[list[int | None], list[tuple[int | None, str]], State]:
        """GPUs with values, the others with their cause, the verdict."""
        shown = self.core.snapshot(self.clock.monotonic())
        up = sorted((reading.info.index for reading in shown.readings), key=lambda index: index or 0)
        return up, [(down.info.index, down.cause.value) for down in shown.downs], shown.verdict.activity.state

    @property
    def page(self) -> str:
        """What a scrape shows."""
        return self._exporter.page("").body.decode()

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for it."""
        eventually(condition, lambda: self.seen)


@pytest.fixture
def agent(host: AmdHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[AmdAgent]:
    """It runs, and is ended."""
    monkeypatch.setenv("AMDSMI_STUB", str(host.state_file))
    running = AmdAgent(host)
    yield running
    running.supervisor.stop()


def test_an_agent_on_an_amd_host(host: AmdHost, agent: AmdAgent) -> None:
    """The same names as everywhere, the maker on the info metric, and the same verdict."""
    agent.until(lambda: agent.seen == ([0, 1], [], State.IDLE))
    page = agent.page
    host.gpu(1).answer(ACTIVITY, gfx_activity=100).process(4711, 40 * 1024 * MIB).in_use(40 * 1024 * MIB)
    agent.until(lambda: agent.seen[2] is State.BUSY)

    assert page.count('vendor="amd"') == 2
    assert page.count("\ngpuwatch_gpu_power_watts{") == 2
    assert "\ngpuwatch_gpu_sm_activity_ratio{" not in page


def test_a_gpu_that_hangs_leaves_the_others_alone(host: AmdHost, agent: AmdAgent) -> None:
    """Its probe is replaced by one that does not touch it; the node is unknown, and not idle."""
    agent.until(lambda: agent.seen == ([0, 1], [], State.IDLE))
    host.gpu(0).hang(ACTIVITY, "amdsmi_get_gpu_device_uuid")
    agent.until(lambda: agent.seen == ([1], [(0, "hang")], State.UNKNOWN))

    assert 'gpuwatch_gpu_up{gpu="1"' in agent.page


def test_a_library_that_does_not_open(host: AmdHost, agent: AmdAgent) -> None:
    """All is unknown with the cause, and comes back."""
    agent.until(lambda: agent.seen == ([0, 1], [], State.IDLE))
    host.set(init_error=34)
    host.gpu(0).error(32, ACTIVITY)
    agent.until(lambda: agent.seen[2] is State.UNKNOWN)
    agent.until(lambda: 'gpuwatch_probe_down_info{cause="driver_not_loaded"} 1' in agent.page)
    host.gpu(0).heal()
    host.set(init_error=None)

    agent.until(lambda: agent.seen == ([0, 1], [], State.IDLE))


def test_the_agents_own_first_probe(host: AmdHost) -> None:
    """The fork that begins with the agent reads AMD's GPUs as well; without KFD of this machine none is idle."""
    environment = {**host.environment, "ROCM_PATH": str(host.root / "opt/rocm")}
    with RunningAgent(environment, source="amdsmi") as agent:
        eventually(lambda: agent.get("/metrics").count('vendor="amd"') == 2, lambda: agent.log)

        assert agent.verdict().activity.state is State.UNKNOWN
