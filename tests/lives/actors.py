"""Who takes part in a life: processes, and the sockets that they have."""

from dataclasses import dataclass, field
from zlib import crc32

from tests.lives.rates import Rate

FULL_DAY_SECONDS = 86400.0
_SELDOM = 5
UPTIME_SECONDS = 3 * 86400.0 + 60.0  # of the host, as its life begins
SHELLS = ("bash", "sh", "dash", "zsh", "fish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """A TCP socket of a process: `peer` None listens. `begin` and `end` are moments of the life; `udp`: one of UDP.

    `seldom`: of what comes again and again only one in five, drawn by chance, and the same each time.
    """

    local: str
    peer: str | None = None
    begin: float = -UPTIME_SECONDS
    end: float = FULL_DAY_SECONDS * 10
    every: float | None = None
    length: float | None = None
    seldom: bool = False
    udp: bool = False

    def open_at(self, moment: float) -> bool:
        """Whether it is there at a moment."""
        if not self.begin <= moment < self.end:
            return False
        if self.every is None or self.length is None:
            return True
        turn, since = divmod(moment - self.begin, self.every)
        return since < self.length and self._comes(int(turn))

    def changes(self, until: float) -> tuple[float, ...]:
        """When it opens and closes."""
        found = [self.begin, self.end]
        if self.every is not None and self.length is not None:
            last = int(max(0.0, min(until, self.end) - self.begin) / self.every)
            turns = [turn for turn in range(last + 1) if self._comes(turn)]
            found += [self.begin + self.every * turn for turn in turns]
            found += [self.begin + self.every * turn + self.length for turn in turns]
        return tuple(found)

    def _comes(self, turn: int) -> bool:
        return not self.seldom or crc32(f"{self.peer} {turn}".encode()) % _SELDOM == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """One process, or one that comes again and again (`every` … `length`), or `copies` of it."""

    name: str
    comm: str
    exe: str = ""
    cmdline: str = ""
    cwd: str = "/"
    user: str = "root"
    place: str = "unit unknown.service"
    parent: str | None = None
    tty: str | None = None
    state: str = "S"
    threads: int = 1
    copies: int = 1
    pid: int | None = None
    begin: float = -3600.0
    end: float = float("inf")
    every: float | None = None
    length: float | None = None
    cores: Rate = field(default_factory=Rate)
    read: Rate = field(default_factory=Rate)
    write: Rate = field(default_factory=Rate)
    rchar: Rate = field(default_factory=Rate)
    wchar: Rate = field(default_factory=Rate)
    faults: Rate = field(default_factory=Rate)
    net: Rate = field(default_factory=Rate)
    send: Rate = field(default_factory=Rate)
    card: str = "ens5"
    gpus: tuple[int, ...] = ()
    gpu_memory: float = 0.0
    gpu_kind: str = "compute"
    util: Rate = field(default_factory=Rate)
    listed: bool = True  # by the driver
    sockets: tuple[Socket, ...] = ()
    own_network: bool | None = None
    waits: str | None = None  # of a shell: the function of the kernel that its builtin waits in; None: at its prompt
    forked: bool = False  # it runs its parent's program

    @property
    def asks(self) -> bool:
        """Whether it is a shell that a person types into, and not one with a script or a command."""
        return self.tty is not None and self.comm.lstrip("-") in SHELLS and " " not in self.cmdline
