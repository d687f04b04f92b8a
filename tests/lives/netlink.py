"""The kernel's answer to sock_diag(7) on the made host: its TCP sockets with the bytes that each has moved, and UDP's.

Who asks for it hears of each connection that ends. Containers' sockets are in networks of their own.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any
from unittest.mock import patch

from tests.lives.actors import Socket
from tests.lives.host import MadeHost
from tests.lives.world import Process

# linux/netlink.h, linux/inet_diag.h, linux/tcp.h
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_MESSAGE = struct.Struct("=BBBB2s2s16s16sIQIIIII")
_BY_FAMILY, _DONE, _MULTI = 20, 3, 2
_INFO, _CGROUP_ID = 2, 21
_INFO_BYTES, _MOVED_AT = 232, 120
_ESTABLISHED, _CLOSED, _LISTEN = 1, 7, 10
_UDP_ENDS = 1 << 1  # SKNLGRP_INET_UDP_DESTROY
_RESOLVERS = ("127.0.0.53:53", "10.0.0.2:53")
_ENDED_COOKIES = 1 << 60
_REAL = socket.socket


class _Asked:
    """A netlink socket; the request's family decides, everything else is dumped. A bound one hears of ends."""

    def __init__(self, kernel: "Kernel") -> None:
        self._kernel, self._answers, self._heard = kernel, [b""], kernel.moment
        self._ends_of = ends_of

    def settimeout(self, _: float | None) -> None:
        """Answers come at once."""

    def setsockopt(self, *_: object) -> None:
        """Nothing is too much here."""

    def bind(self, address: tuple[int, int]) -> None:
        """From now on it hears of ends."""
        self._answers = []
        if address[1] & _UDP_ENDS:
            self._ends_of = udp_ends_of

    def close(self) -> None:
        """Done."""

    def sendto(self, data: bytes, _: object) -> int:
        """A dump is asked for."""
        return self.send(data)

    def send(self, data: bytes) -> int:
        """Likewise."""
        family, udp = data[_HEADER.size], data[_HEADER.size + 1] == socket.IPPROTO_UDP
        rows = [_framed(_BY_FAMILY, row) for row in rows_of(self._kernel.host, self._kernel.moment, family, udp=udp)]
        self._answers = [b"".join(rows), _framed(_DONE, b"\0\0\0\0")]
        return len(data)

    def recv(self, _: int) -> bytes:
        """A part of the answer; the end comes by itself."""
        if self._heard < self._kernel.moment and not self._answers:
            ends = self._ends_of(self._kernel.host, self._heard, self._kernel.moment)
            self._answers, self._heard = [_framed(_BY_FAMILY, row) for row in ends], self._kernel.moment
        if not self._answers:
            raise BlockingIOError
        part = self._answers.pop(0)
        return part or self.recv(_)


def _framed(kind: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, _MULTI, 1, 0) + body + b"\0" * (-len(body) % 4)


def rows_of(host: MadeHost, moment: float, family: int, *, udp: bool = False) -> Iterator[bytes]:
    """The inet_diag messages of the host's own network."""
    for process in host.world.alive(moment):
        for number, each in enumerate(process.member.actor.sockets):
            there = each.udp == udp and each.open_at(moment) and family == _family(each)
            if there and not process.member.own_network:
                yield _row(host, process, number, each, moment)


def ends_of(host: MadeHost, after: float, until: float) -> Iterator[bytes]:
    """The messages about connections that ended in a time, each with all that it moved."""
    for member in host.world.members:
        for number, each in enumerate(() if member.own_network else member.actor.sockets):
            for end in () if each.peer is None or each.udp else _ends(each, after, until):
                last = end - 0.001
                turn = host.world.turn(member, last)
                if turn is not None and each.open_at(last) and not each.open_at(end):
                    process = Process(member, host.world.pid(member, turn[0]), turn[0])
                    yield _row(host, process, number, each, last)


def udp_ends_of(host: MadeHost, after: float, until: float) -> Iterator[bytes]:
    """The messages about sockets by which programs asked a resolver in a time: this host's, and that one the next."""
    for number in host.life.udp.lookups_in(after, until):
        for which, resolver in enumerate(_RESOLVERS):
            (local, sport), (remote, dport) = _end(f"{'10.0.1.5' if which else '127.0.0.1'}:40321"), _end(resolver)
            cookie = _ENDED_COOKIES + 2 * number + which
            yield _MESSAGE.pack(
                socket.AF_INET, _ESTABLISHED, 0, 0, sport, dport, local, remote, 0, cookie, 0, 0, 0, 0xFFFFFFFF, 0
            )


def _ends(each: Socket, after: float, until: float) -> list[float]:
    """When it closes in a time."""
    found = [each.end]
    if each.every is not None and each.length is not None:
        first, last = (int((moment - each.begin - each.length) // each.every) for moment in (after, until))
        found += [each.begin + each.every * turn + each.length for turn in range(max(0, first), last + 1)]
    return [end for end in found if after < end <= until]


def _family(each: Socket) -> int:
    return socket.AF_INET6 if each.local.startswith("[") else socket.AF_INET


def _moved(process: Process, each: Socket, moment: float) -> tuple[int, int]:
    """Bytes out and in since the connection was made."""
    member, begin = process.member, max(each.begin, process.begin)
    if each.every is not None:
        begin = each.begin + (moment - each.begin) // each.every * each.every
    return round(member.actor.send.total(begin, moment)), round(member.actor.net.total(begin, moment))


def _row(host: MadeHost, process: Process, number: int, each: Socket, moment: float) -> bytes:
    """The message about one socket; what its process moves is counted on the first of those that are open."""
    ones = process.member.actor.sockets
    first = next((each for each in ones if each.peer is not None and not each.udp and each.open_at(moment)), None)
    moved = _moved(process, each, moment) if each is first else (0, 0)
    family = _family(each)
    member = process.member
    local, sport = _end(each.local)
    remote, dport = _end(each.peer or ("[::]:0" if family == socket.AF_INET6 else "0.0.0.0:0"))
    inode = host.inode(member, number)
    waits = _CLOSED if each.udp else _LISTEN
    state = waits if each.peer is None else _ESTABLISHED
    turn = 0 if each.every is None else int((moment - each.begin) // each.every)
    cookie = inode | (process.pid & 0xFFFF) << 24 | (turn + 1) << 40  # one that comes again is another one
    head = _MESSAGE.pack(family, state, 0, 0, sport, dport, local, remote, 0, cookie, 0, 0, 0, member.uid, inode)
    info = bytearray(_INFO_BYTES)
    struct.pack_into("=QQ", info, _MOVED_AT, *moved)
    group = struct.pack("=Q", host.group_id(member.cgroup))
    told = b"" if each.udp else _attribute(_INFO, bytes(info))
    return head + told + _attribute(_CGROUP_ID, group)


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _end(text: str) -> tuple[bytes, bytes]:
    address, _, port = text.rpartition(":")
    return ip_address(address.strip("[]")).packed.ljust(16, b"\0"), int(port).to_bytes(2, "big")


class Kernel:
    """Answers by netlink at a moment that somebody sets."""

    def __init__(self, host: MadeHost) -> None:
        """At the beginning."""
        self.host = host
        self.moment = 0.0

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Within, netlink sockets lead here; others are real."""

        def make(family: int = socket.AF_INET, *more: Any, **named: Any) -> object:  # noqa: ANN401  as socket.socket
            if family == socket.AF_NETLINK:
                return _Asked(self)
            return _REAL(family, *more, **named)

        with patch("socket.socket", make):
            yield
