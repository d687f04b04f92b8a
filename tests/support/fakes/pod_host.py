"""A Kubernetes node made of folders: pods with control groups, processes and networks, and an agent's looks at them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from gpuwatch.agent.activity.pods import PodLook
from gpuwatch.agent.evidence.pods import Pods
from gpuwatch.agent.evidence.settings import EvidenceSettings
from gpuwatch.agent.evidence.watcher import HostWatcher, Watched
from gpuwatch.agent.evidence.work import Processes
from gpuwatch.model.activity import State
from tests.support.fakes.host import FolderHost
from tests.support.fakes.proc_files import put_process

LOOK_SECONDS = 10.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
_DEV = (
    "Inter-|   Receive\n face |bytes\n    lo: 900000000 0 0 0 0 0 0 0 900000000 0\n  eth0: {moved} 0 0 0 0 0 0 0 0 0\n"
)


def uid_of(name: str) -> str:
    """A made uid for a pod's name."""
    return f"{sum(name.encode()):08x}-0000-4000-8000-{sum(name.encode()):012x}"


@dataclass(slots=True, kw_only=True)
class MadePod:
    """What a pod has counted so far, and what it does each second from now on."""

    name: str
    pid: int
    own_network: bool = True
    cpu_seconds: float = 0.0
    disk_bytes: float = 0.0
    moved: float = 1000.0
    file_bytes: float = 0.0
    faults: float = 0.0
    cores: float = 0.0  # of the group, beside what its processes show
    program_cores: float = 0.0  # of its first program
    disk_rate: float = 0.0
    network_rate: float = 0.0
    file_rate: float = 0.0
    fault_rate: float = 0.0
    program: str = "python3"
    state: str = "S"
    parent: int = 500
    program_seconds: float = 0.0


class PodHost(FolderHost):
    """Its control groups are of version 2 unless `version` is 1. Each pod has one program that began long ago."""

    def __init__(self, root: Path, *, version: int = 2) -> None:
        """A node without pods."""
        super().__init__(root)
        self.version = version
        self.made: dict[str, MadePod] = {}
        self.gpu_pids: frozenset[int] = frozenset()
        self.wanted: Mapping[str, str | None] | None = {}
        self.signal = Processes(EvidenceSettings().processes, self.roots, pods=lambda: tuple(self.wanted or ()))
        self.pods = Pods(EvidenceSettings(), self.roots, lambda: self.wanted)
        for pid in ("self", "1"):
            (root / f"proc/{pid}/ns").mkdir(parents=True, exist_ok=True)
            (root / f"proc/{pid}/ns/net").symlink_to("net:[1]")
        put_process(self.roots.proc, 1, "systemd", cgroup="/init.scope", uid=0, parent=0)
        put_process(self.roots.proc, 500, "containerd-shim", cgroup="/system.slice/containerd.service", uid=0, parent=1)
        if version == 2:
            self.write("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n")
        self._watched = [Watched(signal=each, interval_seconds=LOOK_SECONDS) for each in (self.signal, self.pods)]
        self._watcher = HostWatcher(
            self._watched, self.clock, 5.0, lambda: self.gpu_pids, lambda: self.signal.table.view
        )

    def add(self, name: str, pid: int, **does: object) -> MadePod:
        """A pod that runs since long ago."""
        pod = MadePod(name=name, pid=pid, **does)  # type: ignore[arg-type]  # fields of MadePod
        self.made[name] = pod
        self.wanted = {**(self.wanted or {}), uid_of(name): f"team-a/{name}"}
        self._write(pod)
        return pod

    def cgroup(self, name: str) -> str:
        """The path of a container of the pod, as the kernel shows it."""
        slices = f"kubepods-burstable-pod{uid_of(name).replace('-', '_')}.slice"
        return f"/kubepods.slice/kubepods-burstable.slice/{slices}/cri-containerd-{'ab' * 32}.scope"

    def group(self, name: str, controller: str = "cpu") -> Path:
        """The folder of a pod's group."""
        within = {"cpu": "cpu,cpuacct", "memory": "memory"}[controller] if self.version == 1 else ""
        return self.root / "sys/fs/cgroup" / within / Path(self.cgroup(name)).parent.relative_to("/")

    def exec_into(self, name: str, pid: int, *, switches: int = 1, program: str = "bash") -> None:
        """Somebody's `kubectl exec -it`, with a terminal that has waited so often."""
        put_process(self.roots.proc, pid, program, cgroup=self.cgroup(name), uid=0, parent=500, tty=34817)
        status = self.root / f"proc/{pid}/status"
        status.write_text(f"{status.read_text()}voluntary_ctxt_switches:\t{switches}\n")

    def end(self, name: str) -> None:
        """A pod ends: its processes and its group are gone."""
        pod = self.made.pop(name)
        rmtree(self.root / f"proc/{pod.pid}")
        rmtree(self.group(name))

    def play(self, seconds: float) -> list[Mapping[str, PodLook]]:
        """Let time pass; what each look gives."""
        found = []
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.pass_time(LOOK_SECONDS)
            for pod in self.made.values():
                pod.program_seconds += pod.program_cores * LOOK_SECONDS
                pod.cpu_seconds += (pod.cores + pod.program_cores) * LOOK_SECONDS
                pod.disk_bytes += pod.disk_rate * LOOK_SECONDS
                pod.moved += pod.network_rate * LOOK_SECONDS
                pod.file_bytes += pod.file_rate * LOOK_SECONDS
                pod.faults += pod.fault_rate * LOOK_SECONDS
                self._write(pod)
            found.append(self.look())
        return found

    def look(self) -> Mapping[str, PodLook]:
        """What is known of each pod after a look, failures included."""
        for each in self._watched:
            self._watcher.look_once(each)
        now = self.clock.monotonic()
        entries = (entry for each in self._watched for entry in self._watcher.current(each, now))
        doubt = next((entry for entry in entries if entry.says is State.UNKNOWN), None)
        return self.pods.with_processes(self.signal.of_pods, doubt)

    def says(self, name: str, seconds: float = 300.0) -> dict[str, State]:
        """What the signals of a pod say at the end of that time, but for the idle ones."""
        look = self.play(seconds)[-1][uid_of(name)]
        return {entry.name: entry.says for entry in look.evidence if entry.says is not State.IDLE}

    def _write(self, pod: MadePod) -> None:
        put_process(
            self.roots.proc,
            pod.pid,
            pod.program,
            cgroup=self.cgroup(pod.name),
            uid=0,
            parent=pod.parent,
            state=pod.state,
            cpu_seconds=pod.program_seconds,
            moved_bytes=None,  # as for an agent without CAP_SYS_PTRACE
        )
        self.write(f"proc/{pod.pid}/net/dev", _DEV.format(moved=round(pod.moved)))
        link = self.root / f"proc/{pod.pid}/ns/net"
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(f"net:[{pod.pid}]" if pod.own_network else "net:[1]")
        self._count(pod)

    def _count(self, pod: MadePod) -> None:
        """The files of its group, as the kernel writes them."""
        cpu, memory = self.group(pod.name), self.group(pod.name, "memory")
        for folder in (cpu, memory):
            folder.mkdir(parents=True, exist_ok=True)
        if self.version == 1:
            pages = round((pod.faults * _PAGE + pod.file_bytes) / _PAGE)
            (cpu / "cpuacct.usage").write_text(f"{round(pod.cpu_seconds * 1e9)}\n")
            (memory / "memory.stat").write_text(f"cache 0\ntotal_cache {round(pod.file_bytes)}\ntotal_pgpgin {pages}\n")
            return
        micro = round(pod.cpu_seconds * 1e6)
        (cpu / "cpu.stat").write_text(f"usage_usec {micro}\nuser_usec {micro}\nsystem_usec 0\n")
        (cpu / "io.stat").write_text(
            f"8:0 rbytes={round(pod.disk_bytes)} wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n253:0 \n"
        )
        (cpu / "memory.stat").write_text(
            f"anon 4096\nfile {round(pod.file_bytes)}\nworkingset_refault_file 0\npgmajfault {round(pod.faults)}\n"
            "pgsteal_kswapd 7\npgsteal_direct 0\n"
        )
