"""A host whose /proc is a folder, and an agent that looks there for who uses its GPUs."""

import re
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.attribution.attribution import Attribution, View
from gpuwatch.agent.attribution.settings import AttributionSettings
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.gpu import GpuDown, GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import a_cycle, a_process, a_reading


class Host:
    """A /proc, and an agent that looks at it."""

    def __init__(self, folder: Path, *, top_processes: int = 16, settings: Mapping[str, bool] | None = None) -> None:
        """An agent in the host's PID namespace, with rights to all that is there."""
        self.proc = folder / "proc"
        (self.proc / "self/ns").mkdir(parents=True)
        (self.proc / "self/ns/pid").symlink_to("pid:[4026531836]")
        self.pod_logs = folder / "pods"
        self.process(1, uid=0)
        self.clock = ManualClock()
        self.core = AgentCore(
            node_id="n", clock=self.clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0
        )
        self.attribution = Attribution(
            AttributionSettings(
                proc=str(self.proc),
                pod_resources_socket=str(folder / "none.sock"),
                pod_logs=str(self.pod_logs),
                **(settings or {}),
            ),
            self.clock,
            lambda: self.core.snapshot(self.clock.monotonic()),
        )
        self._exporter = Exporter(
            self.core,
            self.clock,
            node_id="n",
            top_processes=top_processes,
            own_process=False,
            users=self.attribution.view,
        )
        self._seq = 0

    def process(
        self, pid: int, *, start: int = 100, uid: int = 0, cgroup: str = "0::/\n", environ: bytes = b"", name: str = "x"
    ) -> Path:
        """Put a process there, in place of one that had its pid."""
        folder = self.proc / str(pid)
        folder.mkdir(exist_ok=True)
        zeros = " ".join(["0"] * 18)
        (folder / "stat").write_text(f"{pid} ({name}) S {zeros} {start} 0 0\n", encoding="utf-8")
        (folder / "status").write_text(f"Name:\t{name}\nUid:\t0\t{uid}\t0\t0\nGid:\t0\t0\t0\t0\n", encoding="utf-8")
        (folder / "cgroup").write_text(cgroup, encoding="utf-8")
        (folder / "environ").write_bytes(environ)
        return folder

    def numbered(self, **minors: int) -> None:
        """What NVIDIA's driver tells in /proc: the minor numbers of its GPUs, by the PCI bus they are on."""
        for bus, minor in minors.items():
            folder = self.proc / f"driver/nvidia/gpus/0000:{bus.removeprefix('bus_')}:00.0"
            folder.mkdir(parents=True)
            (folder / "information").write_text(f"Model: \t\t NVIDIA\nDevice Minor: \t {minor}\n", encoding="utf-8")

    def end(self, pid: int) -> None:
        """The process ends."""
        for file in (self.proc / str(pid)).iterdir():
            file.unlink()
        (self.proc / str(pid)).rmdir()

    def cycle(self, *entries: GpuReading | GpuDown) -> "Host":
        """One cycle of the probe, then one look."""
        self.clock.advance(1.0)
        self._seq += 1
        self.core.ingest_messages(a_cycle(self._seq, self.clock.monotonic(), *entries))
        self.attribution.refresh()
        return self

    def holding(self, *pids: int) -> "Host":
        """A cycle in which these hold a GiB each."""
        return self.cycle(a_reading(processes=tuple(a_process(pid) for pid in pids)))

    def lines(self, name: str) -> list[str]:
        """The samples of that name on the page, without their GPU."""
        page = self._exporter.page("text/plain").body.decode()
        found = [line.removeprefix(name) for line in page.splitlines() if line.startswith(name + "{")]
        return [re.sub(r'gpu="0",?|,?uuid="GPU-0"', "", line) for line in found]

    @property
    def told(self) -> View:
        """What is known."""
        view = self.attribution.view()

        assert view is not None, "nothing is known"
        return view
