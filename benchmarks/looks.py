"""Looks of an agent at a large host, and a count of what a fleet's machines run.

The host is made: 5,000 processes, four in ten of them in 200 containers, and 1,000 connections of other machines. Its
files lie in memory, so the kernel's own work for the files of /proc is missing. The floor reads the same files and
makes nothing of them. What the looks keep in memory is measured in a process of its own, with a full week of days.
"""

import gc
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.processes import memory_bytes
from gpuwatch.agent.activity.days import KEPT_DAYS, MOST_PROGRAMS, DayOf, Habit, Week
from gpuwatch.agent.evidence.base import Moment, Roots
from gpuwatch.agent.evidence.connections import Connections
from gpuwatch.agent.evidence.settings import ConnectionSettings, WorkSettings
from gpuwatch.agent.evidence.work import Processes
from gpuwatch.controller.observe.pool_census import CensusTaker
from gpuwatch.model.fleet import NodeReport
from gpuwatch.model.pool_programs import HostPrograms, key_of, salt_of
from tests.support.builders.fleet import a_node, a_verdict
from tests.support.fakes.host import FolderHost
from tests.support.fakes.proc_files import put_process
from tests.support.fakes.shells import MadeShells

_PROCESSES, _CONTAINERS, _UNITS, _CONNECTIONS = 5_000, 200, 40, 1_000
_MACHINES, _SERVICES = 12_500, 27
_RUNS = 5
_SETTLED = 3  # looks after which rates are known
_FILES = ("stat", "status", "cgroup", "cmdline")


def measure() -> Iterator[Figure]:
    """A first look, a later one, one at the connections, and a census."""
    memory = Path("/dev/shm")  # noqa: S108  a made host is many small files
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        host = FolderHost(Path(folder))
        _populate(host)
        gc.collect()
        gc.freeze()  # as the agent does before its first look: no collection looks at what is there
        first, later, asked = [], [], []
        for _ in range(_RUNS):
            looks = Processes(WorkSettings(), host.roots, shells=MadeShells())
            connections = Connections(ConnectionSettings(), host.roots)
            first.append(_cpu(lambda signal=looks: signal.find_evidence(_moment(host))))  # type: ignore[misc]
            for _ in range(_SETTLED):
                looks.find_evidence(_moment(host))
            later.append(_cpu(lambda signal=looks: signal.find_evidence(_moment(host))))  # type: ignore[misc]
            seen = replace(_moment(host), processes=looks.table.view)
            connections.find_evidence(seen)
            seen = replace(_moment(host), processes=looks.table.view)
            asked.append(_cpu(lambda at=seen, signal=connections: signal.find_evidence(at)))  # type: ignore[misc]
        read, stats, table = (
            [_cpu(lambda names=names: _read(host.roots.proc, names)) for _ in range(_RUNS)]  # type: ignore[misc]
            for names in (_FILES, _FILES[:1], ())
        )
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            kept = [fresh.apply(_kept_mib, (host.roots, _moment(host)))]
        gc.unfreeze()
    name = f"{_PROCESSES:,} processes, {_CONTAINERS} containers"
    yield Figure(
        name=f"first look, {name}", unit="s of CPU", runs=first, floor="its files read", floor_runs=read, at_most=0.3
    )
    yield Figure(name=f"later look, {name}", unit="s of CPU", runs=later, floor="stat read", floor_runs=stats)
    yield Figure(
        name=f"look at {_CONNECTIONS:,} connections", unit="s of CPU", runs=asked, floor="table read", floor_runs=table
    )
    yield Figure(name=f"memory of them, {MOST_PROGRAMS} programs of {KEPT_DAYS} days", unit="MiB", runs=kept)
    yield _census()


def _kept_mib(roots: Roots, begin: Moment) -> float:
    """By how much this process grows with three looks at processes and connections, and a full week."""
    before = memory_bytes([os.getpid()])
    today = int(begin.at.timestamp() // 86400.0)
    days = range(today - KEPT_DAYS, today)
    habits = {
        f"0 unit{number}.service daemon{number} {number:08x}": Habit(
            days=tuple(DayOf(day, 96, 90.0 + day, 0.1, 1e3) for day in days)
        )
        for number in range(MOST_PROGRAMS)
    }
    looks = Processes(WorkSettings(), roots, shells=MadeShells())
    connections = Connections(ConnectionSettings(), roots)
    looks.habits.week = Week(watched=dict.fromkeys(days, 86400.0), habits=habits)
    for look in range(_SETTLED):
        at = replace(begin, monotonic_seconds=begin.monotonic_seconds + 10.0 * look)
        looks.find_evidence(at)
        connections.find_evidence(replace(at, processes=looks.table.view))
    gc.collect()
    return (memory_bytes([os.getpid()]) - before) / 1024**2


def _moment(host: FolderHost) -> Moment:
    host.pass_time(10.0)
    return replace(host.moment(), gpu_pids=frozenset())


def _cpu(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _populate(host: FolderHost) -> None:
    """Of ten processes two in docker, two in pods, three in units, two in logins, and one of the kernel."""
    host.write("proc/uptime", "500000.00 1.0\n")
    for number in range(_PROCESSES):
        pid, kind = 1_000 + number, number % 10
        group, name, uid, flags = "/", f"kworker/{number}", 0, 0x00200040
        if kind < 4:
            mark = sha256(str(number % _CONTAINERS).encode()).hexdigest()
            pod = f"kubepods-pod{number % 100:08d}_1111_2222_3333_444444444444.slice/cri-containerd-{mark}.scope"
            group = f"/system.slice/docker-{mark}.scope" if kind < 2 else f"/kubepods.slice/{pod}"
            name, flags = ("python3", "java")[kind % 2], 0x400000
        elif kind < 7:
            name, flags = f"daemon{number % _UNITS}", 0x400000
            group = f"/system.slice/{name}.service"
        elif kind < 9:
            name, uid, flags, group = "bash", 1001, 0x400000, f"/user.slice/user-1001.slice/session-{number % 20}.scope"
        kernel = kind == 9
        put_process(
            host.roots.proc, pid, name, cgroup=group, uid=uid, flags=flags, parent=2 if kernel else 1,
            executable="" if kernel else f"/usr/bin/{name}", arguments=(f"/usr/bin/{name}",),
        )  # fmt: skip
        (host.roots.proc / f"{pid}/fd").mkdir()
    here, there = "10.0.0.5:8000", "10.0.1.{}:{}"
    rows = [
        (here, there.format(number % 250, 40_000 + number), "ESTABLISHED", 50_000 + number)
        for number in range(_CONNECTIONS)
    ]
    host.sockets(("0.0.0.0:8000", "0.0.0.0:0", "LISTEN", 49_999), *rows)
    for number in range(_CONNECTIONS + 1):
        server = 1_004 + 10 * (number % _UNITS)  # of a unit
        (host.roots.proc / f"{server}/fd/{number}").symlink_to(f"socket:[{49_999 + number}]")


def _read(proc: Path, names: tuple[str, ...]) -> None:
    """Read files of each process, or the table of connections, by the cheapest way that Python has."""
    paths = [f"{proc}/{pid}/{name}" for pid in os.listdir(proc) if pid.isdecimal() for name in names]  # noqa: PTH208
    for path in paths or [f"{proc}/net/tcp"]:
        try:
            opened = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        os.read(opened, 1 << 16 if names else 1 << 20)  # a larger buffer costs more than the file
        os.close(opened)


def _census() -> Figure:
    """A round of the controller that counts what all machines run, and one that does not."""
    salt = salt_of("default")
    handed = HostPrograms(
        lasting="".join(key_of(salt, f"unit{number} /usr/sbin/unit{number}") for number in range(_SERVICES)),
        ports=(22, 9100, 9400, 9460),
    )
    nodes = [a_node(f"i-{number:05d}") for number in range(_MACHINES)]
    plain = NodeReport(verdict=a_verdict())
    telling = NodeReport(verdict=replace(a_verdict(), programs=handed))
    counting, others = [], []
    for _ in range(_RUNS):
        taker = CensusTaker("default")
        counting.append(_cpu(lambda: _round(taker, nodes, telling, 0.0)))  # noqa: B023  called at once
        others.append(_cpu(lambda: _round(taker, nodes, plain, 60.0)))  # noqa: B023
    name = f"census of {_MACHINES:,} machines, {_SERVICES} services each"
    return Figure(name=name, unit="s of CPU", runs=counting, floor="a round without", floor_runs=others)


def _round(taker: CensusTaker, nodes: list, report: NodeReport, at: float) -> None:  # type: ignore[type-arg]
    taker.begin_round(nodes, at)
    for node in nodes:
        taker.query(node)
        taker.take(node, report, confirms=False)
    taker.end_round(at)
