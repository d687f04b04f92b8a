"""People's programs on a made host, whose use of the processor and of disks goes on by the clock."""

from pathlib import Path
from shutil import rmtree

from gpuwatch.agent.evidence.base import Moment
from gpuwatch.agent.evidence.settings import WorkSettings
from gpuwatch.agent.evidence.watcher import HostWatcher, Watched
from gpuwatch.agent.evidence.work import Processes
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.host import FolderHost
from tests.support.fakes.proc_files import put_process
from tests.support.fakes.shells import MadeShells

LOOK_SECONDS = 10.0


class Life:
    """A host on which programs run; a look each ten seconds."""

    def __init__(self, root: Path) -> None:
        self.host = FolderHost(root)
        self.signal = Processes(WorkSettings(), self.host.roots, shells=MadeShells())
        self.gpu_pids: frozenset[int] = frozenset()
        self.programs: dict[int, dict[str, object]] = {}
        self.put(1, "systemd", cgroup="/init.scope", uid=0, parent=0)
        self.put(2000, "bash", arguments=("-bash",), tty=34816, parent=1)

    def put(self, pid: int, name: str, *, cores: float = 0.0, rate: float = 0.0, **known: object) -> None:
        """A program that uses so much from now on; it begins now unless `started_seconds` says otherwise."""
        about = {"started_seconds": self.uptime, "cpu_seconds": 0.0, "moved_bytes": 0, **known}
        self.programs[pid] = {"name": name, "cores": cores, "rate": rate, **about}
        self._write(pid)

    def end(self, pid: int) -> None:
        """A program ends."""
        del self.programs[pid]
        rmtree(self.host.roots.proc / str(pid))

    @property
    def uptime(self) -> float:
        """Seconds since the boot of this host."""
        return 4000.0 + self.host.clock.monotonic()

    def play(self, seconds: float) -> list[Evidence]:
        """Let time pass; what each look says."""
        found = []
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.host.pass_time(LOOK_SECONDS)
            for pid, known in self.programs.items():
                known["cpu_seconds"] += known["cores"] * LOOK_SECONDS  # type: ignore[operator]
                if known["moved_bytes"] is not None:
                    known["moved_bytes"] += round(known["rate"] * LOOK_SECONDS)  # type: ignore[operator]
                self._write(pid)
            found.append(self.look())
        return found

    def look(self) -> Evidence:
        """What the signal says now, failures included."""
        watched = Watched(signal=self.signal, interval_seconds=LOOK_SECONDS)
        watcher = HostWatcher([watched], self.host.clock, 5.0, lambda: self.gpu_pids)
        watcher.look_once(watched)
        (entry,) = watcher.evidence(self.host.clock.monotonic())
        return entry

    def says(self, seconds: float) -> set[State]:
        """The states of all looks over that time."""
        return {entry.says for entry in self.play(seconds)}

    def moment(self) -> Moment:
        """Now, with the newest view of the processes."""
        view = self.signal.table.view
        now = self.host.clock.monotonic()
        return Moment(at=self.host.clock.now(), monotonic_seconds=now, processes=view)

    def _write(self, pid: int) -> None:
        about = {key: value for key, value in self.programs[pid].items() if key not in {"cores", "rate", "name"}}
        put_process(self.host.roots.proc, pid, str(self.programs[pid]["name"]), **about)  # type: ignore[arg-type]
