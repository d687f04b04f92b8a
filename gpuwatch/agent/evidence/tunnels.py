"""Use that comes through this machine, or through a program on it.

1. A login's SSH daemon that is connected to another machine: somebody reaches that one through here.
2. A program of people that is asked over loopback: who asks may sit elsewhere, behind a tunnel, a proxy or a port that
   SSH passes on. No name separates these from what reads figures there. But what goes on by itself is even: so the
   server is in use when ten minutes move three times as much as any ten in the six hours before. Only what a
   connection moves after its first minute counts, for a shorter one is seen by chance.
"""

from collections.abc import Mapping

from gpuwatch.agent.evidence.askers import LASTING_SECONDS, SSH, Ask, Page
from gpuwatch.agent.evidence.sock_diag import Grown, Sock, Sockets
from gpuwatch.agent.evidence.socket_owners import Holders
from gpuwatch.agent.processes.process import Kind

_MOST_PORTS = 256
_GONE_SECONDS = 600.0  # that a server may be away, as it is restarted, or its owner not known


class Tunnels:
    """Follows the connections of this machine with itself; times are of the monotonic clock."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._grown = Grown()
        self._since: dict[int, float] = {}  # when a connection was seen first, by cookie
        self._pages: dict[int, Page] = {}
        self._there: dict[int, float] = {}  # when people's server at a port was seen last

    def used_ports(self, found: Sockets, holders: Mapping[int, Holders], at: float) -> frozenset[str]:
        """The ports of people's servers that are used over loopback now."""
        if not found.bytes_known:
            return frozenset()
        self._since = {each.cookie: self._since.get(each.cookie, at) for each in found.inner}
        grown, moved = self._grown.bytes_since_last(found.inner), dict[int, int]()
        for each in found.inner:
            if at - self._since[each.cookie] >= LASTING_SECONDS:
                moved[each.local[1]] = moved.get(each.local[1], 0) + grown.get(each.cookie, 0)
        theirs = {each.local[1] for each in found.listeners if _is_peoples(holders.get(each.cookie))}
        ports = sorted(theirs)[:_MOST_PORTS]
        away = [port for port, seen in self._there.items() if port not in theirs and at - seen < _GONE_SECONDS]
        kept = [*ports, *away][:_MOST_PORTS]
        self._there = {port: at if port in theirs else self._there[port] for port in kept}
        self._pages = {port: self._pages.get(port) or Page(begin=at) for port in kept}
        used = [port for port in ports if self._pages[port].stands_out(moved.get(port, 0), at)]
        return frozenset(f"tcp {port}" for port in used)


def onward(found: Sockets, holders: Mapping[int, Holders]) -> list[Sock]:
    """The connections through which somebody who is logged in by SSH reaches another machine."""
    return [each for each in found.leaving if not found.is_accepted(each) and _of_ssh(holders.get(each.cookie))]


def asks_of(passed: list[Sock]) -> set[Ask]:
    """The machines and ports that these connections reach."""
    return {Ask(peer=each.remote[0], port=each.remote[1], protocol=SSH) for each in passed}


def is_onward(port: str) -> bool:
    """Whether a port, as `Ask.words` has it, is on another machine that somebody reaches through SSH here."""
    return port.startswith(f"{SSH} ")


def _is_peoples(held: Holders | None) -> bool:
    return held is not None and held.kind is Kind.PEOPLE


def _of_ssh(held: Holders | None) -> bool:
    """Whether a login's SSH daemon holds it: what it forwards for somebody."""
    if held is None or held.kind is not Kind.SESSION:
        return False
    return any(process.name.startswith("sshd") for process in held.processes)
