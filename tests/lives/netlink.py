"""The kernel's answer to sock_diag(7) on the made host: its TCP sockets with the bytes that each has moved.

What a process moves is counted on the first of its open connections; containers' sockets are in networks of their own.
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
_ESTABLISHED, _LISTEN = 1, 10
_REAL = socket.socket


class _Asked:
    """A netlink socket; the request's family decides, everything else is dumped."""

    def __init__(self, host: MadeHost, moment: float) -> None:
        self._host, self._moment, self._answers = host, moment, [b""]

    def settimeout(self, _: float | None) -> None:
        """Answers come at once."""

    def bind(self, _: object) -> None:
        """Any address."""

    def close(self) -> None:
        """Done."""

    def sendto(self, data: bytes, _: object) -> int:
        """A dump is asked for."""
        return self.send(data)

    def send(self, data: bytes) -> int:
        """Likewise."""
        family = data[_HEADER.size]
        rows = [_framed(_BY_FAMILY, row) for row in rows_of(self._host, self._moment, family)]
        self._answers = [b"".join(rows), _framed(_DONE, b"\0\0\0\0")]
        return len(data)

    def recv(self, _: int) -> bytes:
        """A part of the answer; the end comes by itself."""
        part = self._answers.pop(0)
        return part or self.recv(_)


def _framed(kind: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, _MULTI, 1, 0) + body + b"\0" * (-len(body) % 4)


def rows_of(host: MadeHost, moment: float, family: int) -> Iterator[bytes]:
    """The inet_diag messages of the host's own network."""
    for process in host.world.alive(moment):
        member = process.member
        if member.own_network:
            continue
        counted = False
        for number, each in enumerate(member.actor.sockets):
            if not each.open_at(moment):
                continue
            first = each.peer is not None and not counted
            counted = counted or first
            if (family == socket.AF_INET6) is each.local.startswith("["):
                moved = _moved(process, each, moment) if first else (0, 0)
                yield _row(host, process, number, each, family, moved, moment)


def _moved(process: Process, each: Socket, moment: float) -> tuple[int, int]:
    """Bytes out and in since the connection was made."""
    member, begin = process.member, max(each.begin, process.begin)
    if each.every is not None:
        begin += (moment - each.begin) // each.every * each.every
    return round(member.actor.send.total(begin, moment)), round(member.actor.net.total(begin, moment))


def _row(
    host: MadeHost, process: Process, number: int, each: Socket, family: int, moved: tuple[int, int], moment: float
) -> bytes:
    """The message about one socket."""
    member = process.member
    local, sport = _end(each.local)
    remote, dport = _end(each.peer or ("[::]:0" if family == socket.AF_INET6 else "0.0.0.0:0"))
    inode = host.inode(member, number)
    state = _LISTEN if each.peer is None else _ESTABLISHED
    turn = 0 if each.every is None else int((moment - each.begin) // each.every)
    cookie = inode | (process.pid & 0xFFFF) << 24 | (turn + 1) << 40  # one that comes again is another one
    head = _MESSAGE.pack(family, state, 0, 0, sport, dport, local, remote, 0, cookie, 0, 0, 0, member.uid, inode)
    info = bytearray(_INFO_BYTES)
    struct.pack_into("=QQ", info, _MOVED_AT, *moved)
    group = struct.pack("=Q", host.group_id(member.cgroup))
    return head + _attribute(_INFO, bytes(info)) + _attribute(_CGROUP_ID, group)


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _end(text: str) -> tuple[bytes, bytes]:
    address, _, port = text.rpartition(":")
    return ip_address(address.strip("[]")).packed.ljust(16, b"\0"), int(port).to_bytes(2, "big")


class Kernel:
    """Answers by netlink at a moment that somebody sets."""

    def __init__(self, host: MadeHost) -> None:
        """At the beginning."""
        self._host = host
        self.moment = 0.0

    @contextmanager
    def instead(self) -> Iterator[None]:
        """Within, netlink sockets lead here; others are real."""

        def make(family: int = socket.AF_INET, *more: Any, **named: Any) -> object:  # noqa: ANN401  as socket.socket
            if family == socket.AF_NETLINK:
                return _Asked(self._host, self.moment)
            return _REAL(family, *more, **named)

        with patch("socket.socket", make):
            yield
