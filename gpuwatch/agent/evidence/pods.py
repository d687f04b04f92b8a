"""What each pod with GPUs does by itself, so that a busy neighbour on the same machine does not stand for it.

Rules, all of them:

1. Processors, disks and network of a machine are counted for all of it. For a pod its own are counted: its control
   group, the processes in it, and its network namespace. The limits and spans are those of the machine's signals.
2. What a pod's own counters do not show stays the machine's: the network of a pod that uses the host's, disks where
   the kernel does not count them by group (version 1), and all signals that are of no pod (people, locks, Slurm, …).
3. A pod without a group that can be read, or without a process that can be seen, is unknown. Where no pod's group can
   be seen at all, nothing is said about any: the machine's signals go on to stand for all of them.
4. Pages that come in count like bytes: a file on the network is read into the pod's memory past disks and its network.
5. A terminal in the pod (`kubectl exec -it`) is somebody at work until it has been silent for as long as a login.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gpuwatch.agent.activity.pods import PodLook
from gpuwatch.agent.evidence import pod_groups
from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding
from gpuwatch.agent.evidence.files import ENDED, read_small
from gpuwatch.agent.evidence.gpu_process_cpu import GpuProcessCpu
from gpuwatch.agent.evidence.net_namespaces import traffic
from gpuwatch.agent.evidence.pod_groups import Counters
from gpuwatch.agent.evidence.rate import Rate
from gpuwatch.agent.evidence.settings import EvidenceSettings
from gpuwatch.agent.processes.kinds import is_viewer
from gpuwatch.agent.processes.process import Process
from gpuwatch.model.activity import Evidence, State

MOST_PODS = 64  # more than the parts that a machine's GPUs are cut into
_SPAN_SECONDS = 60.0
_NOT_YET = "its programs were not looked at yet"
_SWITCHES = re.compile(r"^voluntary_ctxt_switches:\t(\d+)$", re.MULTILINE | re.ASCII)
_OF_PROCESSES = frozenset({"processes", "gpu_process_cpu", "cpu"})
_OF_DISKS = frozenset({"disk"})
_OF_NETWORK = frozenset({"network", "connections"})
_ALL = _OF_PROCESSES | _OF_DISKS | _OF_NETWORK


@dataclass(slots=True, kw_only=True)
class _Source:
    """Where a finding about a pod comes from."""

    name: str
    source: str


_CPU = _Source(name="cpu", source="cpu.stat of the pod's control group")
_DISK = _Source(name="disk", source="io.stat of the pod's control group")
_PAGES = _Source(name="memory", source="memory.stat of the pod's control group")
_TRAFFIC = _Source(name="network", source="/proc/<pid>/net/dev of the pod")
_TERMINAL = _Source(name="people", source="terminals in the pod")
_GROUP = _Source(name="pods", source="the pod's control group")


@dataclass(slots=True, kw_only=True)
class _Watch:
    """One pod from look to look."""

    gpu: GpuProcessCpu
    cpu: Rate
    disk: Rate
    pages: Rate
    network: Rate
    paged_bytes: float = 0.0
    before: Counters | None = None
    terminals: dict[tuple[int, int], tuple[int, float]] = field(default_factory=dict)  # switches, and since when

    def forget(self) -> None:
        """Begin again, because the counters could not be read."""
        for rate in (self.cpu, self.disk, self.pages, self.network):
            rate.forget()
        self.before = None


class Pods:
    """Keeps what was seen of each pod with GPUs in `found`; as a signal of the machine it says nothing."""

    name = "pods"
    source = "control groups of pods"

    def __init__(
        self, settings: EvidenceSettings, roots: Roots, wanted: Callable[[], Mapping[str, str | None] | None]
    ) -> None:
        """`wanted` returns the pods with GPUs: names by uid; None while they are not known."""
        self._settings = settings
        self._roots = roots
        self._wanted = wanted
        self._watches: dict[str, _Watch] = {}
        self.found: Mapping[str, PodLook] = {}

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """Look at each pod.

        Raises:
            OSError, UnseenError: it is not known what any of them does.

        """
        view, wanted = now.processes, self._wanted()
        if wanted is None:
            raise UnseenError("which pods hold GPUs is not known")
        if view is None or view.doubt is not None:
            raise UnseenError("the processes of the host are not known" if view is None else view.doubt or "")
        groups = pod_groups.groups(self._roots.sys / "fs/cgroup") if wanted else None
        if groups is None:
            self._watches, self.found = {}, {}
            return ()
        theirs: dict[str, list[Process]] = {uid: [] for uid in sorted(wanted)[:MOST_PODS]}
        for process in view.processes.values():
            if process.placement.pod_uid in theirs and process.state not in {"Z", "X"}:
                theirs[process.placement.pod_uid].append(process)
        self._watches = {uid: self._watches.get(uid) or self._watch() for uid in theirs}
        self.found = {
            uid: self._look_at_pod(self._watches[uid], wanted[uid], groups.get(uid), processes, now)
            for uid, processes in theirs.items()
        }
        return ()

    def with_processes(self, processes: Mapping[str | None, Evidence], doubt: Evidence | None) -> Mapping[str, PodLook]:
        """What was found of each pod, with what its programs do, and with those that are in no pod (`Processes`).

        `doubt` is why none of it counts now.
        """
        outside = processes.get(None)
        if doubt is None and outside is None:
            doubt = make_finding(_GROUP, State.UNKNOWN, _NOT_YET)
        if doubt is not None:
            return {uid: replace(each, evidence=(doubt,), divided=_ALL) for uid, each in self.found.items()}
        others = () if outside is None or outside.says is State.IDLE else (outside,)
        return {
            uid: replace(
                each,
                evidence=(*each.evidence, processes.get(uid, make_finding(_GROUP, State.UNKNOWN, _NOT_YET)), *others),
            )
            for uid, each in self.found.items()
        }

    def _watch(self) -> _Watch:
        its = self._settings
        most = its.connections if its.connections.enabled else its.network
        return _Watch(
            gpu=GpuProcessCpu(its.gpu_process_cpu, self._roots),
            cpu=Rate(its.pods.busy_cores, "cores", _SPAN_SECONDS),
            disk=Rate(its.disk.busy_bytes_per_second),
            pages=Rate(its.processes.busy_bytes_per_second, span_seconds=_SPAN_SECONDS),
            network=Rate(most.busy_bytes_per_second, span_seconds=_SPAN_SECONDS),
        )

    def _look_at_pod(
        self, watch: _Watch, name: str | None, group: pod_groups.Group | None, processes: list[Process], now: Moment
    ) -> PodLook:
        """One pod; whatever fails makes it unknown."""
        try:
            return self._look_of_pod(watch, name, group, processes, now)
        except UnseenError as error:
            why = str(error)
        except OSError as error:
            why = f"{error.strerror or type(error).__name__}: {error.filename or 'its control group'}"
        watch.forget()
        return PodLook(name=name, evidence=(make_finding(_GROUP, State.UNKNOWN, why),), divided=_ALL)

    def _look_of_pod(
        self, watch: _Watch, name: str | None, group: pod_groups.Group | None, processes: list[Process], now: Moment
    ) -> PodLook:
        """All that can be seen of this pod.

        Raises:
            OSError, UnseenError: something of it cannot.

        """
        if group is None:
            raise UnseenError("it has no control group any more")
        if not processes:
            raise UnseenError("none of its processes can be seen")
        counted = group.read()
        moved = traffic(self._roots, min(processes, key=_age).pid)
        found = [*self._of_gpu_processes(watch, processes, now), self._of_cpu(watch, counted, processes, now)]
        found.append(watch.pages.judge(_PAGES, {"its memory": _paged_bytes(watch, counted)}, now))
        found += self._people(watch, processes, now)
        divided = _OF_PROCESSES
        if counted.disk_bytes is not None:
            found.append(watch.disk.judge(_DISK, {"its disks": counted.disk_bytes}, now))
            divided |= _OF_DISKS
        if moved is not None:
            found.append(watch.network.judge(_TRAFFIC, {"its network": moved}, now))
            divided |= _OF_NETWORK
        return PodLook(name=name, evidence=tuple(map(self._with_setting, found)), divided=divided)

    def _with_setting(self, found: Evidence) -> Evidence:
        """Busy evidence with the setting of its limit, where that is not the one of the machine's signal."""
        own = {
            _CPU.source: "agent.evidence.pods.busy_cores",
            _PAGES.source: "agent.evidence.processes.busy_bytes_per_second",
        }
        if self._settings.connections.enabled:
            own[_TRAFFIC.source] = "agent.evidence.connections.busy_bytes_per_second"
        setting = own.get(found.source) if found.says is State.BUSY else None
        return found if setting is None else replace(found, setting=setting)

    def _of_gpu_processes(self, watch: _Watch, processes: Iterable[Process], now: Moment) -> tuple[Evidence, ...]:
        """As for the machine, by the same code."""
        pids = None if now.gpu_pids is None else now.gpu_pids & {each.pid for each in processes}
        try:
            return watch.gpu.find_evidence(replace(now, gpu_pids=pids))
        except (OSError, UnseenError) as error:
            return (make_finding(watch.gpu, State.UNKNOWN, str(error)),)

    def _of_cpu(self, watch: _Watch, counted: Counters, processes: Iterable[Process], now: Moment) -> Evidence:
        """What the group uses without its GPU processes, which may spin."""
        found = watch.cpu.judge(_CPU, {"its processes": counted.cpu_seconds}, now)
        if found.says is not State.BUSY or now.processes is None or now.gpu_pids is None:
            return found
        cores = now.processes.cores
        own = sum(cores.get(each.pid, 0.0) for each in processes if each.pid in now.gpu_pids)
        if (found.observed or 0.0) - own > (found.limit or 0.0):
            return found
        return replace(found, says=State.IDLE, note=f"{own:.2f} cores of it are those of processes on GPUs")

    def _people(self, watch: _Watch, processes: Collection[Process], now: Moment) -> tuple[Evidence, ...]:
        """Terminals that somebody opened in its containers, and how long each has been silent."""
        limit = self._settings.people.silent_after
        opened = [each for each in _processes_with_terminal(processes) if not is_viewer((each.name,))]
        known, watch.terminals = watch.terminals, {}
        at, silent = now.monotonic_seconds, limit
        for each in opened:
            key = (each.pid, each.started_ticks)
            with suppress(*ENDED):
                switches = _switches(self._roots, each.pid)
                count, since = known.get(key, (switches, at))
                watch.terminals[key] = (switches, since if count == switches else at)
                silent = min(silent, at - watch.terminals[key][1])
        if silent >= limit:
            return ()
        note = f"somebody is at a terminal: {opened[0].name} (pid {opened[0].pid})"
        return (make_finding(_TERMINAL, State.BUSY, note, observed=silent, limit=limit, unit="seconds"),)


def _paged_bytes(watch: _Watch, counted: Counters) -> float:
    """Bytes that came into its memory from files, since the watch began: what is kept of them, and what came again."""
    last, watch.before = watch.before, counted
    if last is not None:
        grown = max(0.0, counted.file_bytes - last.file_bytes)
        watch.paged_bytes += grown + max(0.0, counted.paged_bytes - last.paged_bytes)
    return watch.paged_bytes


def _age(process: Process) -> tuple[int, int]:
    """Sorts the oldest first."""
    return process.started_ticks, process.pid


def _processes_with_terminal(processes: Iterable[Process]) -> list[Process]:
    """The processes with a terminal that is not their container's own: it is of the session of the first process."""
    first: dict[str | None, Process] = {}
    for each in sorted(processes, key=_age):
        first.setdefault(each.placement.container_id, each)
    return [each for each in processes if each.tty != 0 and each.session != first[each.placement.container_id].session]


def _switches(roots: Roots, pid: int) -> int:
    """How often a process has waited: it does so at each key that somebody presses. Without that count, it is busy."""
    found = _SWITCHES.search(read_small(roots.proc / str(pid) / "status").text)
    if found is None:
        raise UnseenError(f"/proc/{pid}/status does not count voluntary_ctxt_switches")
    return int(found[1])
