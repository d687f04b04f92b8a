"""Hosts for tests: folders that stand in for /proc, /run, /dev and /sys, and a clock to look by."""

import os
import struct
import sys
from collections.abc import Collection
from ipaddress import IPv4Address
from pathlib import Path
from shutil import rmtree

from gpuwatch.agent.evidence.base import HostSignal, Moment, Roots
from gpuwatch.agent.evidence.watcher import HostWatcher, Watched
from gpuwatch.model.activity import Evidence
from gpuwatch.runtime.clock import ManualClock

BOOT = "b3a216a2-24a4-4846-9f57-e07517c84600"
DEAD_PID = 1 << 23  # beyond what a kernel gives out

# struct utmp of <bits/types/struct_utmp.h>, as the C compiler lays it out.
_WORDS = "iii" if os.uname().machine in {"x86_64", "ppc64le", "s390x"} else "lqq"
_UTMP = f"hi32s4s32s256shh{_WORDS}4i20s"


def utmp_record(user: str, line: str, *, kind: int = 7, pid: int = DEAD_PID, at: float = 0.0) -> bytes:
    """What login(1) writes of a session, at that Unix time."""
    words = (kind, pid, line.encode(), b"x", user.encode(), b"10.0.0.9", 0, 0, 0, int(at), 0, 0, 0, 0, 0, b"")
    record = struct.pack(_UTMP, *words)
    return record + b"\0" * (-len(record) % 8)


class FolderHost:
    """A host made of folders, on which nothing happens yet. Its PIDs are those of a real host, not of a container."""

    def __init__(self, root: Path) -> None:
        """Make the folders."""
        self.root = root
        self.clock = ManualClock()
        self.clock.advance(1000.0)
        parts = {name: root / name for name in ("proc", "run", "dev", "sys", "etc", "var", "usr")}
        self.roots = Roots(**parts, homes=(root / "home",))
        self.namespace("pid:[4026531836]")
        self.write("proc/sys/kernel/random/boot_id", f"{BOOT}\n")
        self.write("proc/uptime", "5000.00 9000.00\n")
        self.write("proc/1/comm", "systemd\n")
        self.write("proc/stat", "cpu  0 0 0 0 0 0 0 0 0 0\n")
        self.write("proc/diskstats", "")
        self.write("proc/net/dev", "")
        for table in ("tcp", "tcp6"):  # what listens and is connected in tests is real
            (root / "proc/net" / table).symlink_to(f"/proc/net/{table}")
        for folder in ("run/systemd/sessions", "run/systemd/inhibit", "dev/pts", "sys/block", "sys/class/net", "home"):
            (root / folder).mkdir(parents=True)
        self.login_written()

    def write(self, name: str, text: str | bytes) -> Path:
        """A file of this host."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        if path.parent.name in {"sessions", "users"}:
            self.login_written()
        return path

    def login_written(self, ago_seconds: float | None = None) -> None:
        """When logind last wrote of a login, by the stamps of its folders; None: in the first minute, of none."""
        ago = self.clock.monotonic() - 50.0 if ago_seconds is None else ago_seconds
        stamp = self.clock.now().timestamp() - ago
        for name in ("sessions", "users"):
            folder = self.root / "run/systemd" / name
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder, (stamp, stamp))

    def namespace(self, name: str) -> None:
        """Which PID namespace the agent is in."""
        link = self.root / "proc/self/ns/pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def hide_processes(self) -> None:
        """Those of others are not to be seen any more, as with hidepid=2 on /proc or ProtectProc=invisible."""
        for folder in (self.root / "proc").iterdir():
            if folder.name.isdecimal():
                rmtree(folder)

    def terminal(self, name: str, *, silent_seconds: float) -> Path:
        """A terminal whose last input is so long ago."""
        path = self.write(f"dev/{name}", "")
        stamp = self.clock.now().timestamp() - silent_seconds
        os.utime(path, (stamp, stamp))
        return path

    def sockets(self, *rows: tuple[str, str, str, int], net: str = "proc/net") -> None:
        """These TCP sockets in `net`, and no real ones: both ends ("10.0.0.5:22"), LISTEN or not, and inode."""

        def end(text: str) -> str:
            address, _, port = text.partition(":")
            return f"{int.from_bytes(IPv4Address(address).packed, sys.byteorder):08X}:{int(port):04X}"

        lines = [
            f"{number:4}: {end(local)} {end(remote)} {'0A' if state == 'LISTEN' else '01'} 0:0 00:0 0 0 0 {inode} 1\n"
            for number, (local, remote, state, inode) in enumerate(rows)
        ]
        for table, text in (("tcp", "".join(lines)), ("tcp6", "")):
            (self.root / net / table).unlink(missing_ok=True)
            self.write(f"{net}/{table}", f"  sl  local_address rem_address   st\n{text}")

    def process(self, pid: int, *, cpu_seconds: float = 0.0, started_seconds: float = 100.0, name: str = "x") -> None:
        """A process in /proc; its CPU time is half user, half system."""
        ticks = os.sysconf("SC_CLK_TCK")
        half = round(cpu_seconds * ticks / 2)
        before, after = " ".join(["0"] * 10), " ".join(["0"] * 6)
        stat = f"{pid} ({name}) S {before} {half} {half} {after} {round(started_seconds * ticks)} 0 0\n"
        self.write(f"proc/{pid}/stat", stat)

    def pass_time(self, seconds: float) -> None:
        """On all clocks of the host."""
        self.clock.advance(seconds)
        self.write("proc/uptime", f"{4000.0 + self.clock.monotonic():.2f} 9000.00\n")

    def moment(self, gpu_pids: Collection[int] | None = None) -> Moment:
        """Now."""
        pids = None if gpu_pids is None else frozenset(gpu_pids)
        return Moment(at=self.clock.now(), monotonic_seconds=self.clock.monotonic(), gpu_pids=pids)

    def told(self, signal: HostSignal, gpu_pids: Collection[int] | None = None) -> tuple[Evidence, ...]:
        """What the agent makes of a look at a signal now, failures included."""
        watched = Watched(signal=signal, interval_seconds=10.0)
        pids = None if gpu_pids is None else frozenset(gpu_pids)
        watcher = HostWatcher([watched], self.clock, deadline_seconds=5.0, gpu_pids=lambda: pids)
        watcher.look_once(watched)
        return watcher.evidence(self.clock.monotonic())

    def tells(self, signal: HostSignal, gpu_pids: Collection[int] | None = None) -> Evidence:
        """Its one finding."""
        (entry,) = self.told(signal, gpu_pids)
        return entry
