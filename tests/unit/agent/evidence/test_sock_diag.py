"""agent/evidence/sock_diag.py: the kernel's answer and its tables are about the same sockets."""

import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.evidence import sock_diag
from gpuwatch.agent.evidence.base import Roots, UnseenError
from gpuwatch.agent.evidence.sock_diag import _PAUSE_LOOKS, Ended, Sock, read_sockets
from tests.support.fakes.host import FolderHost

needs_sock_diag = pytest.mark.skipif(sock_diag._from_kernel() is None, reason="this kernel does not offer sock_diag")


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Real connections, over IPv4, over IPv6, and over IPv4 to a socket of IPv6."""
    with ExitStack() as stack:
        made = []
        kinds = [("127.0.0.1", "127.0.0.1", socket.AF_INET)]
        if socket.has_dualstack_ipv6():
            kinds += [("::1", "::1", socket.AF_INET6), ("::", "127.0.0.1", socket.AF_INET6)]
        for bound, asked, family in kinds:
            dual = bound == "::"
            listener = stack.enter_context(socket.create_server((bound, 0), family=family, dualstack_ipv6=dual))
            client = stack.enter_context(socket.create_connection((asked, listener.getsockname()[1])))
            server, _ = listener.accept()
            made.append((client, stack.enter_context(server)))
        yield made


def by_inode(rows: list[tuple[int, Sock]]) -> dict[int, tuple[int, Sock]]:
    """Those that a process holds."""
    return {
        row.inode: (state, replace(row, cookie=0, moved=None, received=None, cgroup=None))
        for state, row in rows
        if row.inode
    }


@needs_sock_diag
def test_kernel_and_tables_show_the_same(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    """State, ends, user and inode of every socket of this process."""
    ours = {os.fstat(each.fileno()).st_ino for pair in pairs for each in pair}
    told = sock_diag._from_kernel()
    assert told is not None
    kernel, tables = by_inode(told), by_inode(sock_diag._from_tables(Roots()))

    assert ours <= kernel.keys()
    assert {each: kernel[each] for each in ours} == {each: tables[each] for each in ours}


@needs_sock_diag
def test_bytes_are_counted_in_both_directions(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    """What was received at once, what was sent when the other end has it."""
    for client, server in pairs:
        client.sendall(b"x" * 5000)
        assert len(server.recv(5000, socket.MSG_WAITALL)) == 5000
        told = sock_diag._from_kernel()
        assert told is not None
        by_socket = {row.inode: row for _, row in told}
        sent, got = by_socket[os.fstat(client.fileno()).st_ino], by_socket[os.fstat(server.fileno()).st_ino]

        assert got.moved == got.received == pytest.approx(5000, abs=2)
        assert sent.received == 0


@needs_sock_diag
def test_connections_within_the_host_do_not_leave_it(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    """Loopback of both families, mapped addresses too."""
    found = read_sockets(Roots())
    ours = {os.fstat(each.fileno()).st_ino for pair in pairs for each in pair}

    assert found.bytes_known
    assert not ours & {each.inode for each in found.leaving}
    assert {server.getsockname()[1] for _, server in pairs} <= found.listening


@pytest.mark.parametrize("refused", ["no socket", "no answer"])
def test_without_the_kernels_answer_the_tables_do(refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under seccomp, RestrictAddressFamilies=, gVisor, or without its module: no byte is known."""

    class Refused(socket.socket):
        def __init__(self, family: int = -1, *rest: int) -> None:
            if family == socket.AF_NETLINK:
                if refused == "no socket":
                    raise OSError(97, "Address family not supported by protocol")
                super().__init__(family, socket.SOCK_RAW, 16)  # generic netlink, which knows no such message
            else:
                super().__init__(family, *rest)

    monkeypatch.setattr("gpuwatch.agent.evidence.sock_diag.socket.socket", Refused)

    assert not read_sockets(Roots()).bytes_known


def test_another_hosts_proc_is_not_answered_for_by_this_kernel(tmp_path: Path) -> None:
    """Its own tables are read."""
    host = FolderHost(tmp_path)
    host.sockets(
        ("0.0.0.0:80", "0.0.0.0:0", "LISTEN", 1),
        ("10.0.0.5:80", "10.0.0.9:5000", "ESTABLISHED", 2),
        ("10.0.0.5:6000", "10.0.0.7:443", "ESTABLISHED", 3),
        ("127.0.0.1:80", "127.0.0.1:5001", "ESTABLISHED", 4),
        ("172.17.0.1:5", "10.0.0.5:80", "ESTABLISHED", 5),
    )
    found = read_sockets(host.roots)

    assert not found.bytes_known
    assert [(each.inode, found.is_accepted(each)) for each in found.leaving] == [(2, True), (3, False)]


@needs_sock_diag
def test_more_sockets_than_can_rightly_be_are_unseen(
    pairs: list[tuple[socket.socket, socket.socket]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user can have many; they are not all read."""
    assert pairs
    monkeypatch.setattr("gpuwatch.agent.evidence.sock_diag._MOST_SOCKETS", 1)

    with pytest.raises(UnseenError, match="more than 1 TCP sockets"):
        read_sockets(Roots())


def _one_ends(number: int, at: str = "127.0.0.2") -> None:
    """A connection from 127.0.0.1 to an address of loopback brings so many bytes, and ends."""
    with socket.create_server((at, 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        server, _ = listener.accept()
        with server:
            client.sendall(b"x" * number)
            client.shutdown(socket.SHUT_WR)
            while server.recv(1 << 16):
                pass


def _told(ended: Ended, number: int) -> list[Sock]:
    """What the kernel has told of connections, once it is so many ends."""
    found = list[Sock]()
    while len(found) < number:
        found += [each for each in ended._take() if each.remote[1]]
        if len(found) < number:
            assert ended._channel is not None
            assert select.select([ended._channel], [], [], 60)[0]
    return found


@needs_sock_diag
def test_the_end_of_a_connection_is_told_with_all_that_it_moved() -> None:
    """Both ends of one between two addresses; none of one within an address, which would crowd the others out."""
    ended = Ended(Roots())
    assert not list(ended._take())
    _one_ends(3000, at="127.0.0.1")
    _one_ends(5000)
    found = _told(ended, 2)

    assert {(each.local[0][-1], (each.received or 0) // 10) for each in found} == {(2, 500), (1, 0)}


def _is_followed(ended: Ended) -> bool:
    """Whether the kernel shows ends again: late ones of earlier tests, and other programs', may be too many."""
    return any((list(ended._take()), ended._channel is not None)[1] for _ in range(100 * _PAUSE_LOOKS))


def _read_until_it_rests(ended: Ended) -> list[int]:
    """How many ends each look read, while they go on."""
    counts = []
    for _ in range(20):
        _one_ends(1)
    while ended._channel is not None:
        assert select.select([ended._channel], [], [], 60)[0]
        counts.append(len(list(ended._take())))
        _one_ends(1)
    return counts


@needs_sock_diag
def test_who_has_more_ends_than_the_kernel_keeps_is_not_followed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it kept is read; it has no more work with it then, and tells again after that."""
    monkeypatch.setattr("gpuwatch.agent.evidence.sock_diag._BUFFER_BYTES", 4096)
    ended = Ended(Roots())
    assert _is_followed(ended)
    _read_until_it_rests(ended)
    for _ in range(_PAUSE_LOOKS):
        assert not list(ended._take())

    assert _is_followed(ended)


@needs_sock_diag
def test_ends_that_come_as_fast_as_they_are_read_hold_up_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look reads a bounded number, and then those after it rest as after a loss."""
    monkeypatch.setattr("gpuwatch.agent.evidence.sock_diag._MOST_ENDS", 4)
    ended = Ended(Roots())
    assert _is_followed(ended)
    assert max(_read_until_it_rests(ended)) <= 4
    assert ended._pause == _PAUSE_LOOKS
