"""The owners of the pids on the GPUs, looked up by a thread of its own: neither probe nor scrape waits for it.

Each process is read once: an owner is kept under (pid, start time) until the driver lists that pid no more. What is
shown is one view, replaced whole; a view that is not renewed (a hung /proc, a hung name service) is no longer shown.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from gpuwatch.agent.attribution.devices import Node, Part, device_minors, is_numbered
from gpuwatch.agent.attribution.grpc import CallError, NoServerError
from gpuwatch.agent.attribution.pod_list import read_list
from gpuwatch.agent.attribution.pod_resources import Allocation, is_name, list_allocations, parse_list
from gpuwatch.agent.attribution.pods import PodName, Workload, granted_gpus, holders, name_pods, users_of_gpus
from gpuwatch.agent.attribution.process import GONE, Owner, read_owner, sees_host_pids, start_time
from gpuwatch.agent.attribution.settings import AttributionSettings
from gpuwatch.agent.published import Snapshot
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

_REFRESH_SECONDS = 2.0
_VIEW_VALID_SECONDS = 20.0
_LIST_SECONDS = 30.0  # from one list of the kubelet to the next, unless a new pod appears
_LIST_VALID_SECONDS = 90.0  # the names stay while a kubelet restarts
_MOST_PROCESSES = 1024
_MOST_PODS = 64  # of one GPU: more than its parts, and than anybody slices its time; and of the host
_LOOKS_BETWEEN = 5  # a pod that is made again under its name has another uid
_PARTS = 3  # no name and no uid may have a _ in it


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The processes and pods at one time. `dead` is None if it is unknown which are dead.

    `held` are the pods of each GPU for certain: by the kubelet's list, which leaves none out; else those with a process
    on it, and `others` are the host's other pods, which may have been given GPUs as well. None: by that list.
    """

    monotonic_seconds: float
    owners: Mapping[int, Owner] = field(default_factory=dict)
    workloads: Mapping[int, Workload] = field(default_factory=dict)
    held: Mapping[str, tuple[Workload, ...]] = field(default_factory=dict)
    dead: frozenset[int] | None = None
    gpu_pods: Mapping[str, str | None] = field(default_factory=dict)  # `namespace/name` by uid, None where not known
    others: Mapping[str, str | None] | None = None  # likewise


class Attribution:
    """Keeps a view of who uses the GPUs of a snapshot."""

    def __init__(self, settings: AttributionSettings, clock: Clock, snapshot: Callable[[], Snapshot]) -> None:
        """Nothing is read before `start` or `refresh`."""
        self._settings = settings
        self._clock = clock
        self._snapshot = snapshot
        self._proc = Path(settings.proc)
        self._known: dict[tuple[int, int], Owner] = {}
        self._gone: dict[int, int] = {}  # pid -> the cycle in which its process was gone
        self._pods = _PodList(Path(settings.pod_resources_socket), clock)
        self._folders = PodFolders(Path(settings.pod_logs))
        self._numbered: tuple[Allocation, ...] = ()  # the list for which the minor numbers were read
        self._minors: Mapping[str, int] = {}
        self._view: View | None = None
        self.on_view: Callable[[View], None] = lambda _: None  # called by the thread that looks
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="attribution", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        if self._settings.enabled:
            self._thread.start()

    def stop(self) -> None:
        """End the thread; one that hangs in a file is left behind."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def view(self) -> View | None:
        """What may be shown now; None before the first look, and when the last one is too old."""
        view = self._view
        fresh = view is not None and self._clock.monotonic() - view.monotonic_seconds <= _VIEW_VALID_SECONDS
        return view if fresh else None

    def pods(self) -> Mapping[str, tuple[str, ...]]:
        """The pods that each GPU is of for certain, by the GPU's uuid: `namespace/name`."""
        view = self.view()
        held = {} if view is None else view.held
        return {
            gpu: tuple(dict.fromkeys(f"{each.namespace}/{each.pod}" for each in workloads))[:_MOST_PODS]
            for gpu, workloads in held.items()
        }

    def watched_pods(self) -> Mapping[str, str | None] | None:
        """Those of `gpu_pods`, and as many others as there is room for."""
        view = self.view()
        return None if view is None else {**view.gpu_pods, **(view.others or {})}

    def others(self) -> frozenset[str] | None:
        """The uids of the pods that may have been given GPUs, besides those that have; None: no other pod."""
        view = self.view()
        return None if view is None or view.others is None else frozenset(view.others)

    def gpu_pods(self) -> Mapping[str, str | None] | None:
        """The pods that were given GPUs, or hold them: `namespace/name` by uid; None: it is not known."""
        view = self.view()
        return None if view is None else view.gpu_pods

    def refresh(self) -> None:
        """Read the processes and pods once."""
        snapshot, now = self._snapshot(), self._clock.monotonic()
        uses: dict[int, frozenset[Part]] = {}
        for reading in snapshot.readings:
            for process in reading.processes or ():
                part = Part(
                    gpu=reading.info.uuid,
                    gpu_instance=process.gpu_instance,
                    compute_instance=process.compute_instance,
                )
                uses[process.pid] = uses.get(process.pid, frozenset()) | {part}
        visible = sees_host_pids(self._proc)
        owners = self._owners(sorted(uses)[:_MOST_PROCESSES], snapshot.version) if visible else {}
        pod_uids = {pid: owner.placement.pod_uid for pid, owner in owners.items() if owner.placement.pod_uid}
        names = self._folders.names(frozenset(pod_uids.values()))
        allocations = self._pods.allocations(frozenset(pod_uids.values()))
        grants = granted_gpus(allocations, self._node(snapshot, allocations))
        sure = {pid: uid for pid, uid in pod_uids.items() if uid in names or uid in self._pods.covers}
        given = holders(grants)
        workloads = name_pods(uses, sure, grants, names)
        gpu_pods = self._gpu_pods(frozenset(pod_uids.values()), names, given)
        self._view = View(
            monotonic_seconds=now,
            gpu_pods=gpu_pods,
            others=None if given else self._folders.others(gpu_pods.keys()),
            owners=owners,
            workloads=workloads,
            held=given if grants else users_of_gpus(uses, workloads),
            dead=frozenset(pid for pid, cycle in self._gone.items() if cycle < snapshot.version) if visible else None,
        )
        self.on_view(self._view)

    def _gpu_pods(
        self, using: frozenset[str], names: Mapping[str, PodName], held: Mapping[str, tuple[Workload, ...]]
    ) -> dict[str, str | None]:
        """The pods with a process on a GPU, and those that the kubelet gave one."""
        given = self._folders.uids(frozenset(each.of for each in chain.from_iterable(held.values())))
        known = {**names, **given}
        return {uid: "/".join(known[uid]) if uid in known else None for uid in using | given.keys()}

    def _node(self, snapshot: Snapshot, allocations: tuple[Allocation, ...]) -> Node:
        """The GPUs by their names; minor numbers are read once for each list of the kubelet that counts in them."""
        if allocations is not self._numbered:
            numbers = any(is_numbered(allocation.device) for allocation in allocations)
            self._numbered, self._minors = allocations, device_minors(self._proc) if numbers else {}
        gpus = (*(reading.info for reading in snapshot.readings), *(down.info for down in snapshot.downs))
        return Node.from_cycle(gpus, snapshot.readings, self._minors)

    def _owners(self, pids: Iterable[int], cycle: int) -> dict[int, Owner]:
        """The owner of each living pid; a process that is gone counts as dead once a later cycle still lists it."""
        known: dict[tuple[int, int], Owner] = {}
        owners: dict[int, Owner] = {}
        gone: dict[int, int] = {}
        for pid in pids:
            try:
                started = start_time(self._proc, pid)
                if started is None:
                    continue
                owner = self._known.get((pid, started)) or self._read(pid, started)
            except GONE:
                gone[pid] = self._gone.get(pid, cycle)
                continue
            if owner is not None:
                known[pid, started] = owners[pid] = owner
        self._known, self._gone = known, gone
        return owners

    def _read(self, pid: int, started: int) -> Owner | None:
        """A new process's owner; None if another one took its pid meanwhile."""
        owner = read_owner(
            self._proc, pid, users=self._settings.user_names, environment=self._settings.slurm_environment
        )
        return owner if start_time(self._proc, pid) == started else None

    def _run(self) -> None:
        """Look until `stop`; after any failure the next look tries again."""
        while not self._stopping.is_set():
            try:
                self.refresh()
                self._stopping.wait(_REFRESH_SECONDS)
            except Exception:  # noqa: BLE001  the thread must go on; nothing is shown until it works
                _LOG.exception("the owners of GPU processes could not be looked up")
                self._stopping.wait(_LIST_SECONDS)


class _PodList:
    """The kubelet's list, asked for seldom, and at once when a pod appears that it cannot cover."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._list: tuple[Allocation, ...] = ()
        self._listed_at: float | None = None
        self._next_at = 0.0
        self._trouble: str | None = None
        self.covers: frozenset[str] = frozenset()  # uids of pods that ran when the list was made

    def allocations(self, pod_uids: frozenset[str]) -> tuple[Allocation, ...]:
        """The present or a recent list; empty without a kubelet."""
        now = self._clock.monotonic()
        uncovered = self._trouble is None and not pod_uids <= self.covers
        if now >= self._next_at or uncovered:
            self._next_at = now + _LIST_SECONDS
            self._ask(now, pod_uids)
        if self._listed_at is None or now - self._listed_at > _LIST_VALID_SECONDS:
            self._list, self.covers = (), frozenset()
        return self._list

    def _ask(self, now: float, pod_uids: frozenset[str]) -> None:
        try:
            if self._path.is_file():  # written by a program that may ask the kubelet, a moment ago
                self._list, self._listed_at = parse_list(read_list(self._path, self._clock)), now
                self.covers = frozenset()
            else:
                self._list, self._listed_at, self.covers = list_allocations(self._path, self._clock), now, pod_uids
            trouble = None
        except NoServerError:
            return
        except (CallError, ValueError) as error:
            trouble = f"the kubelet cannot be asked at {self._path} who has which GPU: {error}"
        if trouble is not None and trouble != self._trouble:
            _LOG.warning(trouble)
        self._trouble = trouble


class PodFolders:
    """The kubelet's folders, listed only when a new uid appears."""

    def __init__(self, path: Path) -> None:
        """Name the folder; nothing is read yet."""
        self._path = path
        self._known: dict[str, PodName] = {}
        self._given: tuple[frozenset[PodName], int, dict[str, PodName]] = (frozenset(), 0, {})
        self._there: dict[str, PodName] = {}
        self._looks = _LOOKS_BETWEEN

    def names(self, uids: frozenset[str]) -> Mapping[str, PodName]:
        """The known names of these uids."""
        self._known = {uid: name for uid, name in self._known.items() if uid in uids}
        if uids - self._known.keys():
            self._known |= self._list_folders(uids)
        return self._known

    def uids(self, pods: frozenset[PodName]) -> dict[str, PodName]:
        """The uids of the pods of these names, those of former ones of the same name among them."""
        known, looks, found = self._given
        if known != pods or looks >= _LOOKS_BETWEEN:
            there = self._all() if pods else {}
            looks, found = 0, {uid: name for uid, name in there.items() if name in pods}
        self._given = (pods, looks + 1, found)
        return found

    def others(self, known: Collection[str]) -> dict[str, str | None]:
        """The pods of this host besides those that are known, 64 with these, as of a few looks ago."""
        self._looks += 1
        if self._looks >= _LOOKS_BETWEEN:
            self._there, self._looks = self._all(), 0
        room = max(0, _MOST_PODS - len(known))
        return {uid: "/".join(self._there[uid]) for uid in sorted(self._there.keys() - set(known))[:room]}

    def _list_folders(self, uids: frozenset[str]) -> dict[str, PodName]:
        return {uid: name for uid, name in self._all().items() if uid in uids}

    def _all(self) -> dict[str, PodName]:
        """The name of each uid in the folder; a uid with two names is left out."""
        found: dict[str, PodName] = {}
        doubtful: set[str] = set()
        try:
            entries = [folder.name for folder in self._path.iterdir()]
        except OSError:
            return {}
        for entry in entries:
            parts = entry.split("_")
            if len(parts) == _PARTS and is_name(parts[0]) and is_name(parts[1]):
                name = PodName(parts[0], parts[1])
                if found.setdefault(parts[2], name) != name:
                    doubtful.add(parts[2])
        return {uid: name for uid, name in found.items() if uid not in doubtful}
