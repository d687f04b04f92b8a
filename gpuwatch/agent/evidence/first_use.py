"""Servers that began lately and have had no user so far.

By its name such a program is the machine's own. But a person has just begun it, and may now be on another machine that
is to use it. So the server waits for its first user. Rules, all of them:

1. A server is awaited by its first user for two hours after its begin, if other machines may ask it. Its begin is that
   of its process, or later the first look at which it waited on that port.
2. What begins within a quarter of an hour of the boot came with the machine. What the whole pool has is the machine's
   own as well; so is what monitoring reads, and how people log in. Ports of no fixed number say nothing.
3. What begins again is not new: a server is known by its unit or name, and its port. One that crashes again and again
   holds its machine for two hours in all.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuwatch.agent.evidence.sock_diag import Sock
from gpuwatch.agent.evidence.socket_owners import Holders, kernel_server
from gpuwatch.agent.processes.kinds import is_there_to_be_read, lets_people_in
from gpuwatch.agent.processes.pool import COMMON
from gpuwatch.agent.processes.process import Kind, Process, ProcessView
from gpuwatch.model.duration import format_duration

_AWAITED_SECONDS = 2 * 3600.0
_BOOT_SECONDS = 900.0
_FIRST_FREE_PORT = 32768  # the kernel gives those from here on to anybody
_MOST = 256
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A server that awaits its first user, for so long by now."""

    server: Process
    port: int
    seconds: float

    @property
    def words(self) -> str:
        """What evidence says about the first use."""
        since = format_duration(self.seconds)
        return f"{self.server.name} began to wait on port {self.port} {since} ago, and awaits its first user"


class FirstUse:
    """Follows from look to look who waits for other machines; times are of the monotonic clock, from the boot on."""

    def __init__(self) -> None:
        """Nobody has looked yet: what is there at the first look may have been there for long."""
        self._began: dict[tuple[str, int], float] = {}  # by unit or name, and port
        self._is_looking = False

    def find_awaited(
        self, listeners: Iterable[Sock], holders: Mapping[int, Holders], view: ProcessView | None, at: float
    ) -> Awaited | None:
        """The newest server that awaits its first user; None: no server does."""
        found = list[Awaited]()
        for each in listeners:
            server, port = _server_of(each, holders, view), each.local[1]
            if server is None or port >= _FIRST_FREE_PORT:
                continue
            key = (server.placement.systemd_unit or server.name, port)
            if key not in self._began and len(self._began) < _MOST:
                self._began[key] = at if self._is_looking else min(at, server.started_ticks / _TICKS_PER_SECOND)
            began = self._began.get(key, 0.0)
            if began >= _BOOT_SECONDS and at - began < _AWAITED_SECONDS:
                found.append(Awaited(server=server, port=port, seconds=at - began))
        self._is_looking = True
        return min(found, key=lambda each: each.seconds, default=None)


def _server_of(listener: Sock, holders: Mapping[int, Holders], view: ProcessView | None) -> Process | None:
    """The server of the machine's own that waits there; people's occupy the machine by themselves."""
    held = holders.get(listener.cookie)
    if held is None or not held.processes:
        return kernel_server(listener.local[1], view)
    first = held.processes[0]
    of_all = first.rule.startswith(COMMON) or lets_people_in((first.name,))
    to_be_read = is_there_to_be_read((first.name, first.executable or ""), first.placement.systemd_unit)
    return None if held.kind is not Kind.SERVICE or of_all or to_be_read else first
