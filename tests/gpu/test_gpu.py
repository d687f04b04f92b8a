"""The agent on a GPU, at rest and at work. `make gpu-test` runs this on the machine's own NVIDIA driver.

`make test` runs it on the stand-in driver, which proves these tests and nothing about hardware.
"""

import re
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import Reading, Unavailable, decode
from gpuwatch.agent.devices.nvml.rows import ROWS
from gpuwatch.agent.devices.replay import ReplaySource
from gpuwatch.agent.probe.command import leaving_out
from gpuwatch.agent.probe.main import sample
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import GpuInfo, GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.gpu import machine
from tests.gpu.machine import ALLOCATION_BYTES, INTERVAL_SECONDS, MIB, REAL, RECORDED_CYCLES, Machine, record
from tests.support.components import require
from tests.support.paths import ROOT
from tests.support.real.agents import RunningAgent, eventually

LOOKS = 10 if REAL else 2
SETTLE_CYCLES = 4  # what is told of the time since the last cycle must be of the new state alone
PHASES = ("idle", "context", "allocate", "work", "rest", "after")
# Nothing that an administrator sets, or the board has, may differ after all this.
SETTINGS = (
    *("persistence_mode", "compute_mode", "mig_mode", "ecc_mode", "power_limit_watts", "memory_total_bytes"),
    *("power_limit_default_watts", "sm_clock_max_hertz", "memory_clock_max_hertz", "pcie_link_width_max"),
)


@dataclass(frozen=True, kw_only=True)
class Look:
    """What the agent told of the GPU at one moment."""

    seconds: float  # when the cycle ended, in Unix time
    values: dict[str, float]  # by metric name
    processes: dict[str, float]  # bytes by pid
    state: State


@dataclass(kw_only=True)
class Scene:
    """One load from its beginning to its end, as the agent saw it."""

    machine: Machine
    before: GpuReading
    after: GpuReading
    pid: str = ""
    looks: dict[str, list[Look]] = field(default_factory=dict)
    captures: dict[str, Path] = field(default_factory=dict)

    def mean(self, phase: str, metric: str) -> float:
        """Of all looks of a phase; fails where the GPU does not tell it."""
        values = [look.values[metric] for look in self.looks[phase] if metric in look.values]

        assert len(values) == len(self.looks[phase]), f"{metric} is not told"
        return sum(values) / len(values)


def look(agent: RunningAgent, uuid: str) -> Look:
    """The page and the verdict of one cycle."""
    samples = [each for family in parse(agent.get("/metrics")) for each in family.samples]
    ours = [each for each in samples if each.labels.get("uuid") == uuid]
    verdict = next(gpu for gpu in agent.verdict().gpus if gpu.uuid == uuid)
    return Look(
        seconds=next(each.value for each in samples if each.name == "gpuwatch_agent_last_cycle_timestamp_seconds"),
        values={each.name: each.value for each in ours if each.labels.keys() <= {"uuid", "gpu"}},
        processes={each.labels["pid"]: each.value for each in ours if each.name == "gpuwatch_process_memory_bytes"},
        state=verdict.activity.state,
    )


def pass_cycles(agent: RunningAgent, number: int) -> None:
    """Wait for so many whole cycles."""

    def cycles() -> float:
        found = re.search(r"^gpuwatch_agent_cycle_duration_seconds_count (\S+)$", agent.get("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0.0

    begin = cycles()
    eventually(lambda: cycles() >= begin + number, lambda: agent.log)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Scene:
    """An agent looks on while a load comes, computes and goes."""
    require("cc")
    folder = tmp_path_factory.mktemp("gpu")
    host = machine.real() if REAL else machine.stub(folder, request.getfixturevalue("nvml_library"))
    captures = folder / "captures"
    captures.mkdir()
    played = Scene(machine=host, before=host.read(), after=host.gpu)
    with RunningAgent(host.environment, interval=INTERVAL_SECONDS, metrics="all") as agent:
        pass_cycles(agent, 1)

        def watch(phase: str) -> None:
            pass_cycles(agent, SETTLE_CYCLES)
            for number in range(LOOKS + 1):  # one more: activity is a difference
                # What is read every few seconds is read at once for a confirmation.
                agent.get(f"/v1/verdict?confirm=look-{number}-of-{phase}-phase")
                pass_cycles(agent, 1)
                played.looks.setdefault(phase, []).append(look(agent, host.gpu.info.uuid))
            del played.looks[phase][0]

        watch("idle")
        played.captures["idle"] = record(host, captures, "idle")
        with host.load() as load:
            played.pid = str(load.pid)
            for word in ("context", "allocate", "work"):
                load.do(word)
                watch(word)
            played.captures["work"] = record(host, captures, "work")
            load.do("rest")
            watch("rest")
        watch("after")
    played.after = host.read()
    return played


def test_power_is_measured_and_rises_with_work(scene: Scene) -> None:
    """No GPU needs none, and one at work needs more than one at rest."""
    idle, work = (scene.mean(phase, "gpuwatch_gpu_power_watts") for phase in ("idle", "work"))

    assert 0 < idle < work < 2000


def test_the_energy_counter_grows_as_power_says(scene: Scene) -> None:
    """Joules over the looks of a phase are its mean power times its time, within a factor of two."""
    name = "gpuwatch_gpu_energy_joules_total"
    for phase in ("idle", "work"):
        counter = [look.values[name] for look in scene.looks[phase]]
        seconds = scene.looks[phase][-1].seconds - scene.looks[phase][0].seconds
        expected = scene.mean(phase, "gpuwatch_gpu_power_watts") * seconds

        assert counter == sorted(counter), phase
        assert 0.5 * expected < counter[-1] - counter[0] < 2 * expected, phase


def test_memory_shows_what_was_allocated(scene: Scene) -> None:
    """One GiB more in use, within 64 MiB, and given back at the end."""
    used = {phase: scene.mean(phase, "gpuwatch_gpu_memory_used_bytes") for phase in PHASES}

    assert abs(used["allocate"] - used["context"] - ALLOCATION_BYTES) < 64 * MIB
    assert abs(used["after"] - used["idle"]) < 64 * MIB


def test_our_process_is_listed_while_it_lives(scene: Scene) -> None:
    """By its pid, with what it holds, from its context to its end."""
    listed = {phase: [scene.pid in look.processes for look in looks] for phase, looks in scene.looks.items()}

    assert {phase for phase, seen in listed.items() if all(seen)} == {"context", "allocate", "work", "rest"}
    assert not any(listed["idle"] + listed["after"])
    assert all(look.processes[scene.pid] >= ALLOCATION_BYTES for look in scene.looks["work"])


def test_activity_rises_under_load(scene: Scene) -> None:
    """Utilization everywhere; that of the multiprocessors where GPM tells it."""
    assert scene.mean("idle", "gpuwatch_gpu_utilization_ratio") < 0.2
    assert scene.mean("work", "gpuwatch_gpu_utilization_ratio") > 0.8
    if "gpuwatch_gpu_sm_activity_ratio" in scene.looks["idle"][-1].values:
        assert scene.mean("idle", "gpuwatch_gpu_sm_activity_ratio") < 0.2
        assert scene.mean("work", "gpuwatch_gpu_sm_activity_ratio") > 0.5


def test_the_verdict_is_busy_under_load_and_never_idle_while_the_gpu_is_held(scene: Scene) -> None:
    """Idle before and after; parked or busy while a process holds memory; busy whenever it computes."""
    states = {phase: {look.state for look in looks} for phase, looks in scene.looks.items()}

    assert states["idle"] == states["after"] == {State.IDLE}
    assert states["work"] == {State.BUSY}
    assert State.IDLE not in states["context"] | states["allocate"] | states["rest"]


def test_temperature_and_clocks_are_plausible(scene: Scene) -> None:
    """Degrees of a machine that runs; clocks of the multiprocessors between nothing and their maximum."""
    for phase in ("idle", "work"):
        clock, most = (scene.mean(phase, f"gpuwatch_gpu_sm_clock{end}_hertz") for end in ("", "_max"))

        assert 5 < scene.mean(phase, "gpuwatch_gpu_temperature_celsius") < 110
        assert 0 < clock <= most


def test_no_setting_was_changed(scene: Scene) -> None:
    """Reading is all that we do."""
    rows = [{name: getattr(read, name) for name in SETTINGS} for read in (scene.before, scene.after)]

    assert rows[0] == rows[1]


def test_it_is_read_without_attaching_gpus(scene: Scene) -> None:
    """As beside a GPU that hangs: NVML attaches none, and this one is opened by its place; it shows as much as ever.

    Where the driver does not have that, the next cycle attaches the GPUs.
    """
    info = scene.machine.gpu.info
    hung = GpuInfo(uuid="GPU-that-hangs", index=None, pci_bus_id="00000000:FF:1F.0")
    command = leaving_out([sys.executable, "-m", "gpuwatch", "probe"], [hung.uuid], {hung.uuid: hung, info.uuid: info})
    done = subprocess.run(
        [*command, "--cycles", "2"],
        env=dict(scene.machine.environment),
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=True,
    )
    first = [each.reading for each in map(decode, done.stdout.splitlines()) if isinstance(each, Reading)]
    apart = next((reading for reading in first if reading.info.uuid == info.uuid), None)
    plain = scene.machine.read()

    assert apart is not None, done.stdout.decode()
    assert apart.info == plain.info
    assert {name for name in ROWS if getattr(apart, name) is None} == {
        name for name in ROWS if getattr(plain, name) is None
    }


@pytest.mark.parametrize(("phase", "state"), [("idle", State.IDLE), ("work", State.BUSY)])
def test_its_captures_play(scene: Scene, phase: str, state: State) -> None:
    """What was recorded in each state leads to the same verdict, without the hardware and without its name."""
    clock, source = ManualClock(), ReplaySource(scene.captures[phase])
    core = AgentCore(node_id="n", clock=clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0)
    for seq in count():
        clock.advance(1.0)
        messages = list(sample(source, seq, clock))
        if isinstance(messages[-1], Unavailable):
            break
        core.ingest_messages(messages)
    shown = core.verdict(clock.monotonic())
    (ours,) = [gpu for gpu in shown.gpus if gpu.index == scene.machine.gpu.info.index]

    assert seq == RECORDED_CYCLES
    assert ours.activity.state is state
    assert scene.machine.gpu.info.uuid not in scene.captures[phase].read_text(encoding="utf-8") or not REAL
