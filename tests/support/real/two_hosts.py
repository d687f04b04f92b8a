"""Two hosts with a cable between them: network namespaces and a veth pair, for programs that run inside.

`inside` starts a module's scenario as the first process of a host of its own; there, `TwoHosts` starts programs on
either end. Only root can make namespaces, and not everywhere.
"""

import json
import os
import subprocess
import sys
from typing import Any, Self

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.evidence.base import Moment
from gpuwatch.agent.processes.process import Kind, Process, ProcessView
from gpuwatch.runtime.clock import ManualClock
from tests.support.paths import ROOT

HERE, THERE = "10.99.0.1", "10.99.0.2"
_NET = ("unshare", "--net", "--fork", "--kill-child")
_UNSHARE = (*_NET, "--pid", "--mount-proc")

# A program that does what its standard input says, a line at a time, and then says so.
_PROGRAM = """
import os, socket, sys
ends = []
for line in sys.stdin:
    word, *rest = line.split()
    answer = 0
    if word == "listen":
        own = socket.create_server(("0.0.0.0", 0))
        answer = own.getsockname()[1]
    elif word == "accept":
        ends.append(own.accept()[0])
    elif word == "connect":
        ends.append(socket.create_connection((rest[0], int(rest[1])), timeout=20))
    elif word == "send":
        ends[-1].sendall(b"x" * int(rest[0]))
    elif word == "receive":
        left = int(rest[0])
        while left:
            left -= len(ends[-1].recv(min(left, 65536)))
    elif word == "close":
        ends.pop().close()
    elif word == "become":
        os.setuid(int(rest[0]))
    print(answer, flush=True)
"""


def can_be_made() -> bool:
    """Whether this user may make namespaces, and a cable, here."""
    if os.geteuid() != 0:
        return False
    cable = "ip link add v0 type veth peer name v1"
    try:
        return subprocess.run([*_UNSHARE, "sh", "-c", cable], check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def inside(
    module: str,
    scenario: str,
    *,
    seconds: float = 60,
    own_pids: bool = True,
) -> Any:  # noqa: ANN401  what the scenario printed as JSON
    """Run a scenario of a module on a host of its own, for so long at most, and give what it says.

    An agent that judges use needs the PIDs of the machine: `own_pids=False`.
    """
    command = [*(_UNSHARE if own_pids else _NET), sys.executable, "-m", module, scenario]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Program:
    """A process on one of the hosts."""

    def __init__(self, prefix: tuple[str, ...] = (), kind: Kind = Kind.PEOPLE) -> None:
        """Started by a command that becomes it, and somebody's or not."""
        self.kind = kind
        command = [*prefix, sys.executable, "-c", _PROGRAM]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid

    def do(self, *words: object) -> int:
        """Let it do something, and wait until it is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def moves(self, other: "Program", number: int) -> None:
        """Send so many bytes to the other end, which reads them."""
        self.do("send", number)
        other.do("receive", number)

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


class TwoHosts:
    """This host, and another one at the other end of a cable. Use it in a `with`, as `inside` runs you."""

    def __enter__(self) -> Self:
        """Lay the cable."""
        self.programs: list[Program] = []
        self.clock = ManualClock()
        self._there = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 600"], stdout=subprocess.PIPE)
        assert self._there.stdout is not None
        self._there.stdout.readline()
        self._run("ip", "link", "set", "lo", "up")
        self._run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", str(self._there.pid))
        for prefix, card, address in (((), "v0", HERE), (self.enter(), "v1", THERE)):
            self._run(*prefix, "ip", "addr", "add", f"{address}/24", "dev", card)
            self._run(*prefix, "ip", "link", "set", card, "up")
        return self

    def __exit__(self, *_: object) -> None:
        """End all programs. The kernel takes a cable away some time after its other host, and the next has its name."""
        for each in self.programs:
            each.end()
        self._run("ip", "link", "del", "v0")
        self._there.kill()
        self._there.communicate()

    def here(self, kind: Kind = Kind.PEOPLE) -> Program:
        """A program on this host."""
        return self._keep(Program(kind=kind))

    def there(self, kind: Kind = Kind.PEOPLE) -> Program:
        """A program on the other one."""
        return self._keep(Program(self.enter(), kind))

    def served(self, kind: Kind = Kind.PEOPLE) -> tuple[Program, Program]:
        """A server of that kind here, and a client there that it has accepted."""
        return self._joined(self.here(kind), self.there(), HERE)

    def asking(self, kind: Kind = Kind.PEOPLE) -> tuple[Program, Program]:
        """A server there, and a program of that kind here that it has accepted."""
        return self._joined(self.there(), self.here(kind), THERE)

    def served_within(self, address: str) -> tuple[Program, Program]:
        """A server here, and a client here that came by that address."""
        return self._joined(self.here(), self.here(), address)

    def view(self, *programs: Program) -> ProcessView:
        """These programs as a look at the processes shows them."""
        shown = {each.pid: _shown(each) for each in programs}
        return ProcessView(monotonic_seconds=self.clock.monotonic(), processes=shown)

    def moment(self, seconds: float, view: ProcessView | None) -> Moment:
        """So much later."""
        self.clock.advance(seconds)
        return Moment(at=self.clock.now(), monotonic_seconds=self.clock.monotonic(), processes=view)

    def _joined(self, server: Program, client: Program, address: str) -> tuple[Program, Program]:
        client.do("connect", address, server.do("listen"))
        server.do("accept")
        return server, client

    def _keep(self, program: Program) -> Program:
        self.programs.append(program)
        return program

    def unplug(self) -> None:
        """Pull the cable."""
        self._run("ip", "link", "set", "v0", "down")

    def enter(self) -> tuple[str, ...]:
        """The command before one that runs on the other host."""
        return ("nsenter", "-t", str(self._there.pid), "-n")

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)


def _shown(program: Program) -> Process:
    return Process(
        pid=program.pid,
        started_ticks=program.pid,
        parent=1,
        group=program.pid,
        session=program.pid,
        tty=0,
        state="S",
        name="python3",
        executable="python3",
        uid=os.geteuid(),
        placement=Placement(),
        kind=program.kind,
    )
