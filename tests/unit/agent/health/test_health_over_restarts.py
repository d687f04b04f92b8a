"""Health in the agent: over its restarts, in the verdict and on paper."""

import itertools
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.health.causes import DOWN, LEVELS, RECOVERY, xid_finding
from gpuwatch.agent.health.kernel_log import KernelXid
from gpuwatch.agent.health.verdict import HealthRules
from gpuwatch.agent.health.watch import HealthFile, HealthWatch
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.fleet import GpuVerdict
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.health import XIDS, GpuHealth, Health, Remedy
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import START, a_cycle, a_reading
from tests.support.paths import ROOT
from tools.docs.health import render_health_md

RULES = HealthRules()


# Over restarts of the agent


def a_watch(clock: ManualClock, folder: Path, boot: str = "boot-1") -> HealthWatch:
    """What an agent that starts now knows."""
    return HealthWatch(clock, file=HealthFile(folder / "health.json", boot))


def looked(watch: HealthWatch, clock: ManualClock, reading: GpuReading | None = None) -> GpuHealth:
    """The verdict on GPU 0 a second later."""
    clock.advance(1.0)
    return watch.judge_cycle(clock.now(), clock.monotonic(), (reading or a_reading(),), ())["GPU-0"]


def test_a_restart_of_the_agent_heals_no_gpu(tmp_path: Path) -> None:
    """The next agent of the same boot knows what the last one found, and since when."""
    clock = ManualClock(elapsed_seconds=1000.0)
    first = a_watch(clock, tmp_path)
    first.xids.from_nvml("GPU-0", 48)
    before = looked(first, clock)
    clock.advance(3600.0)
    after = looked(a_watch(clock, tmp_path), clock)

    assert (before.state, after) == (Health.FAILING, before)


def test_a_reboot_heals_what_it_was_asked_for(tmp_path: Path) -> None:
    """A file of another boot is not believed; what still holds is read again."""
    clock = ManualClock(elapsed_seconds=1000.0)
    first = a_watch(clock, tmp_path)
    first.xids.from_nvml("GPU-0", 79)
    looked(first, clock, a_reading(remapped_rows_failure=1))
    rebooted = ManualClock(elapsed_seconds=20.0)
    after = looked(a_watch(rebooted, tmp_path, "boot-2"), rebooted, a_reading(remapped_rows_failure=1))

    assert [finding.code for finding in after.findings] == ["row_remap_failure"]


def test_a_host_that_does_not_name_its_boots_remembers_nothing(tmp_path: Path) -> None:
    """Where a reboot cannot be told from a restart, health begins anew."""
    clock = ManualClock(elapsed_seconds=1000.0)
    first = a_watch(clock, tmp_path, "")
    first.xids.from_nvml("GPU-0", 48)
    looked(first, clock)

    assert looked(a_watch(clock, tmp_path, ""), clock).state is Health.HEALTHY


def test_what_the_last_agent_judged_is_not_judged_again(tmp_path: Path) -> None:
    """The kernel log is read from its beginning by each agent; what a reset has mended since stays mended."""
    clock = ManualClock(elapsed_seconds=1000.0)
    first = a_watch(clock, tmp_path)
    first.xids.from_nvml("GPU-0", 48)
    looked(first, clock, a_reading(energy_joules_total=1e6))
    looked(first, clock, a_reading(energy_joules_total=1.0))
    second = a_watch(clock, tmp_path)
    second.xids.know([a_reading().info])
    second.xids.hear(KernelXid(address=(0, 1, 0), xid=48), 1000.0)

    assert looked(second, clock, a_reading(energy_joules_total=2.0)).state is Health.HEALTHY
    assert second.xids.counts["GPU-0", 48].total == 1


@pytest.mark.parametrize("content", [b"", b"{", b'{"schema":1}', b'{"schema":2,"boot_id":"boot-1"}', b"\xff"])
def test_a_broken_file_is_no_obstacle(tmp_path: Path, content: bytes) -> None:
    """Health begins anew and the file is written anew."""
    (tmp_path / "health.json").write_bytes(content)
    clock = ManualClock()
    watch = a_watch(clock, tmp_path)
    watch.xids.from_nvml("GPU-0", 48)
    looked(watch, clock)

    assert looked(a_watch(clock, tmp_path), clock).state is Health.FAILING


def test_a_file_that_cannot_be_written_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Verdicts go on."""
    clock = ManualClock()
    (tmp_path / "file").touch()
    watch = a_watch(clock, tmp_path / "file")
    states = [looked(watch, clock, a_reading(remapped_rows_pending=pending)).state for pending in (1, 0, 1)]
    for _ in range(20):
        clock.advance(60.0)
        looked(watch, clock)

    assert states == [Health.DEGRADED] * 3
    assert caplog.text.count("cannot be written") == 1


def test_a_steady_node_writes_once_a_minute(tmp_path: Path) -> None:
    """Not at each cycle."""
    clock = ManualClock()
    watch, path = a_watch(clock, tmp_path), tmp_path / "health.json"
    writes = []
    for _ in range(600):
        looked(watch, clock)
        writes.append(path.stat().st_ino if path.exists() else 0)

    assert len(list(itertools.groupby(writes))) <= 11


# In the verdict and on paper


def test_a_stale_verdict_knows_nothing_of_health() -> None:
    """Health is unknown, with the reason, once the readings are too old to be shown."""
    clock = ManualClock()
    core = AgentCore(node_id="n", clock=clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0)
    clock.advance(1.0)
    core.ingest_messages(a_cycle(1, clock.monotonic(), a_reading(remapped_rows_failure=1)))
    fresh = core.verdict(clock.monotonic()).gpus[0].health
    clock.advance(60.0)
    stale = core.verdict(clock.monotonic()).gpus[0].health

    assert fresh is not None
    assert stale is not None
    assert (fresh.state, fresh.remedy) == (Health.FAILING, Remedy.REPLACE_HARDWARE)
    assert (stale.state, stale.findings, stale.doubt) == (Health.UNKNOWN, (), "no reading for 1m")


def test_a_verdict_of_an_older_agent_has_no_health() -> None:
    """It is read as ever; one with health survives the way over the wire, and its GPUs keep theirs."""
    activity = {"state": "idle", "since": None, "held_seconds": 0.0}
    old = msgspec.json.decode(msgspec.json.encode({"uuid": "GPU-0", "index": 0, "activity": activity}), type=GpuVerdict)
    finding = xid_finding(48)
    assert finding is not None
    health = GpuHealth(state=Health.FAILING, since=START, findings=(finding,))
    new = replace(old, health=health)

    assert old.health is None
    assert msgspec.json.decode(msgspec.json.encode(new), type=GpuVerdict) == new


def test_the_page_is_the_tables() -> None:
    """docs/health.md is what the code judges by."""
    page = (ROOT / "docs/health.md").read_text(encoding="utf-8")

    assert page == render_health_md(), "run `make docs`"


def test_the_page_has_every_code() -> None:
    """Whatever code a verdict may carry can be looked up."""
    page = render_health_md()
    codes = {level.finding.code for level in LEVELS} | {finding.code for finding, _ in DOWN.values()}
    codes |= {finding.code for finding in RECOVERY.values()} | {f"xid_{xid}" for xid in XIDS if xid_finding(xid)}

    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []
