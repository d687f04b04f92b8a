"""TCP sockets of this network namespace with the bytes that they moved, and UDP's, from the kernel (sock_diag(7)).

Anybody may ask. Where the kernel does not answer, or /proc is not this machine's, the tables of /proc/net are read
instead, which know no bytes.

A connection may begin and end between two looks. The kernel shows its end to anybody who has asked for that, with both
addresses and all bytes (`Ended`).
"""

import ctypes
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from gpuwatch.agent.evidence.base import Roots, UnseenError
from gpuwatch.agent.evidence.tcp_listeners import ESTABLISHED, LISTEN, sockets

_MOST_SOCKETS = 1 << 16
_BUFFER_BYTES = 1 << 18  # the kernel fills at most 32 kB at a time
_TIMEOUT_SECONDS = 1.0

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST = 4, 20, 0x301
_ERROR, _DONE = 2, 3
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_REQUEST = struct.Struct("=BBBxI48x")  # family, protocol, extensions, states, any socket
# family, state, timer, retransmissions; both ports, both addresses, interface, cookie; expires, two queues, uid, inode
_MESSAGE = struct.Struct("=BBxx2s2s16s16sIQIIIII")
_INFO, _CGROUP_ID = 2, 21
_STATE_ESTABLISHED, _STATE_CLOSED, _STATE_LISTEN = 1, 7, 10
# SKNLGRP_INET_TCP_DESTROY, SKNLGRP_INET6_TCP_DESTROY, since Linux 4.2; and of UDP.
_DESTROYED, _UDP_DESTROYED = 1 << 0 | 1 << 2, 1 << 1 | 1 << 3
_PAUSE_LOOKS = 12  # where more end than the kernel keeps; each costs it 2 µs
_MOST_ENDS = 4096  # read at one look: they may end as fast as they are read
_LEAST_RECEIVED, _LEAST_MOVED = 3, 1000  # a FIN counts as a byte
# Classic BPF: a connection of this host with itself, by one address, is not shown. Of each of the four words of the
# addresses: load the other end's, keep it, load this end's; another one: take the message. At last: drop it.
_LEAVES = b"".join(
    struct.pack("=HBBI", *each)
    for word in range(4)
    for each in ((0x20, 0, 0, 40 + 4 * word), (0x07, 0, 0, 0), (0x20, 0, 0, 24 + 4 * word), (0x1D, 0, 13 - 4 * word, 0))
) + struct.pack("=HBBIHBBI", 0x06, 0, 0, 0, 0x06, 0, 0, 0xFFFFFFFF)
_ATTACH_FILTER, _FILTER = 26, struct.Struct("@HP")  # linux/filter.h: sock_fprog
_MOVED = struct.Struct("=QQ")  # tcpi_bytes_acked, tcpi_bytes_received (linux/tcp.h, since Linux 4.1)
_MOVED_AT = 120
_GROUP = struct.Struct("=Q")
_LENGTHS = {socket.AF_INET: 4, socket.AF_INET6: 16}
_LOOPBACK = {4: b"\x7f", 16: b"\0" * 15 + b"\1"}  # 127.0.0.0/8, ::1
_MAPPED = b"\0" * 10 + b"\xff\xff"  # an IPv4 address in an IPv6 socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Sock:
    """A connection. `cookie` is its own for ever; `moved` are bytes in and out since it began, `received` those in.

    None where they are not known.
    Addresses are 4 or 16 bytes. `cgroup` is the id of the control group that made it, `card` the number of the card to
    which it is bound; 0: to none.
    """

    cookie: int
    inode: int
    uid: int
    local: tuple[bytes, int]
    remote: tuple[bytes, int]
    moved: int | None = None
    received: int | None = None
    cgroup: int | None = None
    card: int = 0

    @property
    def is_local(self) -> bool:
        """Whether it listens on loopback alone."""
        here = self.local[0]
        return here.startswith(_LOOPBACK[len(here)])

    @property
    def leaves(self) -> bool:
        """Whether its other end is on another machine, or in another network namespace."""
        there = self.remote[0]
        return self.local[0] != there and not there.startswith(_LOOPBACK[len(there)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """The connections that leave this host, and the ports on which programs listen; `bytes_known` as in `Sock`.

    `listeners` are the sockets on which they do. `inner` are connections of this host with itself, at the end that was
    asked.
    """

    leaving: tuple[Sock, ...]
    listening: frozenset[int]
    bytes_known: bool
    listeners: tuple[Sock, ...] = ()
    inner: tuple[Sock, ...] = ()

    def is_accepted(self, each: Sock) -> bool:
        """Whether the other end has asked for the connection."""
        return each.local[1] in self.listening


class Grown:
    """How much each connection has moved from look to look."""

    def __init__(self) -> None:
        """Before the first look."""
        self._before: dict[int, int] | None = None

    def bytes_since_last(self, connections: Iterable[Sock]) -> dict[int, int]:
        """Bytes since the last look, by cookie; nothing at the first one. What began since then counts as a whole."""
        now = {each.cookie: each.moved for each in connections if each.moved is not None}
        before, self._before = self._before, now
        if before is None:
            return {}
        return {cookie: max(0, moved - before.get(cookie, 0)) for cookie, moved in now.items()}

    def forget(self) -> None:
        """Forget all connections and begin again."""
        self._before = None


class Ended:
    """The connections with other machines that ended since the last look; without them where the kernel shows none.

    Only those that others made to a port that is still open. They belong to who waits there. A probe brings nothing and
    gets a greeting at most: it is left out. The kernel keeps 400 ends from look to look. Who has more is not followed
    for a minute, and in use anyhow.
    """

    def __init__(self, roots: Roots) -> None:
        """Nobody has asked the kernel yet."""
        self._roots = roots
        self._channel: socket.socket | None = None
        self._pause = 0

    @property
    def are_known(self) -> bool:
        """Whether the kernel shows them now."""
        return self._channel is not None

    def __del__(self) -> None:
        """Nobody hears any more."""
        if self._channel is not None:
            self._channel.close()

    def add_to(self, found: Sockets) -> Sockets:
        """The connections of now, and those that ended since the call before."""
        if not found.bytes_known or not _is_our_own(self._roots):
            return found
        told = tuple(self._take())
        own = {each.local[0] for each in (*found.leaving, *found.listeners, *told)}
        at = {each.local: each for each in found.listeners} | {(b"", each.local[1]): each for each in found.listeners}
        ended = dict[int, Sock]()
        for each in told:
            server = at.get(each.local) or at.get((b"", each.local[1]))
            if server is not None and each.leaves and each.remote[0] not in own and _asked_something(each):
                ended[each.cookie] = replace(each, inode=server.inode, uid=server.uid, cgroup=server.cgroup)
        left = (each for each in found.leaving if each.cookie not in ended)
        return replace(found, leaving=(*left, *ended.values()))

    def _take(self) -> Iterator[Sock]:
        """All that the kernel shows. It says first that it kept no more, and then what it kept."""
        if self._pause:
            self._pause -= 1
        elif self._channel is None:
            self._channel = _hear_of_ends()
        errors = 0
        for _ in range(_MOST_ENDS):
            if self._channel is None:
                return
            try:
                data = self._channel.recv(_BUFFER_BYTES)
            except BlockingIOError:
                break
            except OSError:
                errors += 1
                if errors > 1:
                    break
                continue
            with suppress(OSError, struct.error, KeyError):
                yield _socket(data[_HEADER.size :])[1]
        else:
            errors += 1
        if errors and self._channel is not None:
            self._channel.close()
            self._channel, self._pause = None, _PAUSE_LOOKS


def _asked_something(each: Sock) -> bool:
    return (each.received or 0) >= _LEAST_RECEIVED or (each.moved or 0) >= _LEAST_MOVED


class UdpEnds:
    """The sockets of UDP that were closed since the last look: by most of them somebody has asked something."""

    def __init__(self) -> None:
        """Nobody has asked the kernel yet."""
        self._channel: socket.socket | None = None

    def __del__(self) -> None:
        """Nobody hears any more."""
        if self._channel is not None:
            self._channel.close()

    def take(self) -> list[Sock] | None:
        """Those since the call before; None: not all are known."""
        channel, found = self._channel, list[Sock]()
        if channel is None:
            self._channel = _hear_of_ends(_UDP_DESTROYED, b"")
            return None
        for _ in range(_MOST_ENDS):
            try:
                found.append(_socket(channel.recv(_BUFFER_BYTES)[_HEADER.size :], counts=False)[1])
            except BlockingIOError:
                return found
            except (OSError, struct.error, KeyError):
                break
        channel.close()  # it kept no more, and what it kept is not to be told apart
        self._channel = None
        return None


def _hear_of_ends(groups: int = _DESTROYED, code: bytes = _LEAVES) -> socket.socket | None:
    """A socket at which the kernel shows the sockets that end and that a filter lets through; None: it may not be."""
    try:
        channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    except OSError:
        return None
    try:
        channel.settimeout(0.0)
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        if code:
            kept = ctypes.create_string_buffer(code)
            channel.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, _FILTER.pack(len(code) // 8, ctypes.addressof(kept)))
        channel.bind((0, groups))
    except OSError:
        channel.close()
        return None
    return channel


def read_sockets(roots: Roots) -> Sockets:
    """The connections of now.

    Raises:
        OSError: neither the kernel nor the tables can be read.
        UnseenError: there are too many, or a table is not what proc(5) says.

    """
    found = _from_kernel() if _is_our_own(roots) else None
    known = found is not None
    rows = _from_tables(roots) if found is None else found
    addresses = {row.local[0] for _, row in rows}
    listening = frozenset(row.local[1] for state, row in rows if state == _STATE_LISTEN)
    leaving, inner = list[Sock](), list[Sock]()
    for row in (row for state, row in rows if state == _STATE_ESTABLISHED):
        if row.leaves and row.remote[0] not in addresses:
            leaving.append(row)
        elif row.local[1] in listening:
            inner.append(row)
    return Sockets(
        leaving=tuple(leaving),
        inner=tuple(inner),
        listening=listening,
        bytes_known=known,
        listeners=tuple(row for state, row in rows if state == _STATE_LISTEN),
    )


def _is_our_own(roots: Roots) -> bool:
    """Whether that /proc shows the network namespace that this process asks the kernel in."""
    try:
        return os.stat(roots.proc / "self/ns/net").st_ino == os.stat("/proc/self/ns/net").st_ino  # noqa: PTH116  the real one
    except OSError:
        return False


def _from_tables(roots: Roots) -> list[tuple[int, Sock]]:
    states = {ESTABLISHED: _STATE_ESTABLISHED, LISTEN: _STATE_LISTEN}
    return [
        (
            states[each.state],
            Sock(
                cookie=each.inode,
                inode=each.inode,
                uid=each.uid,
                local=(each.local[0].packed, each.local[1]),
                remote=(each.remote[0].packed, each.remote[1]),
            ),
        )
        for each in sockets(roots.proc)
        if each.state in states
    ]


def read_udp_sockets(roots: Roots) -> list[tuple[bool, Sock]] | None:
    """The sockets of UDP, and whether each is connected; None where the kernel is not to be asked."""
    if not _is_our_own(roots):
        return None
    rows = _from_kernel(socket.IPPROTO_UDP)
    return None if rows is None else [(state == _STATE_ESTABLISHED, each) for state, each in rows]


def _from_kernel(protocol: int = socket.IPPROTO_TCP) -> list[tuple[int, Sock]] | None:
    """None where the kernel does not offer it, or the agent may not ask (seccomp, RestrictAddressFamilies=)."""
    try:
        asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    except OSError:
        return None
    with closing(asked):
        asked.settimeout(_TIMEOUT_SECONDS)
        rows: list[tuple[int, Sock]] = []
        try:
            for family in _LENGTHS:
                rows += _dump_sockets(asked, family, protocol)
        except OSError:
            return None
    return rows


def _dump_sockets(asked: socket.socket, family: int, protocol: int) -> Iterator[tuple[int, Sock]]:
    """All sockets of a family, established or listening; of UDP all."""
    counts = protocol == socket.IPPROTO_TCP
    states = 1 << _STATE_ESTABLISHED | 1 << (_STATE_LISTEN if counts else _STATE_CLOSED)
    request = _REQUEST.pack(family, protocol, 1 << _INFO - 1 if counts else 0, states)
    length = _HEADER.size + len(request)
    asked.sendto(_HEADER.pack(length, _SOCK_DIAG_BY_FAMILY, _DUMP_REQUEST, 1, 0) + request, (0, 0))
    number = 0
    while True:
        data = asked.recv(_BUFFER_BYTES)
        at = 0
        while at + _HEADER.size <= len(data):
            length, kind, _, _, _ = _HEADER.unpack_from(data, at)
            if kind == _DONE:
                return
            if kind == _ERROR or length < _HEADER.size or at + length > len(data):
                raise OSError("the kernel offers no sock_diag")
            if kind == _SOCK_DIAG_BY_FAMILY:
                yield _socket(data[at + _HEADER.size : at + length], counts=counts)
                number += 1
                if number > _MOST_SOCKETS:
                    raise UnseenError(f"there are more than {_MOST_SOCKETS} {'TCP' if counts else 'UDP'} sockets")
            at += length + 3 & ~3


def _socket(data: bytes, *, counts: bool = True) -> tuple[int, Sock]:
    """A socket and its state; of UDP the kernel counts nothing."""
    family, state, sport, dport, source, target, card, cookie, _, _, _, uid, inode = _MESSAGE.unpack_from(data)
    moved = received = cgroup = None
    at = _MESSAGE.size
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            break
        if kind == _INFO and length >= _ATTRIBUTE.size + _MOVED_AT + _MOVED.size:
            sent, received = _MOVED.unpack_from(data, at + _ATTRIBUTE.size + _MOVED_AT)
            moved = sent + received
        elif kind == _CGROUP_ID:
            (cgroup,) = _GROUP.unpack_from(data, at + _ATTRIBUTE.size)
        at += length + 3 & ~3
    if counts and moved is None and state == _STATE_ESTABLISHED:
        raise OSError("the kernel does not tell how much a connection moved")
    size = _LENGTHS[family]
    return state, Sock(
        cookie=cookie,
        inode=inode,
        uid=uid,
        local=(_plain(source[:size]), int.from_bytes(sport, "big")),
        remote=(_plain(target[:size]), int.from_bytes(dport, "big")),
        moved=moved,
        received=received,
        cgroup=cgroup,
        card=card,
    )


def _plain(address: bytes) -> bytes:
    return address[12:] if address[:12] == _MAPPED else address
