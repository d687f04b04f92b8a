"""agent/evidence/connections.py on made hosts: without byte counts, and containers with networks of their own."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.evidence.askers import Ask
from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.net_namespaces import asks_inside, namespaces
from gpuwatch.agent.evidence.sock_diag import Sock, Sockets
from gpuwatch.agent.processes.pool import COMMON
from gpuwatch.agent.processes.process import Kind
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.connected_host import CONTAINER_NETWORK, ConnectedHost

HERE, ELSEWHERE = "10.0.0.5", "10.0.0.9"
CLIENT = (f"{HERE}:8265", f"{ELSEWHERE}:40000", "ESTABLISHED", 501)
LISTENER = ("0.0.0.0:8265", "0.0.0.0:0", "LISTEN", 500)
OUTGOING = (f"{HERE}:50000", f"{ELSEWHERE}:443", "ESTABLISHED", 502)


@pytest.fixture
def host(tmp_path: Path) -> ConnectedHost:
    """A host without connections, looked at once."""
    made = ConnectedHost(tmp_path)

    assert made.look().says is State.UNKNOWN
    return made


def test_without_connections_it_is_idle(host: ConnectedHost) -> None:
    """Listeners alone serve nobody; neither do connections within the host."""
    host.sockets(
        LISTENER,
        ("127.0.0.1:8265", "127.0.0.1:40000", "ESTABLISHED", 501),
        (f"{HERE}:8265", f"{HERE}:40000", "ESTABLISHED", 502),
    )
    host.runs(42, Kind.PEOPLE, 500, 501, 502)
    found = host.look()

    assert (found.says, found.note) == (State.IDLE, "nobody's program is connected to another machine")


def test_a_ray_head_with_workers_elsewhere_is_busy(host: ConnectedHost) -> None:
    """How much is moved is not known here: somebody's program that others are connected to serves them."""
    host.sockets(LISTENER, CLIENT, (f"{HERE}:8265", f"{ELSEWHERE}:40001", "ESTABLISHED", 503))
    host.runs(42, Kind.PEOPLE, 500, 501, 503, name="gcs_server")
    found = host.look()

    assert (found.says, found.note) == (State.BUSY, "serves 2 clients; how much they move is not known")
    assert found.owner is not None
    assert (found.owner.process, found.owner.pid) == ("gcs_server", 42)


def test_what_is_common_in_the_pool_is_in_use_by_its_clients_and_not_by_its_port(host: ConnectedHost) -> None:
    """Every machine of the pool may be asked there; a web server of the company's that is asked has users."""
    said = []
    for open_ones in ((LISTENER,), (LISTENER, CLIENT)):
        host.sockets(*open_ones)
        host.runs(42, Kind.SERVICE, 500, 501, name="acmed")
        host.running[42] = replace(host.running[42], rule=f"{COMMON}on 12 of 12 machines")
        said.append(host.look(61).says)

    assert said == [State.IDLE, State.BUSY]


def test_a_program_that_is_connected_to_a_server_elsewhere_is_idle_by_itself(host: ConnectedHost) -> None:
    """How much is moved is not known; that its process is alive is another signal's to say."""
    host.sockets(OUTGOING)
    host.runs(42, Kind.PEOPLE, 502)
    found = host.look()

    assert (found.says, found.note) == (State.IDLE, "1 connection, silent")


@pytest.mark.parametrize("kind", [Kind.SERVICE, Kind.SESSION])
def test_the_machines_own_connections_say_nothing(host: ConnectedHost, kind: Kind) -> None:
    """SSH, exporters, log shippers, agents of the cloud."""
    host.sockets(LISTENER, CLIENT, OUTGOING)
    host.runs(42, kind, 500, 501, 502, name="sshd")
    found = host.look()

    assert (found.says, found.note) == (State.IDLE, "nobody's program is connected to another machine")


def test_a_health_check_is_no_use_after_a_day_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks three times in two minutes, also while people keep the server busy for some minutes of each hour."""
    host = ConnectedHost(tmp_path)
    host.runs(42, Kind.PEOPLE, 1)
    monkeypatch.setattr("gpuwatch.agent.evidence.sock_diag.Ended.are_known", property(lambda _: True))
    listener = Sock(cookie=1, inode=1, uid=0, local=(bytes(4), 80), remote=(bytes(4), 0))
    moved, said = 0, list[Evidence]()
    for minute in range(0, 14 * 60, 2):
        moved += 10**10 if minute % 60 < minute // 30 else 0
        user = replace(
            listener, cookie=2, local=(bytes((10, 0, 0, 5)), 80), remote=(bytes((9, 9, 9, 9)), 9), moved=moved
        )
        checks = (
            replace(user, cookie=10 * minute + number, remote=(bytes((10, 0, 0, 9)), 9), moved=99)
            for number in (3, 4, 5)
        )
        found = Sockets(
            leaving=(replace(user, received=moved), *(replace(each, received=9) for each in checks)),
            listening=frozenset({80}),
            bytes_known=True,
            listeners=(listener,),
        )
        monkeypatch.setattr("gpuwatch.agent.evidence.connections.read_sockets", lambda _, found=found: found)
        said.append(host.look(120))

    assert sum(each.says is State.BUSY for each in said) > 30
    assert [each.note for each in said if "again and again" in (each.note or "")] == []


def test_what_a_persons_process_holds_too_is_the_persons(host: ConnectedHost) -> None:
    """A service that starts it hands the connection on."""
    host.sockets(LISTENER, CLIENT)
    host.runs(1, Kind.SERVICE, 500, 501, name="systemd")
    host.runs(42, Kind.PEOPLE, 501)

    assert host.look().says is State.BUSY


@pytest.mark.parametrize("why", ["no look", "doubt", "no holder"])
def test_a_connection_that_cannot_be_attributed_is_somebodys(host: ConnectedHost, why: str) -> None:
    """Where the processes are not known, or may hide some, or none of them holds it."""
    host.sockets(LISTENER, CLIENT)
    host.known = why != "no look"
    host.doubt = "hidepid" if why == "doubt" else None
    host.runs(42, Kind.SERVICE, 500, name="x")
    found = host.look()

    assert found.says is State.BUSY
    assert found.owner is not None


def test_with_a_doubt_what_is_seen_to_be_a_services_is_a_services(host: ConnectedHost) -> None:
    """The doubt is about processes that are not seen."""
    host.sockets(LISTENER, CLIENT)
    host.doubt = "hidepid"
    host.runs(42, Kind.SERVICE, 501, name="sshd")

    assert host.look().says is State.IDLE


def test_the_agents_own_connections_do_not_count(host: ConnectedHost) -> None:
    """The controller's question is no work, known processes or not."""
    host.sockets(("0.0.0.0:9460", "0.0.0.0:0", "LISTEN", 500), (f"{HERE}:9460", "10.0.0.9:1", "ESTABLISHED", 501))
    host.link("proc/self/fd/5", "socket:[501]")
    host.known = False

    assert host.look().says is State.IDLE


def test_a_connection_that_is_handed_on_is_noticed(host: ConnectedHost) -> None:
    """Within a minute, or when its first holder ends."""
    host.sockets(LISTENER, CLIENT)
    host.runs(42, Kind.SERVICE, 501, name="inetd")
    before = host.look()
    host.runs(43, Kind.PEOPLE, 501)
    kept = host.look(1.0)
    after = host.look(60.0)

    assert (before.says, kept.says, after.says) == (State.IDLE, State.IDLE, State.BUSY)
    del host.running[42]
    assert host.look(1.0).says is State.BUSY


# Containers.


def in_container(host: ConnectedHost, pid: int = 42, **moved: int) -> None:
    """A person's process in a container whose cards have moved so much."""
    host.runs(pid, Kind.PEOPLE, network=CONTAINER_NETWORK)
    host.cards(pid, **moved)


@pytest.mark.parametrize(
    ("moved", "says"),
    [
        ({"eth0": 70_000}, State.BUSY),
        ({"eth0": 50_000}, State.IDLE),
        ({"eth0": 0, "lo": 9_000_000}, State.IDLE),
        ({"eth0": 40_000, "net1": 40_000}, State.BUSY),
    ],
)
def test_what_a_container_moves_in_a_minute(host: ConnectedHost, moved: dict[str, int], says: State) -> None:
    """More than 1 kB/s of all its cards; loopback is within it."""
    in_container(host, **dict.fromkeys(moved, 0))
    new = host.look()
    for _ in range(6):
        host.look()
    in_container(host, **moved)
    found = host.look(10.0)

    assert new.says is State.UNKNOWN
    assert found.says is says
    if says is State.BUSY:
        assert found.owner is not None
        assert (found.owner.unit, found.owner.pid) == ("container 0123456789ab", 42)
        assert found.setting == "agent.evidence.connections.busy_bytes_per_second"


@pytest.mark.parametrize(
    ("peer", "says"), [("10.0.20.31", State.BUSY), ("172.17.0.1", State.IDLE), ("127.0.0.1", State.IDLE)]
)
def test_another_machine_that_comes_to_a_server_in_a_container_uses_it(
    host: ConnectedHost, peer: str, says: State
) -> None:
    """What it asks shows in the container's own sockets; this host's health check does not count."""
    host.write("proc/net/fib_trie", "  |-- 172.17.0.1\n     /32 host LOCAL\n")
    in_container(host, eth0=0)
    listens, asked = ("0.0.0.0:9000", "0.0.0.0:0", "LISTEN", 500), ("172.17.0.2:9000", f"{peer}:50110", "TIME_WAIT", 0)
    host.sockets(listens, net="proc/42/net")
    for _ in range(8):
        host.look()
    in_container(host, eth0=900)
    host.sockets(listens, asked, net="proc/42/net")
    host.look()
    found = [host.look() for _ in range(7)]

    assert {each.says for each in found} - {State.IDLE} == ({says} - {State.IDLE})
    assert says is State.IDLE or "another machine has come to tcp 9000 here" in {each.note for each in found}


def test_a_container_with_many_sockets_does_not_hold_the_agent_up(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first thousands are read: one with so many clients is in use by its bytes."""
    monkeypatch.setattr("gpuwatch.agent.evidence.net_namespaces._MOST_SOCKETS", 3)
    listens = ("0.0.0.0:9000", "0.0.0.0:0", "LISTEN", 500)
    clients = [("172.17.0.2:9000", f"10.0.20.{number}:50110", "ESTABLISHED", number) for number in range(1, 9)]
    host.sockets(listens, *clients, net="proc/42/net")
    in_container(host, eth0=0)
    before = namespaces(host.roots, host.running.values())
    in_container(host, eth0=900)
    asks = asks_inside(host.roots, namespaces(host.roots, host.running.values()), before)

    assert asks == {Ask(peer=bytes((10, 0, 20, number)), port=9000) for number in (1, 2)}


def test_a_network_counts_once_however_many_processes_share_it(host: ConnectedHost) -> None:
    """The containers of a pod, and all processes of one."""
    for pid in (42, 43, 44):
        in_container(host, pid, eth0=0)
    host.look()
    host.look()
    for pid in (42, 43, 44):
        in_container(host, pid, eth0=50_000)

    assert host.look(60.0).says is State.IDLE


def test_containers_of_the_machines_own_do_not_count(host: ConnectedHost) -> None:
    """Exporters and log shippers run in containers, too."""
    host.runs(42, Kind.SERVICE, network=CONTAINER_NETWORK)
    host.cards(42, eth0=0)
    host.look()
    host.cards(42, eth0=9_000_000)

    assert host.look().says is State.IDLE


def test_without_the_right_to_see_networks_a_container_has_its_own(host: ConnectedHost) -> None:
    """Unless its cards show exactly what the host's do: then it shares the host's network."""
    host.cards(42, eth0=0)
    host.write("proc/net/dev", (host.root / "proc/42/net/dev").read_text())
    host.runs(42, Kind.PEOPLE, network=CONTAINER_NETWORK)
    (host.root / "proc/42/ns/net").unlink()
    shared = host.look()
    host.cards(42, eth0=9_000_000)
    own = host.look()
    host.cards(42, eth0=19_000_000)

    assert (shared.says, own.says, host.look().says) == (State.IDLE, State.UNKNOWN, State.BUSY)


def test_an_agent_without_the_hosts_network_knows_nothing(host: ConnectedHost) -> None:
    """It sees its own container's connections alone."""
    host.link("proc/self/ns/net", CONTAINER_NETWORK)
    found = host.told(host.signal)

    assert [each.says for each in found] == [State.UNKNOWN]
    assert found[0].note == "the agent is in a network namespace of its own: give it the host's network"


@pytest.mark.parametrize("broken", ["proc/net/tcp", "proc/42/net/dev"])
def test_a_broken_table_is_unknown(host: ConnectedHost, broken: str) -> None:
    """And the look after it begins anew."""
    in_container(host, eth0=0)
    host.look()
    kept = (host.root / broken).read_bytes()
    host.write(broken, b"a\nb\n garbage\n")
    with pytest.raises(UnseenError, match="unexpected line"):
        host.look()
    host.write(broken, kept)

    assert (host.look().says, host.look().says) == (State.UNKNOWN, State.IDLE)


def test_a_process_that_ends_while_we_look_is_passed_over(host: ConnectedHost) -> None:
    """Its files are gone."""
    host.runs(42, Kind.PEOPLE, network=CONTAINER_NETWORK)

    assert host.look().says is State.IDLE


# Whoever may make many sockets or namespaces must not hold the agent up.


def test_more_open_files_than_are_looked_at_hide_nothing(host: ConnectedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not found for that reason is somebody's, unless its control group or user is known."""
    monkeypatch.setattr("gpuwatch.agent.evidence.socket_owners._MOST_FILES", 2)
    host.sockets(LISTENER, CLIENT)
    host.runs(42, Kind.PEOPLE, 601, 602, 603, uid=0)
    host.runs(43, Kind.SERVICE, 501, name="sshd", uid=0)

    assert host.look().says is State.BUSY


def test_more_networks_than_can_rightly_be_are_unknown(host: ConnectedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not all read."""
    monkeypatch.setattr("gpuwatch.agent.evidence.net_namespaces._MOST_NAMESPACES", 3)
    for pid in range(42, 46):
        host.runs(pid, Kind.PEOPLE, network=f"net:[{pid}]")
        host.cards(pid, eth0=0)

    with pytest.raises(UnseenError, match="more than 3 network namespaces"):
        host.look()


@pytest.mark.parametrize("text", ["", "a\nb\n", "a\nb\n eth0: 1\n", "a\nb\n eth0: x 0 0 0 0 0 0 0 0\n"])
def test_cards_that_cannot_be_read_are_unknown(host: ConnectedHost, text: str) -> None:
    """Nothing, or garbage, where a container's counters were."""
    in_container(host, eth0=10**9)
    host.look()
    host.write("proc/42/net/dev", text)
    try:
        says = host.look().says
    except UnseenError:
        says = State.UNKNOWN

    assert says is State.UNKNOWN
