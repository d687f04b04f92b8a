"""agent/slurm_jobs: the agent's log has one line for each Slurm job on its GPUs that is over."""

import logging
import shutil
from pathlib import Path

import pytest

from gpuwatch.agent.attribution.settings import AttributionSettings
from gpuwatch.agent.daemon import follow_slurm_jobs
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.model.gpu import GpuReading
from tests.support.builders.gpu import GIB, a_process, a_reading
from tests.support.fakes.gpu_users import Host

SLURM = "0::/system.slice/slurmstepd.scope/job_17/step_0\n"
IN_SLURMD = "0::/system.slice/slurmd.service\n"
WHOLE = (
    "Slurm job 17 of root on this host: 10s, 1 GPU used 50 %, GPU memory 1 GiB of 80 GiB at most, "
    "CPU 2.0 of 4 cores, memory 3 GiB of 8 GiB at most."
)


class SlurmHost(Host):
    """A host with control groups, of which the agent follows the jobs. Its uptime is the agent's own clock."""

    def __init__(self, folder: Path, *, enabled: bool = True) -> None:
        """No job yet."""
        super().__init__(folder)
        self.group = folder / "cgroup/system.slice/slurmstepd.scope/job_17"
        self.booted = self.clock.monotonic() - 1000.0
        self.settings = AgentSettings(attribution=AttributionSettings(proc=str(self.proc), slurm_jobs=enabled))
        self.agent_begins()

    def agent_begins(self) -> None:
        """As the daemon does it."""
        follow_slurm_jobs(self.settings, self.core, self.attribution, self.clock, self.group.parents[2])

    @property
    def uptime(self) -> float:
        """Seconds since boot."""
        return self.clock.monotonic() - self.booted

    def job(self, pid: int = 7, cgroup: str = SLURM, *, group: bool = True, started_ago: float = 0.0) -> None:
        """A process of the job starts."""
        self.process(pid, start=round((self.uptime - started_ago) * 100), cgroup=cgroup, environ=b"SLURM_JOB_ID=17\0")
        if group:
            self.group.mkdir(parents=True, exist_ok=True)
            self.counts(cpu_seconds=0.0)
            self.write("memory.peak", str(3 * GIB))
            self.write("memory.max", str(8 * GIB))
            self.write("cpuset.cpus.effective", "0-3")
            self.write("cgroup.events", "populated 1")

    def write(self, name: str, text: str) -> None:
        """One file of the job's group."""
        (self.group / name).write_text(f"{text}\n", encoding="ascii")

    def counts(self, cpu_seconds: float) -> None:
        """CPU time of the job."""
        self.write("cpu.stat", f"usage_usec {round(cpu_seconds * 1e6)}")

    def over(self, pid: int = 7) -> None:
        """The job ends, with its group."""
        self.end(pid)
        shutil.rmtree(self.group, ignore_errors=True)

    def cycle(self, *entries: object) -> "SlurmHost":
        """One cycle and one look."""
        (self.proc / "uptime").write_text(f"{self.uptime + 1.0:.2f} 0.00\n", encoding="ascii")
        super().cycle(*entries)  # type: ignore[arg-type]
        return self


def at_work(*pids: int, ratio: float = 0.5) -> GpuReading:
    """A GPU with these processes."""
    return a_reading(utilization_ratio=ratio, processes=tuple(a_process(pid) for pid in pids))


@pytest.fixture
def host(tmp_path: Path) -> SlurmHost:
    """One whose agent runs."""
    return SlurmHost(tmp_path)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The agent's log."""
    caplog.set_level(logging.INFO)
    return caplog


def test_a_job_that_is_over_has_one_line(host: SlurmHost, log: pytest.LogCaptureFixture) -> None:
    """With its GPUs, its memory and its processors, from its begin to its end."""
    host.job()
    for second in range(10):
        host.counts(cpu_seconds=2.0 * (second + 1))
        host.cycle(at_work(7))
    host.over()
    for _ in range(5):
        host.cycle(at_work(ratio=0.0))

    assert log.messages == [WHOLE]


def test_a_job_goes_on_between_two_programs(host: SlurmHost, log: pytest.LogCaptureFixture) -> None:
    """While its group has a process, the GPUs wait for the job, which counts."""
    host.job()
    host.cycle(at_work(7, ratio=1.0)).cycle(at_work(7, ratio=1.0)).cycle(at_work(7, ratio=1.0))
    host.end(7)
    for _ in range(4):
        host.cycle(at_work(ratio=0.0))
    assert log.messages == []
    host.job(8)
    host.cycle(at_work(8, ratio=0.0))
    host.over(8)
    host.cycle(at_work()).cycle(at_work())

    (line,) = log.messages
    assert line.startswith("Slurm job 17 of root on this host: 8s, 1 GPU used 17 %, ")  # 1 s of 6 s


def test_without_a_group_the_processes_decide(host: SlurmHost, log: pytest.LogCaptureFixture) -> None:
    """As with `proctrack/linuxproc`: what only a group counts is left out."""
    host.job(cgroup=IN_SLURMD, group=False)
    host.cycle(at_work(7)).cycle(at_work(7)).cycle(at_work(7))
    host.cycle(a_reading(processes=None)).cycle()  # the driver is silent for a while
    assert log.messages == []
    host.end(7)
    host.cycle(at_work()).cycle(at_work())

    (line,) = log.messages
    assert line.startswith("Slurm job 17 of root on this host: 5s, 1 GPU used ")
    assert line.endswith(", GPU memory 1 GiB of 80 GiB at most.")


def test_a_job_of_a_few_seconds(host: SlurmHost, log: pytest.LogCaptureFixture) -> None:
    """It was on the GPU in three cycles, and over before it was looked at again."""
    host.job(group=False)
    host.cycle(at_work(7))
    looked, host.attribution.on_view = host.attribution.on_view, lambda _: None
    host.cycle(at_work(7)).cycle(at_work(7))
    host.end(7)
    host.attribution.on_view = looked
    host.cycle(at_work()).cycle(at_work())

    assert log.messages == [
        "Slurm job 17 of root on this host: 3s, 1 GPU used 50 %, GPU memory 1 GiB of 80 GiB at most."
    ]


def test_one_missing_look_is_no_end(host: SlurmHost, log: pytest.LogCaptureFixture) -> None:
    """Two in a row are."""
    host.job(group=False)
    host.cycle(at_work(7)).cycle(at_work(7))
    host.end(7)
    host.cycle(at_work())
    host.job(8, group=False)
    host.cycle(at_work(8))
    assert log.messages == []
    host.end(8)
    host.cycle(at_work())
    assert log.messages == []
    host.cycle(at_work())

    assert len(log.messages) == 1


def test_a_job_that_is_older_than_the_agent(host: SlurmHost, log: pytest.LogCaptureFixture) -> None:
    """Only what was seen is reported, and the line says so."""
    host.job(started_ago=600.0)
    for second in range(6):
        host.counts(cpu_seconds=900.0 + second)
        host.cycle(at_work(7))
    host.over()
    host.cycle(at_work()).cycle(at_work())

    (line,) = log.messages
    assert line.startswith("Slurm job 17 of root on this host: seen for ")
    assert "CPU 1.0 of 4 cores" in line


def test_the_agent_begins_again(host: SlurmHost, log: pytest.LogCaptureFixture) -> None:
    """It remembers nothing of jobs across its own restart."""
    host.job()
    host.cycle(at_work(7, ratio=1.0)).cycle(at_work(7, ratio=1.0)).cycle(at_work(7, ratio=1.0))
    host.core.on_publish = lambda: None
    host.agent_begins()
    host.cycle(at_work(7, ratio=0.0)).cycle(at_work(7, ratio=0.0)).cycle(at_work(7, ratio=0.0))
    host.over()
    host.cycle(at_work()).cycle(at_work())

    (line,) = log.messages
    assert "seen for" in line
    assert "1 GPU used 0 %" in line


def test_processes_of_nobodys_job_have_no_line(host: SlurmHost, log: pytest.LogCaptureFixture) -> None:
    """A container or a person on the host is not Slurm's."""
    host.process(7)
    host.cycle(at_work(7)).cycle(at_work(7))
    host.end(7)
    host.cycle(at_work()).cycle(at_work()).cycle(at_work())

    assert log.messages == []


def test_it_can_be_switched_off(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    """`agent.attribution.slurm_jobs: false`."""
    host = SlurmHost(tmp_path, enabled=False)
    host.job()
    host.cycle(at_work(7)).cycle(at_work(7))
    host.over()
    host.cycle(at_work()).cycle(at_work()).cycle(at_work())

    assert log.messages == []


def test_others_who_hear_of_cycles_still_do(tmp_path: Path) -> None:
    """Questions before a stop wait for the same call."""
    host, heard = SlurmHost(tmp_path), []
    host.core.on_publish = lambda: heard.append("cycle")
    host.agent_begins()
    host.cycle(at_work())

    assert heard == ["cycle"]


def test_a_failure_ends_only_the_lines(
    host: SlurmHost, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent reads on, and says once that it follows jobs no more."""
    host.job()
    host.cycle(at_work(7)).cycle(at_work(7))
    monkeypatch.setattr("gpuwatch.agent.slurm_jobs.book.JobBook.sample", lambda *_: 1 / 0)
    before = host.core.snapshot(host.clock.monotonic()).version
    host.cycle(at_work(7)).cycle(at_work(7))

    assert host.core.snapshot(host.clock.monotonic()).version == before + 2
    assert log.messages == ["what Slurm jobs use cannot be followed any more, until the agent starts again"]
    assert host.told.owners[7].placement.slurm_job == "17"
