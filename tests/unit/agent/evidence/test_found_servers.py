"""agent/evidence/found_servers.py: servers that nobody named are asked; monitoring of one that is quiet is no use."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.evidence.connections import Connections
from gpuwatch.agent.evidence.model_servers import ModelServers
from gpuwatch.agent.evidence.settings import ConnectionSettings, ModelServerSettings
from gpuwatch.agent.evidence.sock_diag import Sock, Sockets
from gpuwatch.agent.processes.process import Kind
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.connected_host import ConnectedHost
from tests.support.fakes.page_server import PageServer

LISTENER, CLIENT = 501, 502


@pytest.fixture
def server() -> Iterator[PageServer]:
    """A server that runs."""
    made = PageServer()
    yield made
    made.stop()


class Watched:
    """A host with one server of somebody's, scraped by another machine all the time."""

    def __init__(self, root: Path, port: int, *, name: str = "vllm", kind: Kind = Kind.PEOPLE) -> None:
        self.host = ConnectedHost(root)
        self.host.runs(42, kind, LISTENER, CLIENT, name=name)
        self.port, self.moved = port, 0
        self.servers = ModelServers(ModelServerSettings(), self.host.roots, 5.0)
        self.connections = Connections(ConnectionSettings(), self.host.roots)
        self.connections.quiet_ports = self.servers.quiet_ports

    def after(self, seconds: float, patch: pytest.MonkeyPatch) -> tuple[tuple[Evidence, ...], State]:
        """What the servers' signal says so much later, and the connections'."""
        self.moved += round(4000 * seconds)
        there = (b"\x0a\0\0\x09", 40000)
        rows = Sockets(
            leaving=(
                Sock(cookie=2, inode=CLIENT, uid=0, local=(b"\x0a\0\0\5", self.port), remote=there, moved=self.moved),
            ),
            listening=frozenset({self.port}),
            listeners=(Sock(cookie=1, inode=LISTENER, uid=0, local=(b"\0\0\0\0", self.port), remote=(b"\0\0\0\0", 0)),),
            bytes_known=True,
        )
        for module in ("connections", "found_servers"):
            patch.setattr(f"gpuwatch.agent.evidence.{module}.read_sockets", lambda _: rows)
        self.host.pass_time(seconds)
        moment = replace(self.host.moment(), processes=self.host.view())
        found = self.servers.look(moment)
        return found, self.connections.look(moment)[0].says


def test_monitoring_of_a_server_that_nobody_asks_is_no_use(
    tmp_path: Path, server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Busy for the half hour in which it is not known to be quiet; a request is use at once, and for half an hour."""
    watched = Watched(tmp_path, server.port)
    server.shows(requests=7)
    said = [watched.after(seconds, monkeypatch) for seconds in (1, 60, 1680, 120, 60)]
    server.shows(requests=8)
    asked = watched.after(60, monkeypatch)

    assert [each for _, each in said[1:]] == [State.BUSY, State.BUSY, State.IDLE, State.IDLE]
    assert not any(found for found, _ in said)
    assert [each.says for each in asked[0]] == [State.BUSY]
    assert asked[1] is State.BUSY


@pytest.mark.parametrize("raw", [b"HTTP/1.1 401 Unauthorized\r\n\r\n", b"hello\r\n", b"HTTP/1.1 200 OK\r\n\r\nup 1\n"])
def test_a_server_that_hides_its_counters_says_nothing(
    tmp_path: Path, server: PageServer, monkeypatch: pytest.MonkeyPatch, raw: bytes
) -> None:
    """Nobody named it, so it is no doubt; its clients count, and it is not asked each time."""
    watched = Watched(tmp_path, server.port)
    server.raw = raw
    said = [watched.after(seconds, monkeypatch) for seconds in (1, 60, 60, 60)]

    assert said[-1] == ((), State.BUSY)
    assert len(server.asked) == 1


@pytest.mark.parametrize(("name", "kind"), [("uvicorn", Kind.PEOPLE), ("vllm", Kind.SERVICE)])
def test_nobody_else_is_asked(
    tmp_path: Path, server: PageServer, monkeypatch: pytest.MonkeyPatch, name: str, kind: Kind
) -> None:
    """Only people's programs that are known to count their requests."""
    watched = Watched(tmp_path, server.port, name=name, kind=kind)
    watched.after(60, monkeypatch)

    assert not server.asked


def test_what_was_seen_long_ago_says_nothing(
    tmp_path: Path, server: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that hangs leaves its last word behind."""
    watched = Watched(tmp_path, server.port)
    for seconds in (1, 60, 1800):
        watched.after(seconds, monkeypatch)
    at = watched.host.clock.monotonic()

    assert watched.servers.quiet_ports(at + 60) == {server.port}
    assert not watched.servers.quiet_ports(at + 121)
