"""agent/evidence/tunnels.py: what comes through this machine, or through a program on it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.agent.evidence.askers import Arrivals, Ask
from gpuwatch.agent.evidence.connections import Connections
from gpuwatch.agent.evidence.settings import ConnectionSettings
from gpuwatch.agent.evidence.sock_diag import Sock, Sockets
from gpuwatch.agent.evidence.socket_owners import Holders
from gpuwatch.agent.evidence.tunnels import Tunnels
from gpuwatch.agent.processes.process import Kind
from gpuwatch.model.activity import State
from tests.support.fakes.connected_host import ConnectedHost
from tests.support.nightly import examples

LOOPBACK, PORT, LOOK_SECONDS = b"\x7f\0\0\1", 7860, 10.0


def socket(cookie: int, moved: int | None = None) -> Sock:
    """The server's end of a connection over loopback; without bytes the socket on which it waits."""
    peer = (b"\0\0\0\0", 0) if moved is None else (LOOPBACK, 50000 + cookie)
    return Sock(cookie=cookie, inode=cookie, uid=0, local=(LOOPBACK, PORT), remote=peer, moved=moved, received=moved)


def used_at(
    rate: Callable[[float], float],
    hours: float,
    *,
    kind: Kind = Kind.PEOPLE,
    lasts: float = 1e9,
    begin: float = 0.0,
    away: float = 0.0,
) -> list[float]:
    """The hours at which the server is in use, where its connections move so many bytes in the second of a moment.

    For `away` seconds after the seventh hour nobody listens.
    """
    tunnels, total, said = Tunnels(), 0.0, list[float]()
    server = {1: Holders(kind=kind, seen=True)}
    for number in range(int(hours * 3600 / LOOK_SECONDS)):
        at = number * LOOK_SECONDS
        total += rate(at) * LOOK_SECONDS
        inner = (socket(2 + int(at // lasts), int(total)),) if at >= begin else ()
        there = () if 7 * 3600 <= at < 7 * 3600 + away else (socket(1),)
        found = Sockets(leaving=(), inner=inner, listening=frozenset({PORT}), bytes_known=True, listeners=there)
        if tunnels.used_ports(found, server, at):
            said.append(at / 3600)
    return said


def by_people(at: float) -> float:
    """People label something between the eighth and the tenth hour."""
    return 200.0 if 8 * 3600 <= at < 10 * 3600 else 4.0


@settings(max_examples=examples(10), deadline=None)
@given(each=st.floats(5, 3600), size=st.integers(1, 10**6), first=st.integers(0, 3600))
def test_what_polls_is_no_use(each: float, size: int, first: int) -> None:
    """A tab that was left open, figures that are read: of any period up to an hour, and of any size."""
    polled = used_at(lambda at: size * (at >= first) * (at // each != (at - LOOK_SECONDS) // each) / LOOK_SECONDS, 12)

    assert [hour for hour in polled if hour > first / 3600 + 1.5] == []


def test_people_behind_a_tunnel_use_the_server() -> None:
    """From the minute at which they come on; the machine's own server, and one that is asked by chance, say nothing."""
    evening = used_at(by_people, 12)

    assert evening
    assert 8 <= evening[0] < 8.1
    assert evening[-1] < 9
    assert used_at(by_people, 12, begin=8 * 3600)
    assert not used_at(by_people, 12, kind=Kind.SERVICE)
    assert not used_at(by_people, 12, lasts=30.0)


@pytest.mark.parametrize(("away", "is_seen"), [(10.0, True), (590.0, True), (660.0, False)])
def test_a_server_that_is_away_for_minutes_keeps_what_is_known_of_it(away: float, is_seen: bool) -> None:
    """People who come half an hour after its restart are seen; after a longer time away it is a new server."""
    used = used_at(lambda at: 200.0 if at >= 7.5 * 3600 else 4.0, 7.9, away=away)

    assert bool(used) is is_seen


@pytest.mark.parametrize(("port", "says"), [(PORT, State.BUSY), (PORT + 1, State.IDLE)])
def test_it_makes_the_node_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: int, says: State) -> None:
    """Through the signal: by a server that a person's program has; the other port is nobody's."""
    host = ConnectedHost(tmp_path)
    host.runs(42, Kind.PEOPLE, 1)
    for number in range(70):
        inner = socket(2, 0 if number < 65 else 9000 * (number - 64))
        found = Sockets(
            leaving=(),
            inner=(inner,) if port == PORT else (),
            listening=frozenset({PORT}),
            bytes_known=True,
            listeners=(socket(1),),
        )
        monkeypatch.setattr("gpuwatch.agent.evidence.connections.read_sockets", lambda _, found=found: found)
        seen = host.look(60)

    assert seen.says is says
    assert says is State.IDLE or seen.note == f"tcp {PORT} here is asked over loopback for more than before"


def test_who_reaches_others_by_ssh_is_due_at_that_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jump host's nightly job is told to the memory of days, and what a person's program asks elsewhere is not."""
    host, told = ConnectedHost(tmp_path), list[frozenset[str]]()
    signal = Connections(ConnectionSettings(), host.roots, on_asked=lambda ports, _: told.append(frozenset(ports)))
    host.runs(7, Kind.SESSION, 501, name="sshd")
    host.runs(8, Kind.PEOPLE, 502, name="python")
    here, there = b"\x0a\0\0\x05", b"\x0a\0\0\x09"
    rows = tuple(
        Sock(cookie=inode, inode=inode, uid=0, local=(here, 50000 + inode), remote=(there, port), moved=0, received=0)
        for inode, port in ((501, 22), (502, 5432))
    )
    for seconds, leaving in ((1, ()), (10, rows), (70, rows), (10, ())):
        host.pass_time(seconds)
        found = Sockets(leaving=leaving, listening=frozenset(), bytes_known=True)
        monkeypatch.setattr("gpuwatch.agent.evidence.connections.read_sockets", lambda _, found=found: found)
        (seen,) = signal.find_evidence(replace(host.moment(), processes=host.view()))

    assert told == [{"ssh 22"}]
    assert seen.says is State.IDLE


@pytest.mark.parametrize("reached", [(), (22, 80, 443), (8888, 6006, 5000, 3000)])
def test_who_is_reached_through_here_at_many_ports_scans_nothing(reached: tuple[int, ...]) -> None:
    """Its own visit counts, and so do four ports that somebody's SSH passes on."""
    arrivals, peer = Arrivals(), bytes((10, 0, 0, 9))
    asks = {Ask(peer=peer, port=8000), *(Ask(peer=peer, port=port, protocol="ssh") for port in reached)}
    arrivals.take((), 0.0)
    arrivals.take(asks, 10.0)
    came = arrivals.take(asks, 70.0)

    assert came.used == {"tcp 8000", *(f"ssh {port}" for port in reached)}
    assert "tcp 8000" in came.ports
