"""The made host: folders that stand in for /proc, /sys, /run, /dev, /etc, /usr and /var, as the kernel would show them.

Only what changed is written again. Counters agree with each other: the host's CPU time, disk and network bytes and
those of control groups are the sums over all processes, also of those that have ended.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.lives import proc_files
from tests.lives.actors import UPTIME_SECONDS
from tests.lives.folder import BEGIN_UNIX, Folder
from tests.lives.gpus import Gpus
from tests.lives.packages import put_packages
from tests.lives.people import PeopleFiles
from tests.lives.proc_files import Kin
from tests.lives.standing_files import StandingFiles
from tests.lives.story import Life
from tests.lives.world import COUNTED, Member, Process, World
from tests.support.fakes.shells import LINES, PROMPT

_PROCESSORS = 8
_CARDS = ("ens5", "ens6")


class MadeHost:
    """One life's host. `pass_to` shows it at a moment; moments must not go back."""

    def __init__(self, life: Life, root: Path) -> None:
        """Everything that does not change is written."""
        self.life = life
        self.world = World(life)
        self.gpus = Gpus(life, self.world)
        self.at = Folder(root)
        self._standing = StandingFiles(life, self.at)
        self._sees_processes = life.agent.get("pids", "host") == "host"
        self._people = PeopleFiles(life, self.world, self.at)
        self._there: dict[int, tuple[Process, Kin, str]] = {}
        self._reaped: dict[int, float] = {}
        self._groups: dict[str, tuple[int, int, int, tuple[int, ...]]] = {}
        self._pids_of: dict[str, list[int]] = {}
        self._inodes: dict[tuple[str, int], int] = {}
        self._open_files: dict[int, tuple[int, ...]] = {}
        self.loopback_rows: list[
            tuple[str, str, int, int]
        ] = []  # local, peer, uid, inode: of the agent's own questions
        self._moment = 0.0
        self._standing.write()
        put_packages(life, self.at.root)
        self._standing.link_self(self.world)

    @property
    def agents_pid(self) -> int:
        """The agent's own process; in a PID namespace of its own the first one."""
        found = self.world.by_name.get("gpuwatch")
        return 1 if found is None or not self._sees_processes else self.world.pid(found, found.actor.begin)

    def pass_to(self, moment: float) -> None:
        """Show the host at a moment of its life."""
        self._moment = moment
        alive = {process.pid: process for process in self.world.alive(moment)}
        same = alive.keys() == self._there.keys()
        self._end_those_gone(alive)
        for process in alive.values() if self._sees_processes else ():
            if not same or process.member.rates:
                self._show(process, moment)
        totals = {member: self.world.total(member, moment) for member in self.world.members}
        self._sums(totals, moment, len(alive))
        if self._sees_processes:
            self._control_groups(alive, totals, same=same)
        self.sockets(alive, moment)
        self._people.show(moment)
        self._standing.show(moment)

    def _end_those_gone(self, alive: Mapping[int, Process]) -> None:
        """Their folders go, and what they used goes to the first of their ancestors who is still there to wait."""
        gone = {pid: each for pid, each in self._there.items() if pid not in alive}
        for pid, (process, kin, _) in gone.items():
            actor, heir = process.member.actor, kin.parent
            while heir in gone:
                heir = gone[heir][1].parent
            ended = actor.end if actor.length is None else process.begin + actor.length
            used = actor.cores.total(process.begin, ended) + self._reaped.pop(pid, 0.0)
            if heir in alive:
                self._reaped[heir] = self._reaped.get(heir, 0.0) + used
            del self._there[pid]
            self.at.drop(f"/proc/{pid}")
            self._open_files.pop(pid, None)

    def _show(self, process: Process, moment: float) -> None:
        """The folder of a process in /proc."""
        pid, folder = process.pid, f"/proc/{process.pid}"
        kin = self._kin(process, moment)
        known = self._there.get(pid)
        if known is None:
            self._born(process, folder)
        letter = proc_files.state_of(process, moment)
        used = self.world.present(process.member, moment)
        self.at.put(f"{folder}/stat", proc_files.stat(process, kin, used, self._reaped.get(pid, 0.0), moment))
        self.at.put(f"{folder}/io", proc_files.io(used))
        if process.member.actor.tty:
            self.at.put(f"{folder}/wchan", proc_files.wchan(process, kin))
        if known is None or known[1:] != (kin, letter):
            self.at.put(f"{folder}/status", proc_files.status(process, kin, moment))
        self._there[pid] = (process, kin, letter)

    def _born(self, process: Process, folder: str) -> None:
        """What of a process never changes."""
        actor, member = process.member.actor, process.member
        self.at.put(f"{folder}/comm", f"{actor.comm}\n")
        self.at.put(f"{folder}/cmdline", proc_files.cmdline(process))
        self.at.put(f"{folder}/cgroup", f"0::{member.cgroup}\n")
        self.at.put(f"{folder}/loginuid", f"{self._login_uid(process)}\n")
        self.at.put(f"{folder}/environ", b"")
        self.at.put(f"{folder}/mountinfo", self._standing.mountinfo)
        if actor.exe and actor.state != "Z":
            self.at.link(f"{folder}/exe", actor.exe)
            self.at.link(f"{folder}/root", self._root_of(process))
            self.at.link(f"{folder}/cwd", actor.cwd)
        for name, target in proc_files.namespaces(process).items():
            self.at.link(f"{folder}/ns/{name}", target)
        self.at.folder(f"{folder}/fd")
        if actor.place != "kernel" and actor.state != "Z":
            for number in range(3):
                self.at.link(f"{folder}/fd/{number}", f"/dev/{actor.tty}" if actor.tty else "/dev/null")
            for number in actor.gpus:
                self.at.link(f"{folder}/fd/{20 + number}", f"/dev/nvidia{number}")
        if not member.own_network:
            self.at.link(f"{folder}/net", "../net")
        self.at.folder(f"{folder}/task/{process.pid}")
        self.at.give(folder, member.uid)

    def _root_of(self, process: Process) -> str:
        """What it sees as the root: a container has files of its own."""
        name = process.member.actor.place.rpartition(" ")[2].replace("/", "_")
        return str(self.at.root / "containers" / name) if process.member.contained else "/"

    def _kin(self, process: Process, moment: float) -> Kin:
        member = process.member
        parent = self.world.parent(member, moment)
        parent_pid = self.world.reaper(member, moment) if parent is None else self._pid_of(parent, moment)
        session, group, up, tty = process.pid, process.pid, parent, member.actor.tty
        joined = True  # those between it and the shell that runs it
        while tty is not None and up is not None and up.actor.tty == tty:
            session = self._pid_of(up, moment)
            joined = joined and not up.actor.asks
            group = session if joined else group
            up = self.world.parent(up, moment)
        front = None if tty is None else self.world.in_front(member, moment)
        return Kin(parent_pid, session, group, -1 if front is None else self._pid_of(front, moment))

    def terminal_modes(self, tty: str) -> int:
        """The local modes of a terminal: a shell that edits lines at its prompt has taken them from the kernel."""
        there = self.world.on_terminal.get(tty, ())
        front = self.world.in_front(there[0], self._moment) if there else None
        edits = (
            front is not None and front.actor.asks and not front.actor.waits and not front.actor.exe.endswith("dash")
        )
        return PROMPT if edits else LINES

    def _pid_of(self, member: Member, moment: float) -> int:
        turn = self.world.turn(member, moment)
        return self.world.pid(member, moment if turn is None else turn[0])

    def _login_uid(self, process: Process) -> int:
        place = process.member.actor.place.partition(" ")[0]
        return process.member.uid if place in {"session", "user", "podman"} else 4294967295

    def _sums(self, totals: Mapping[Member, Mapping[str, float]], moment: float, alive: int) -> None:
        """The counters of the whole host."""
        uptime = UPTIME_SECONDS + moment
        sums = {name: sum(each[name] for each in totals.values()) for name in COUNTED}
        used = round(sums["cores"] * proc_files.TICKS)
        idle = max(0, round(uptime * _PROCESSORS * proc_files.TICKS) - used)
        one = f"{(used - used // 5) // _PROCESSORS} 0 {used // 5 // _PROCESSORS} {idle // _PROCESSORS} 0 0 0 0 0 0\n"
        each = "".join(f"cpu{number} {one}" for number in range(_PROCESSORS))
        about = f"intr 1\nctxt {100000 + round(uptime * 900)}\nbtime {BEGIN_UNIX - round(UPTIME_SECONDS)}\n"
        counts = f"processes {9000 + alive}\nprocs_running 1\nprocs_blocked 0\n"
        self.at.put("/proc/stat", f"cpu  {used - used // 5} 0 {used // 5} {idle} 0 0 0 0 0 0\n{each}{about}{counts}")
        self.at.put("/proc/uptime", f"{uptime:.2f} {idle / proc_files.TICKS:.2f}\n")
        load = sum(member.actor.cores.at(moment) for member in self.world.members if self.world.turn(member, moment))
        self.at.put("/proc/loadavg", f"{load:.2f} {load:.2f} {load:.2f} 1/{alive * 3} 99999\n")
        self.at.put("/proc/diskstats", self._standing.diskstats(round(sums["read"]), round(sums["write"])))
        cards = []
        for card in ("lo", *_CARDS, "docker0"):
            mine = [totals[member] for member in self.world.members if member.actor.card == card]
            got, sent = round(sum(each["net"] for each in mine)), round(sum(each["send"] for each in mine))
            cards.append((card, got, sent))
            if card in _CARDS:
                self.at.put(f"/sys/class/net/{card}/statistics/rx_bytes", f"{got}\n")
                self.at.put(f"/sys/class/net/{card}/statistics/tx_bytes", f"{sent}\n")
        self.at.put("/proc/net/dev", proc_files.cards_text(cards, self.life.udp.looped(moment)))

    def _control_groups(
        self, alive: Mapping[int, Process], totals: Mapping[Member, Mapping[str, float]], *, same: bool
    ) -> None:
        """The tree of cgroup v2: each group's counters hold those of all groups below it."""
        if not same or not self._pids_of:
            self._pids_of = {path: [] for process in alive.values() for path in ancestors(process.member.cgroup)}
            for pid, process in alive.items():
                self._pids_of[process.member.cgroup].append(pid)
            for path in sorted(self._groups.keys() - self._pids_of.keys(), reverse=True):
                self.at.drop(f"/sys/fs/cgroup{path}")
                del self._groups[path]
        sums = {path: [0.0, 0.0, 0.0] for path in self._pids_of}
        for member in self.world.members:
            if not member.rates:
                continue
            used = totals[member]
            for path in ancestors(member.cgroup):
                if path in sums:
                    mine = sums[path]
                    mine[0], mine[1], mine[2] = mine[0] + used["cores"], mine[1] + used["read"], mine[2] + used["write"]
        for path, pids in self._pids_of.items():
            usec, read, write = round(sums[path][0] * 1e6), round(sums[path][1]), round(sums[path][2])
            known = (usec, read, write, tuple(pids))
            if self._groups.get(path) == known:
                continue
            self._groups[path] = known
            folder = "/sys/fs/cgroup" + ("" if path == "/" else path)
            self.at.put(
                f"{folder}/cpu.stat", f"usage_usec {usec}\nuser_usec {usec - usec // 5}\nsystem_usec {usec // 5}\n"
            )
            disk = f"259:0 rbytes={read} wbytes={write} rios={read // 4096} wios={write // 4096} dbytes=0 dios=0\n"
            self.at.put(f"{folder}/io.stat", disk if read or write else "")
            if not same or known[3] == ():
                self.at.put(f"{folder}/cgroup.procs", "".join(f"{pid}\n" for pid in sorted(pids)))
                self.at.put(f"{folder}/pids.current", f"{len(pids)}\n")
                self.at.put(f"{folder}/cgroup.events", "populated 1\nfrozen 0\n")

    def sockets(self, alive: Mapping[int, Process] | None, moment: float) -> None:
        """The tables of TCP sockets, of the host's network and of each container's, and who holds them."""
        present = {process.pid: process for process in self.world.alive(moment)} if alive is None else alive
        host = ([proc_files.TCP_HEADER], [proc_files.TCP_HEADER])
        for local, peer, uid, inode in self.loopback_rows:
            host[0].append(proc_files.tcp_row(900 + inode % 97, local, peer, uid, inode))
        nets: dict[int, tuple[list[str], list[str]]] = {}
        for pid, process in present.items():
            member = process.member
            fresh = ([proc_files.TCP_HEADER], [proc_files.TCP_HEADER])
            tables = nets.setdefault(member.namespace, fresh) if member.own_network else host
            if member.actor.sockets:
                self._hold(pid, process, tables, moment)
        self.at.put("/proc/net/tcp", "".join(host[0]))
        self.at.put("/proc/net/tcp6", "".join(host[1]))
        for pid, process in present.items() if self._sees_processes else ():
            if process.member.own_network:
                own = nets[process.member.namespace]
                self.at.put(f"/proc/{pid}/net/tcp", "".join(own[0]))
                self.at.put(f"/proc/{pid}/net/tcp6", "".join(own[1]))
                self.at.put(f"/proc/{pid}/net/fib_trie", self._routes(process.member))
                self.at.put(f"/proc/{pid}/net/dev", self._container_cards(process.member.namespace, moment))

    def _routes(self, member: Member) -> str:
        """/proc/PID/net/fib_trie: Docker counts its addresses from 172.17.0.2 on."""
        spaces = sorted({each.namespace for each in self.world.members if each.own_network})
        address = f"172.17.0.{2 + spaces.index(member.namespace)}"
        return (
            f"Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 172.17.0.0\n        /16 link UNICAST\n"
            f"Local:\n     |-- {address}\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
        )

    def _container_cards(self, namespace: int, moment: float) -> str:
        """/proc/PID/net/dev of a network of its own."""
        inside = [each for each in self.world.members if each.own_network and each.namespace == namespace]
        totals = [self.world.total(each, moment) for each in inside]
        got, sent = round(sum(each["net"] for each in totals)), round(sum(each["send"] for each in totals))
        return proc_files.cards_text([("lo", 0, 0), ("eth0", got, sent)])

    def inode(self, member: Member, number: int) -> int:
        """The inode of a process's socket."""
        return self._inodes.setdefault((member.actor.name, number), 20000 + len(self._inodes))

    def group_id(self, path: str) -> int:
        """The id of a control group: the inode of its folder; 0 where it is not shown."""
        folder = self.at.root / f"sys/fs/cgroup{path}"
        return folder.stat().st_ino if folder.exists() else 0

    def _hold(self, pid: int, process: Process, tables: tuple[list[str], list[str]], moment: float) -> None:
        """A process's own sockets: rows in the tables of its network, and links among its open files."""
        member, inodes = process.member, []
        for number, socket in enumerate(member.actor.sockets):
            if socket.open_at(moment):
                inode = self.inode(member, number)
                inodes.append(inode)
                rows = tables[socket.local.startswith("[")] if not socket.udp else []
                rows.append(proc_files.tcp_row(len(rows) - 1, socket.local, socket.peer, member.uid, inode))
        shown = self._sees_processes and member.actor.place != "kernel"
        if shown and self._open_files.get(pid) != tuple(inodes):
            for number in range(len(self._open_files.get(pid, ()))):
                self.at.drop(f"/proc/{pid}/fd/{3 + number}")
            for number, inode in enumerate(inodes):
                self.at.link(f"/proc/{pid}/fd/{3 + number}", f"socket:[{inode}]")
            self._open_files[pid] = tuple(inodes)


@cache
def ancestors(path: str) -> tuple[str, ...]:
    """A control group and all above it, the root last."""
    found = [path]
    while found[-1] != "/":
        found.append(found[-1].rpartition("/")[0] or "/")
    return tuple(found)
