"""People at real terminals for tests: a pty of this machine, and a utmp in a folder that lists it."""

import os
import select
import tty
from pathlib import Path
from typing import Self

from gpuwatch.agent.evidence.base import Roots
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.host import FolderHost, utmp_record

_STAYS_FULL_SECONDS = 0.3


class Seat:
    """One person's terminal; use it in a `with`. What is written on it is what its emulator would show."""

    def __init__(self, *, messages: bool = True) -> None:
        """Sit down; without `messages` as after `mesg n`."""
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave)
        self.path = Path(os.ttyname(self.slave))
        self.name = str(self.path.relative_to("/dev"))
        self.path.chmod(0o620 if messages else 0o600)

    def __enter__(self) -> Self:
        """As it is."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave."""
        os.close(self.master)
        os.close(self.slave)

    def shown(self) -> bytes:
        """What has come since the last look."""
        seen = b""
        while select.select([self.master], [], [], 0)[0]:
            seen += os.read(self.master, 65536)
        return seen

    def fill(self) -> None:
        """Let output pile up, as behind an emulator that reads no more."""
        os.set_blocking(self.slave, False)
        full_since = SystemClock().monotonic()
        # The kernel makes room some time after a write, while it moves what was written to the other end.
        while SystemClock().monotonic() - full_since < _STAYS_FULL_SECONDS:
            try:
                os.write(self.slave, b"x" * 1024)
                full_since = SystemClock().monotonic()
            except BlockingIOError:
                SystemClock().sleep(0.01)

    def silent_since(self, seconds_ago: float, host: FolderHost) -> None:
        """The last key was then."""
        stamp = host.clock.wall.timestamp() - seconds_ago
        os.utime(self.path, (stamp, stamp))


def at(host: FolderHost, *seats: Seat | str) -> Roots:
    """That host with them logged in, on terminals of this machine's own /dev."""
    names = [seat if isinstance(seat, str) else seat.name for seat in seats]
    host.write("run/utmp", b"".join(utmp_record("alice", name) for name in names))
    return Roots(proc=host.roots.proc, run=host.roots.run, dev=Path("/dev"), sys=host.roots.sys)
