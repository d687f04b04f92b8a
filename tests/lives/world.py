"""Who is alive at a moment of a life, as which process, and what each has used up to then. No files.

Everything that is counted is counted once: the host's totals are sums over the cast, those who have ended included.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.lives.actors import UPTIME_SECONDS, Actor
from tests.lives.rates import LifeError, Rate
from tests.lives.story import Life

COUNTED = ("cores", "read", "write", "rchar", "wchar", "faults", "net", "send")
_NOTHING = dict.fromkeys(COUNTED, 0.0)
_PERIODIC_PIDS = 100_000
_PIDS_OF_ONE = 3_000
HOST_PIDS = "pid:[4026531836]"
HOST_NETWORK = "net:[4026531840]"


def hexadecimal(name: str, length: int = 64) -> str:
    """An id that looks like a container's, the same for the same name."""
    return hashlib.sha256(name.encode()).hexdigest()[:length]


def pod_uid(name: str) -> str:
    """A pod's uid by its namespace and name."""
    raw = hexadecimal(f"pod {name}", 32)
    return "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))


def cgroup_of(actor: Actor, users: dict[str, int]) -> str:
    """The control group of a process, from the words that a life uses for it."""
    kind, _, name = actor.place.partition(" ")
    if kind == "session" and " of " in name:
        number, _, owner = name.partition(" of ")
        return f"/user.slice/user-{users[owner]}.slice/session-{number}.scope"
    uid = users[actor.user]
    manager = f"/user.slice/user-{uid}.slice/user@{uid}.service"
    match kind:
        case "kernel":
            return "/"
        case "session":
            return f"/user.slice/user-{uid}.slice/session-{name}.scope"
        case "user":
            return f"{manager}/{name}"
        case "unit":
            return f"/system.slice/{name}"
        case "docker":
            return f"/system.slice/docker-{hexadecimal(name)}.scope"
        case "podman":
            return f"{manager}/user.slice/libpod-{hexadecimal(name)}.scope/container"
        case "pod":
            pod = pod_uid("/".join(name.split("/")[:2])).replace("-", "_")
            inner = f"cri-containerd-{hexadecimal(name)}.scope"
            return f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{pod}.slice/{inner}"
        case "slurm":
            return f"/system.slice/slurmstepd.scope/job_{name}/step_batch/user/task_0"
    if actor.place.startswith("/"):
        return actor.place
    raise LifeError(f"{actor.name}: in: {actor.place!r} is no place; see README.md")


@dataclass(slots=True, eq=False)
class Member:
    """An actor in this world, and the sums of its turns that are over (for those who come again and again)."""

    actor: Actor
    number: int
    uid: int
    cgroup: str
    rates: tuple[tuple[str, Rate], ...] = ()  # of what it uses at all
    turns: int = 0  # those that are summed up
    done: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0.0))

    @property
    def contained(self) -> bool:
        """Whether it has namespaces of its own."""
        return self.actor.place.partition(" ")[0] in {"docker", "pod", "podman"}

    @property
    def own_network(self) -> bool:
        """Whether it has a network of its own."""
        return self.contained if self.actor.own_network is None else self.actor.own_network

    @property
    def namespace(self) -> int:
        """A number for its namespaces; that of a pod's network is shared."""
        name = self.actor.place
        if name.startswith("pod "):
            name = "/".join(name.split("/")[:2])
        return 4026532000 + int(hexadecimal(name, 3), 16)


@dataclass(frozen=True, slots=True)
class Process:
    """One process that is alive: its member, its pid, and when it began."""

    member: Member
    pid: int
    begin: float


class World:
    """The cast of one life over time; moments must not go back."""

    def __init__(self, life: Life) -> None:
        """Give everybody a pid, in the order in which they come."""
        self.life = life
        users = dict(life.users)
        self.members: list[Member] = []
        self.by_name: dict[str, Member] = {}
        self._pids: dict[str, int] = {}
        self.on_terminal: dict[str, list[Member]] = {}  # of the host's own; a container has others
        pid, thread = 300, 3
        for number, actor in enumerate(sorted(life.cast, key=lambda each: each.begin)):
            if actor.user not in users:
                raise LifeError(f"{actor.name}: there is no user {actor.user}; name its number in `users`")
            uses = tuple((name, getattr(actor, name)) for name in COUNTED if getattr(actor, name))
            cgroup = cgroup_of(actor, users)
            member = Member(actor=actor, number=number, uid=users[actor.user], cgroup=cgroup, rates=uses)
            self.members.append(member)
            if actor.tty is not None and not member.contained:
                self.on_terminal.setdefault(actor.tty, []).append(member)
            if actor.name in self.by_name and (actor.begin > -UPTIME_SECONDS / 2):
                raise LifeError(f"two processes are called {actor.name}; give one another name with `as`")
            self.by_name.setdefault(actor.name, member)
            if actor.pid is not None:
                self._pids[f"{number}"] = actor.pid
            elif actor.place == "kernel":
                self._pids[f"{number}"], thread = thread, thread + 1
            else:
                self._pids[f"{number}"], pid = pid, pid + 7
        for member in self.members:
            if member.actor.parent is not None and member.actor.parent not in self.by_name:
                raise LifeError(f"{member.actor.name}: its parent {member.actor.parent!r} is nobody")

    def turn(self, member: Member, moment: float) -> tuple[float, float] | None:
        """Begin and end of the turn of a member that is alive then; None: it is not there."""
        actor = member.actor
        if not actor.begin <= moment < actor.end:
            return None
        if actor.every is None or actor.length is None:
            return actor.begin, actor.end
        begin = actor.begin + (moment - actor.begin) // actor.every * actor.every
        return (begin, begin + actor.length) if moment < begin + actor.length else None

    def pid(self, member: Member, begin: float) -> int:
        """The pid of a member in the turn that began then."""
        actor = member.actor
        if actor.every is None:
            return self._pids[f"{member.number}"]
        return _PERIODIC_PIDS + member.number * _PIDS_OF_ONE + int((begin - actor.begin) / actor.every)

    def alive(self, moment: float) -> Iterator[Process]:
        """Everybody who is there."""
        for member in self.members:
            turn = self.turn(member, moment)
            if turn is not None:
                yield Process(member, self.pid(member, turn[0]), turn[0])

    def present(self, member: Member, moment: float) -> dict[str, float]:
        """What the process of the present turn has used; nothing without one."""
        turn = self.turn(member, moment)
        if turn is None or not member.rates:
            return _NOTHING
        return self._spent(member, turn[0], moment)

    def total(self, member: Member, moment: float) -> dict[str, float]:
        """What all its processes have used up to a moment."""
        actor = member.actor
        if moment < actor.begin or not member.rates:
            return _NOTHING
        if actor.every is None or actor.length is None:
            return self._spent(member, actor.begin, min(moment, actor.end))
        over = int((min(moment, actor.end) - actor.begin - actor.length) // actor.every) + 1
        while member.turns < over:
            begin = actor.begin + member.turns * actor.every
            for name, value in self._spent(member, begin, begin + actor.length).items():
                member.done[name] += value
            member.turns += 1
        now = self.present(member, moment)
        return {name: member.done[name] + now[name] for name in COUNTED}

    def parent(self, member: Member, moment: float) -> Member | None:
        """Its living parent; None: its first one has ended, or it is the init process's."""
        actor = member.actor
        name = actor.parent or self._born_of(actor)
        found = self.by_name.get(name) if name is not None else None
        return found if found is not None and self.turn(found, moment) is not None else None

    def in_front(self, member: Member, moment: float) -> Member | None:
        """Who has the foreground of its terminal: the newest that a shell there began, else its first one."""
        same = [member] if member.contained else self.on_terminal[member.actor.tty or ""]
        there = [each for each in same if self.turn(each, moment) is not None]
        jobs = [
            each
            for each in there
            if each.actor.state != "T"
            and any(above.actor.asks for above in there if above is self.parent(each, moment))
        ]
        first = next((each for each in there if self.parent(each, moment) not in there), None)
        return max(jobs, key=lambda each: (each.actor.begin, -each.number), default=first)

    def reaper(self, member: Member, moment: float) -> int:
        """Who takes an orphan: the user's manager below it, else the first process."""
        if "/user@" in member.cgroup:
            manager = self.by_name.get(f"user@ {member.actor.user}")
            if manager is not None and manager is not member and self.turn(manager, moment) is not None:
                return self._pids[f"{manager.number}"]
        return 2 if member.actor.place == "kernel" and member.actor.pid != 2 else 0 if member.actor.pid in {1, 2} else 1

    def _born_of(self, actor: Actor) -> str | None:
        """Who starts it where a life does not say."""
        kind, _, name = actor.place.partition(" ")
        if kind in {"docker", "pod"}:
            return f"shim {name}"
        if kind == "session":
            shells = [login for login in self.life.logins if str(login.id) == name]
            return f"{shells[0].shell}{name}" if shells and shells[0].shell else None
        return None

    @staticmethod
    def _spent(member: Member, begin: float, end: float) -> dict[str, float]:
        return {**_NOTHING, **{name: rate.total(begin, end) for name, rate in member.rates}}

    def changes(self) -> set[float]:
        """The moments at which something begins, ends or changes, but for what the base does all the time."""
        until = self.life.seconds
        found: set[float] = set()
        for member in self.members:
            actor = member.actor
            found |= {actor.begin, actor.end}
            if actor.every is not None and actor.length is not None:
                for turn in range(int(max(0.0, min(until, actor.end) - actor.begin) / actor.every) + 1):
                    found |= {actor.begin + turn * actor.every, actor.begin + turn * actor.every + actor.length}
            for name in (*COUNTED, "util"):
                found.update(getattr(actor, name).changes(0.0, until))
            for socket in actor.sockets:
                found.update(socket.changes(until))
        for login in self.life.logins:
            found |= {login.begin, login.end}
        return {moment for moment in found if 0.0 <= moment <= until}
