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
from tests.support.fakes.connected_host import CONTAINER_NETWORK, ConnectedHost
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
        quiet = self.servers.quiet_ports
        self.connections = Connections(ConnectionSettings(), self.host.roots, quiet_ports=quiet)

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
        found = self.servers.find_evidence(moment)
        return found, self.connections.find_evidence(moment)[0].says


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


ROUTES = (
    "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     |-- 172.17.0.0\n"
    "        /16 link UNICAST\nLocal:\n     |-- 127.0.0.1\n        /32 host LOCAL\n"
    "     |-- {}\n        /32 host LOCAL\n"
)
ANYWHERE = "0.0.0.0"  # noqa: S104  nothing is bound
PROXY = "docker-proxy -proto {} -host-ip {} -host-port {} -container-ip {} -container-port 8000"


class Contained:
    """A host with one server in a container, whose port Docker publishes, scraped by another machine all the time."""

    def __init__(
        self, root: Path, port: int, *, address: str = "172.17.0.2", protocol: str = "tcp", on: str = ANYWHERE
    ) -> None:
        self.host = ConnectedHost(root)
        self.host.runs(42, Kind.PEOPLE, name="vllm", network=CONTAINER_NETWORK)
        self.host.runs(50, Kind.SERVICE, name="docker-proxy")
        self.host.write("proc/50/cmdline", PROXY.format(protocol, on, port, address).replace(" ", "\0") + "\0")
        self.host.write("proc/42/net/fib_trie", ROUTES.format("172.17.0.2"))
        self.moved = 0
        self.servers = ModelServers(ModelServerSettings(), self.host.roots, 5.0)
        quiet = self.servers.quiet_spaces
        self.connections = Connections(ConnectionSettings(), self.host.roots, quiet_spaces=quiet)

    def after(self, seconds: float, rate: float = 4000.0) -> tuple[list[State], State]:
        """What the servers' signal says so much later, and the connections'."""
        self.moved += round(rate * seconds)
        self.host.cards(42, eth0=self.moved)
        self.host.pass_time(seconds)
        moment = replace(self.host.moment(), processes=self.host.view())
        found = self.servers.find_evidence(moment)
        return [each.says for each in found], self.connections.find_evidence(moment)[0].says

    def until_quiet(self) -> State:
        """What the connections' signal says when the server was not asked for longer than half an hour."""
        return [self.after(seconds)[1] for seconds in (1, 60, 1800, 60, 60)][-1]


def test_monitoring_of_a_published_server_is_no_use(tmp_path: Path, server: PageServer) -> None:
    """A request, and more than monitoring moves (a model is fetched), is use at once."""
    made = Contained(tmp_path, server.port)
    server.shows(requests=7)
    quiet = made.until_quiet()
    fetched = made.after(60, rate=50_000.0)[1]
    again = [made.after(60)[1] for _ in range(2)][-1]
    server.shows(requests=8)
    asked = made.after(60)

    assert (quiet, fetched, again) == (State.IDLE, State.BUSY, State.IDLE)
    assert asked == ([State.BUSY], State.BUSY)


@pytest.mark.parametrize(
    ("address", "protocol", "on"),
    [("172.17.0.3", "tcp", ANYWHERE), ("172.17.0.2", "udp", ANYWHERE), ("172.17.0.2", "tcp", "10.0.1.5")],
)
def test_a_port_that_leads_elsewhere_is_not_asked(
    tmp_path: Path, server: PageServer, address: str, protocol: str, on: str
) -> None:
    """Another's page, on the same port of loopback, would speak for this one."""
    server.shows(requests=7)
    made = Contained(tmp_path, server.port, address=address, protocol=protocol, on=on)

    assert made.until_quiet() is State.BUSY
    assert not server.asked


def test_a_container_with_another_program_is_busy_by_its_traffic(tmp_path: Path, server: PageServer) -> None:
    """Whose bytes they are is not known; another container of the same network counts, too."""
    server.shows(requests=7)
    made = Contained(tmp_path, server.port)
    made.host.runs(43, Kind.PEOPLE, name="rclone", network=CONTAINER_NETWORK)

    assert made.until_quiet() is State.BUSY
    assert not server.asked


def test_a_published_server_that_hides_its_counters_is_busy_by_its_traffic(tmp_path: Path, server: PageServer) -> None:
    """As before."""
    server.raw = b"HTTP/1.1 401 Unauthorized\r\n\r\n"

    assert Contained(tmp_path, server.port).until_quiet() is State.BUSY
