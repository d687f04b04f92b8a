"""The owner of a TCP port of this machine, by the kernel's tables. A port number proves nothing: any user may listen.

The tables are those of this process's network namespace, which is where it connects to.
"""

import select
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.evidence.base import Roots, UnseenError

ESTABLISHED, LISTEN = "01", "0A"
_MOST_LINES = 1 << 16  # of one table: 10 MiB; listeners come first
_AGAIN_SECONDS = 0.01
_OVERFLOW_UID = 65534  # stands for every user that this user namespace does not know

Address = IPv4Address | IPv6Address
End = tuple[Address, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp:
    """A socket: its two ends, its state, its owner, and its inode; 0 until it is accepted."""

    local: End
    remote: End
    state: str
    uid: int
    inode: int


def belongs_to(roots: Roots, port: int, uid: int) -> None:
    """Require that only that user listens on that port of loopback.

    Raises:
        ConnectionRefusedError: no program listens there.
        OSError: the tables cannot be read.
        UnseenError: another user does, or the user is unknown.

    """
    if uid == _OVERFLOW_UID:
        raise UnseenError("its owner is not known in this agent's user namespace")
    owners = {each.uid for each in sockets(roots.proc) if each.state == LISTEN and _is_reached(each.local, port)}
    if not owners:
        raise ConnectionRefusedError(111, "Connection refused")
    if others := owners - {uid}:
        raise UnseenError(f"{user_name(min(others))} listens on port {port}, and not {user_name(uid)} alone")


def answered_by(roots: Roots, connection: socket.socket, uid: int) -> None:
    """Require that that user has accepted this connection; waits for it, up to the connection's own time limit.

    Raises:
        OSError: the tables cannot be read, or (TimeoutError) the connection is not accepted.
        UnseenError: another user has, or the user is unknown.

    """
    ours, theirs = _end(connection.getsockname()), _end(connection.getpeername())
    for _ in range(1 + int((connection.gettimeout() or 0.0) / _AGAIN_SECONDS)):
        for each in sockets(roots.proc):
            if each.local == theirs and each.remote == ours and each.state == ESTABLISHED and each.inode:
                if each.uid != uid or uid == _OVERFLOW_UID:
                    raise UnseenError(f"{user_name(each.uid)} answers on port {theirs[1]}, and not {user_name(uid)}")
                return
        select.select([connection], [], [], _AGAIN_SECONDS)  # or it hangs up
    raise TimeoutError


def _is_reached(local: End, port: int) -> bool:
    """Whether a listener there gets the connections to that port of loopback."""
    address, its = local
    return its == port and (address.is_loopback or address.is_unspecified)


def sockets(proc: Path) -> Iterator[Tcp]:
    """All TCP sockets of this network namespace; those of an IPv6 socket that speaks IPv4 have IPv4 addresses.

    Raises:
        OSError: the tables cannot be read.
        UnseenError: they are too long, or not what proc(5) says.

    """
    yield from _table(proc / "net/tcp")
    try:
        yield from _table(proc / "net/tcp6")
    except FileNotFoundError:
        return  # a kernel without IPv6


def _table(path: Path) -> Iterator[Tcp]:
    with path.open(encoding="ascii", errors="replace") as table:
        next(table, None)
        for number, line in enumerate(table):
            if number >= _MOST_LINES:
                raise UnseenError(f"{path} is longer than it can rightly be")
            try:
                _, local, remote, state, _, _, _, uid, _, inode, *_ = line.split()
                yield Tcp(local=_read_end(local), remote=_read_end(remote), state=state, uid=int(uid), inode=int(inode))
            except (ValueError, OverflowError):
                raise UnseenError(f"{path} has an unexpected line") from None


def _read_end(text: str) -> End:
    """An end as the kernel writes it: words of 32 bits in the machine's own byte order."""
    address, _, port = text.partition(":")
    words = (int(address[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(address), 8))
    return plain(ip_address(b"".join(words))), int(port, 16)


def _end(name: tuple[str, int]) -> End:
    return plain(ip_address(name[0])), name[1]


def plain(address: Address) -> Address:
    """An IPv4 address, also if it is mapped into IPv6."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
