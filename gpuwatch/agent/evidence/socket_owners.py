"""The owner of a connection: by the process that holds it, else by its control group, else by its user.

An agent without rights may not look into others' file descriptors; the kernel still says which control group and user
made a connection. What cannot be attributed is people's.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.agent.evidence.files import ENDED, read_small
from gpuwatch.agent.evidence.sock_diag import Sock
from gpuwatch.agent.processes.kinds import PACKAGED, is_there_to_be_read, lets_people_in
from gpuwatch.agent.processes.pool import COMMON
from gpuwatch.agent.processes.process import Kind, Process, ProcessView

_MOST_PROCESSES = 1 << 13
_MOST_FILES = 1 << 17  # of all processes together; listing them takes a tenth of a second
_KEPT_SECONDS = 60.0  # a program may hand a connection to another one
# Servers in the kernel: the port that they listen on, and how the names of their threads begin. No process holds their
# connections. iscsi_np: drivers/target/iscsi; nvmet: drivers/nvme/target/tcp.c; ksmbd: fs/smb/server.
KERNEL_SERVERS = {2049: ("nfsd",), 445: ("ksmbd",), 3260: ("iscsi_np",), 4420: ("nvmet", "kworker/R-nvmet")}
_DEAD = frozenset({"Z", "X"})
_GROUP_FOLDERS = ("fs/cgroup", "fs/cgroup/unified")  # the second one beside version 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """The owner of a connection, and the processes that may hold it: one if `seen`, none where nothing is known."""

    kind: Kind
    processes: tuple[Process, ...] = ()
    seen: bool = False

    @property
    def is_packaged(self) -> bool:
        """Whether a package brought it, or its pool has it: who asks for it decides."""
        return any(process.rule == PACKAGED or process.rule.startswith(COMMON) for process in self.processes)

    @property
    def is_door(self) -> bool:
        """Whether people log in by it."""
        return any(lets_people_in((process.name,)) for process in self.processes)

    @property
    def is_page(self) -> bool:
        """Whether it is there to be read by monitoring."""
        return any(
            is_there_to_be_read((process.name, process.executable or ""), process.placement.systemd_unit)
            for process in self.processes
        )

    @property
    def unit(self) -> str | None:
        """The unit of the first process."""
        return self.processes[0].placement.systemd_unit if self.processes else None


_UNKNOWN = Holders(kind=Kind.PEOPLE)


@dataclass(slots=True)
class _Walk:
    """What the processes' file descriptors show: the holders of a socket, and processes that could not be read."""

    holders: dict[int, list[Process]] = field(default_factory=dict)
    blind: list[Process] = field(default_factory=list)
    files: int = 0


class SocketOwners:
    """Keeps what it found out for a minute."""

    def __init__(self, roots: Roots) -> None:
        """Nothing is known yet."""
        self._roots = roots
        self._kept: dict[int, tuple[float, Holders]] = {}  # by inode

    def whose(self, connections: Collection[Sock], view: ProcessView | None, at: float) -> Mapping[int, Holders]:
        """The holders of each connection, by cookie; the agent's own are left out."""
        own = self._own()
        theirs = {each.cookie: each for each in connections if each.inode not in own}
        if view is None:
            return dict.fromkeys(theirs, _UNKNOWN)
        there = {each.inode for each in theirs.values()}
        self._kept = {
            inode: (since, kept)
            for inode, (since, kept) in self._kept.items()
            if inode in there and at - since < _KEPT_SECONDS and _alive(kept, view)
        }
        new = [each for each in theirs.values() if each.inode not in self._kept]
        found = self._find_holders(new, view) if new else {}
        # A guess rests on who was there at the last look at the processes: it is made anew each time.
        self._kept |= {theirs[cookie].inode: (at, holders) for cookie, holders in found.items() if holders.seen}
        return {
            cookie: found[cookie] if cookie in found else self._kept[each.inode][1] for cookie, each in theirs.items()
        }

    def _own(self) -> frozenset[int]:
        walk = _Walk()
        with suppress(OSError):
            self._look_into(f"{self._roots.proc}/self/fd", None, None, walk)
        return frozenset(walk.holders)

    def _find_holders(self, connections: list[Sock], view: ProcessView) -> dict[int, Holders]:
        processes = [each for each in view.processes.values() if each.state not in _DEAD][:_MOST_PROCESSES]
        walk = self._walk({each.inode for each in connections}, processes)
        groups = None
        found: dict[int, Holders] = {}
        for each in connections:
            seen = walk.holders.get(each.inode)
            if seen:
                found[each.cookie] = _judge_holders(seen)
            elif view.doubt is not None:
                found[each.cookie] = _UNKNOWN
            else:
                groups = self._groups(processes) if groups is None else groups
                found[each.cookie] = _guess_holders(each, groups.get(each.cgroup or 0, ()), walk.blind)
        return found

    def _walk(self, inodes: set[int], processes: Iterable[Process]) -> _Walk:
        """People's processes first: what one of them holds is people's, also if others hold it.

        The first process last: it keeps the sockets that it opened for services.
        """
        walk, missing = _Walk(), set(inodes)
        for each in sorted(processes, key=lambda each: (each.kind is not Kind.PEOPLE, each.pid == 1, each.pid)):
            if each.kind is Kind.KERNEL:
                continue
            if each.kind is not Kind.PEOPLE and not missing:
                break
            try:
                self._look_into(f"{self._roots.proc}/{each.pid}/fd", each, inodes, walk)
            except ENDED:
                continue
            except OSError:
                walk.blind.append(each)
            missing -= walk.holders.keys()
        return walk

    def _look_into(self, folder: str, process: Process | None, inodes: set[int] | None, walk: _Walk) -> None:
        """Note the sockets among a process's file descriptors."""
        for name in os.listdir(folder):  # noqa: PTH208  thousands of times
            walk.files += 1
            if walk.files > _MOST_FILES:
                raise PermissionError  # as good as not allowed to look
            try:
                target = os.readlink(f"{folder}/{name}")  # noqa: PTH115  likewise
            except ENDED:
                continue
            if target.startswith("socket:["):
                inode = int(target[8:-1])
                if inodes is None or inode in inodes:
                    walk.holders.setdefault(inode, []).extend([process] if process else ())

    def _groups(self, processes: Iterable[Process]) -> dict[int, list[Process]]:
        """The processes of each control group, by the id that the kernel gives it: its folder's number."""
        by_path: dict[str, list[Process]] = {}
        for each in processes:
            with suppress(OSError, ValueError):
                text = read_small(Path(f"{self._roots.proc}/{each.pid}/cgroup")).text
                path = next((line[3:] for line in text.splitlines() if line.startswith("0::/")), "/")
                if path.startswith("/.."):
                    continue  # outside of the agent's own cgroup namespace: its folder is not to be seen
                by_path.setdefault(path, []).append(each)
        groups: dict[int, list[Process]] = {}
        for path, members in by_path.items():
            for folder in _GROUP_FOLDERS:
                with suppress(OSError):
                    number = os.stat(f"{self._roots.sys}/{folder}{path}").st_ino  # noqa: PTH116  for each group of a host
                    groups.setdefault(number, []).extend(members)
        return groups


def ports_of(listeners: Iterable[Sock], holders: Mapping[int, Holders]) -> Mapping[tuple[int, int], frozenset[int]]:
    """The ports of each process that may hold one of the listeners, by pid and start."""
    found: dict[tuple[int, int], set[int]] = {}
    for each in listeners:
        for process in holders[each.cookie].processes if each.cookie in holders else ():
            found.setdefault((process.pid, process.started_ticks), set()).add(each.local[1])
    return {key: frozenset(ports) for key, ports in found.items()}


def kernel_server(port: int, view: ProcessView | None) -> Process | None:
    """A thread of the kernel's server of a port; None: it does not run."""
    names = KERNEL_SERVERS.get(port)
    if names is None or view is None:
        return None
    threads = (each for each in view.processes.values() if each.kind is Kind.KERNEL and each.name.startswith(names))
    return next(threads, None)


def _judge_holders(holders: list[Process]) -> Holders:
    """Of processes that hold a connection: people's, if it is one of them."""
    people = [each for each in holders if each.kind is Kind.PEOPLE]
    return Holders(kind=(people or holders)[0].kind, processes=tuple((people or holders)[:1]), seen=True)


def _guess_holders(connection: Sock, group: Collection[Process], blind: Collection[Process]) -> Holders:
    """Of a connection that no process seems to hold: the kernel's own, or of a process that may not be looked into."""
    candidates = group or [each for each in blind if each.uid == connection.uid]
    people = [each for each in candidates if each.kind is Kind.PEOPLE]
    if people:
        same = [each for each in people if each.uid == connection.uid]
        return Holders(kind=Kind.PEOPLE, processes=tuple(same or people))
    if not candidates:
        return _UNKNOWN
    if all(each.kind is Kind.KERNEL for each in candidates):
        return Holders(kind=Kind.KERNEL, seen=True)  # no process will ever hold it
    return Holders(kind=next(iter(candidates)).kind, processes=tuple(candidates))


def _alive(holders: Holders, view: ProcessView) -> bool:
    """Whether those processes still run."""
    return all(
        (now := view.processes.get(each.pid)) is not None and now.started_ticks == each.started_ticks
        for each in holders.processes
    )
