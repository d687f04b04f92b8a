"""agent/evidence/connections.py where the kernel tells bytes, and the control group that made a connection."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.evidence.connections import Connections
from gpuwatch.agent.evidence.settings import ConnectionSettings
from gpuwatch.agent.evidence.sock_diag import Grown, Sock, Sockets
from gpuwatch.agent.evidence.socket_owners import SocketOwners
from gpuwatch.agent.processes.kinds import PACKAGED
from gpuwatch.agent.processes.process import Kind
from gpuwatch.model.activity import State
from tests.support.fakes.connected_host import ConnectedHost
from tests.support.nightly import examples

NFS_PORT, WEB_PORT, OUTGOING = 2049, 8265, 51414


def connection(  # noqa: PLR0913  the parts of a connection
    cookie: int,
    inode: int,
    moved: int | None = None,
    *,
    port: int = WEB_PORT,
    uid: int = 0,
    cgroup: int | None = None,
    received: int | None = None,
    peer: int = 9,
) -> Sock:
    """One from elsewhere."""
    local, remote = (b"\x0a\0\0\x05", port), (bytes((10, 0, 0, peer)), 40000)
    return Sock(
        cookie=cookie,
        inode=inode,
        uid=uid,
        local=local,
        remote=remote,
        moved=moved,
        received=moved if received is None else received,
        cgroup=cgroup,
    )


@pytest.fixture
def host(tmp_path: Path) -> ConnectedHost:
    """A host without connections, looked at once."""
    made = ConnectedHost(tmp_path)

    assert made.look().says is State.UNKNOWN
    return made


def tells(monkeypatch: pytest.MonkeyPatch, *rows: Sock) -> None:
    """What the kernel answers from now on."""
    found = Sockets(leaving=rows, listening=frozenset({8265, 2049}), bytes_known=True)
    monkeypatch.setattr("gpuwatch.agent.evidence.connections.read_sockets", lambda _: found)


def group(host: ConnectedHost, path: str, *pids: int) -> int:
    """The id of the control group of these processes."""
    for pid in pids:
        host.write(f"proc/{pid}/cgroup", f"1:name=systemd:/\n0::{path}\n")
    folder = host.root / "sys/fs/cgroup" / path.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.stat().st_ino


@pytest.mark.parametrize(("each", "says"), [(0, State.IDLE), (300, State.IDLE), (700, State.BUSY)])
def test_peoples_connections_count_together(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch, each: int, says: State
) -> None:
    """Two that move 700 bytes a second each are busy; what a service asks elsewhere is left out."""
    host.runs(42, Kind.PEOPLE, 501, name="a")
    host.runs(43, Kind.PEOPLE, 502, name="b")
    host.runs(44, Kind.SERVICE, 503, name="fluent-bit")
    for at in (0, 10):
        rows = [connection(n, n, at * each + n * at) for n in (501, 502)]
        tells(monkeypatch, *rows, connection(503, 503, at * 10**6, port=OUTGOING))
        host.look()
    found = host.look(0.001)

    assert found.says is says
    if says is State.BUSY:
        assert found.owner is not None
        assert (found.note, found.owner.process) == ("serves 2 clients", "b")


@settings(max_examples=examples(30))
@given(
    looks=st.lists(st.tuples(st.floats(1, 120), st.integers(0, 200_000), st.integers(0, 10**9)), min_size=1, max_size=8)
)
@example(looks=[(1.0, 1002, 0), (60.0, 60_000, 0)])
def test_services_change_nothing_and_people_are_never_lost(
    tmp_path_factory: pytest.TempPathFactory, looks: list[tuple[float, int, int]]
) -> None:
    """Whatever services ask elsewhere, it says the same; idle means that people moved no more than the limit."""
    host = ConnectedHost(tmp_path_factory.mktemp("host"))
    host.runs(42, Kind.PEOPLE, 501)
    host.runs(43, Kind.SERVICE, 502)
    other = Connections(ConnectionSettings(), host.roots)
    peoples = services = 0
    past: list[tuple[float, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        for seconds, by_people, by_service in [(1.0, 0, 0), *looks]:
            peoples, services = peoples + by_people, services + by_service
            tells(patch, connection(1, 501, peoples), connection(2, 502, services, port=OUTGOING))
            found = host.look(seconds)
            tells(patch, connection(1, 501, peoples))
            (alone,) = other.find_evidence(replace(host.moment(), processes=host.view()))
            at = host.clock.monotonic()
            past.append((at, peoples))
            minute = [each for each in past if at - each[0] < 60.0]

            assert (found.says, found.observed) == (alone.says, alone.observed)
            if found.says is State.IDLE and len(past) > 1:
                begin = past[max(0, len(past) - len(minute) - 1)]
                assert peoples - begin[1] <= 1000.0 * (at - begin[0]) + 1


def test_a_connection_that_came_and_moved_much_is_work(host: ConnectedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it since the last look; once it is gone, the minute's mean keeps it, and that it came, for a look."""
    host.runs(42, Kind.PEOPLE, 501)
    tells(monkeypatch)
    host.look()
    tells(monkeypatch, connection(9, 501, 100_000))
    came = host.look()
    tells(monkeypatch)

    after = [host.look(seconds) for seconds in (10, 120, 10)]
    assert [each.says for each in (came, *after)] == [State.BUSY, State.BUSY, State.BUSY, State.IDLE]
    assert after[1].note == f"another machine has come to tcp {connection(9, 501, 0).local[1]} here"


@pytest.mark.parametrize(
    ("thread", "port", "says"),
    [("nfsd", NFS_PORT, State.BUSY), ("nfsd", WEB_PORT, State.IDLE), ("kworker/0:1", NFS_PORT, State.IDLE)],
    ids=["nfsd", "another port", "another thread"],
)
def test_the_kernels_nfs_server_serves_people(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch, thread: str, port: int, says: State
) -> None:
    """No process holds the kernel's connections, and its threads' group has made them; an NFS client says nothing."""
    host.runs(7, Kind.KERNEL, name=thread, uid=0)
    host.runs(1, Kind.SERVICE, name="systemd", uid=0)
    made_by = group(host, "/", 7)
    group(host, "/init.scope", 1)
    for moved in (0, 900_000):
        tells(monkeypatch, connection(1, 501, moved, port=port, cgroup=made_by))
        found = host.look()

    assert found.says is says
    if says is State.BUSY:
        assert found.owner is not None
        assert found.owner.process == "nfsd"


def test_a_silent_client_of_the_kernels_server_keeps_the_node_and_is_remembered(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has mounted from here hangs when the node stops; a client that has gone may come back for four hours."""
    host.runs(7, Kind.KERNEL, name="nfsd", uid=0)
    made_by = group(host, "/", 7)
    tells(monkeypatch, connection(1, 501, 0, port=NFS_PORT, cgroup=made_by))
    host.look()
    silent = host.look(60)
    tells(monkeypatch)
    gone, forgotten = host.look(4 * 3600.0), host.look(1)

    assert [each.says for each in (silent, gone, forgotten)] == [State.BUSY, State.OCCUPIED, State.IDLE]
    assert (silent.note, gone.note) == ("serves 1 client, which would hang", "serves 1 client, 4h ago, silent")
    assert silent.owner is not None
    assert silent.owner.process == "nfsd"


@pytest.mark.parametrize(
    ("thread", "port", "says"),
    [
        ("nfsd", 2049, State.BUSY),
        ("ksmbd:12", 445, State.BUSY),
        ("iscsi_np", 3260, State.BUSY),
        ("nvmet_tcp_wq", 4420, State.BUSY),
        ("kworker/R-nvmet", 4420, State.BUSY),
        ("nfsd", 445, State.IDLE),
        ("kworker/0:1", 3260, State.IDLE),
        (None, 5432, State.OCCUPIED),
    ],
)
def test_servers_of_files_disks_and_packages_have_clients(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch, thread: str | None, port: int, says: State
) -> None:
    """The kernel's are known by port and thread; a package's server, such as a database, by its unit."""
    if thread is None:
        host.runs(7, Kind.SERVICE, 501, name="postgres")
        host.running[7] = replace(host.running[7], rule=PACKAGED)
    else:
        host.runs(7, Kind.KERNEL, name=thread, uid=0)
    made_by = group(host, "/", 7)
    found = Sockets(
        leaving=(connection(1, 501, 0, port=port, cgroup=made_by),), listening=frozenset({port}), bytes_known=True
    )
    monkeypatch.setattr("gpuwatch.agent.evidence.connections.read_sockets", lambda _: found)
    host.look()
    host.look(60)  # they have come

    assert host.look(60).says is says


def test_a_packages_server_that_others_may_ask_occupies(host: ConnectedHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients may come and go between two looks. One on loopback, or of the machine's own, does not occupy."""

    def listening(address: bytes, *, packaged: bool) -> State:
        host.runs(7, Kind.SERVICE, 501, name="postgres")
        host.running[7] = replace(host.running[7], rule=PACKAGED if packaged else "program of the machine's own")
        row = Sock(cookie=1, inode=501, uid=0, local=(address, 5432), remote=(b"\0\0\0\0", 0))
        listeners = () if row.is_local else (row,)
        found = Sockets(leaving=(), listening=frozenset({5432}), bytes_known=True, listeners=listeners)
        monkeypatch.setattr("gpuwatch.agent.evidence.connections.read_sockets", lambda _: found)
        host.look()
        return host.look(60).says

    assert listening(b"\0\0\0\0", packaged=True) is State.OCCUPIED
    assert listening(b"\x7f\0\0\1", packaged=True) is State.IDLE
    host.look(2 * 3600.0)  # its first user did not come
    assert listening(b"\0\0\0\0", packaged=False) is State.IDLE


@pytest.mark.parametrize("rule", [PACKAGED, "user's program"])
def test_a_query_that_stands_out_from_keep_alives_is_use(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """A small question to a database, a licence that is checked out: far below the limit, and more than usual."""
    host.runs(7, Kind.SERVICE if rule == PACKAGED else Kind.PEOPLE, 501, name="server")
    host.running[7] = replace(host.running[7], rule=rule)
    moved, said = 0, []
    for minute in range(12):
        moved += 3000 if minute == 10 else 120
        tells(monkeypatch, connection(1, 501, moved))
        said.append(host.look(60).says)

    assert State.BUSY not in (said[0], *said[2:10])
    assert said[1] is State.BUSY, "it has come"
    assert said[10:] == [State.BUSY, State.OCCUPIED if rule == PACKAGED else State.IDLE]


@pytest.mark.parametrize(("each", "says"), [(700, State.IDLE), (6000, State.BUSY)])
def test_whoever_types_through_this_machine_keeps_it(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch, each: int, says: State
) -> None:
    """`ssh -J`: the login's sshd holds the connection onward. Keep-alives through it are nobody."""
    host.runs(7, Kind.SESSION, 501, name="sshd")
    for minute in range(3):
        tells(monkeypatch, connection(1, 501, minute * each, port=OUTGOING))
        found = host.look(60)

    assert found.says is says


def test_a_packages_program_that_asks_elsewhere_does_not_occupy(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only clients do: an agent of some monitoring keeps a connection of its own."""
    host.runs(7, Kind.SERVICE, 501, name="shipper")
    host.running[7] = replace(host.running[7], rule=PACKAGED)
    tells(monkeypatch, connection(1, 501, 0, port=50123))
    host.look()

    assert host.look(60).says is State.IDLE


def test_whom_nobody_may_look_into_is_known_by_group_or_user(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group with a person's program is the person's; without a group, a user who has one is that person."""
    blind = PermissionError(13, "Permission denied")

    def listdir(folder: str) -> list[str]:
        if folder.endswith("/fd"):
            raise blind
        return []

    monkeypatch.setattr("gpuwatch.agent.evidence.socket_owners.os.listdir", listdir)
    host.runs(42, Kind.SERVICE, name="sshd", uid=0)
    host.runs(43, Kind.SESSION, name="bash")
    host.runs(44, Kind.PEOPLE, name="train")
    ssh, session = group(host, "/system.slice/ssh.service", 42), group(host, "/user.slice/session-3.scope", 43, 44)
    owners = SocketOwners(host.roots)

    def whose(*, uid: int, cgroup: int | None) -> tuple[Kind, list[str]]:
        found = owners.whose([connection(1, 501, uid=uid, cgroup=cgroup)], host.view(), 0.0)[1]
        return found.kind, [each.name for each in found.processes]

    assert whose(uid=0, cgroup=ssh) == (Kind.SERVICE, ["sshd"])
    assert whose(uid=12_001, cgroup=session) == (Kind.PEOPLE, ["train"])
    assert whose(uid=0, cgroup=None) == (Kind.SERVICE, ["sshd"])
    assert whose(uid=12_001, cgroup=None) == (Kind.PEOPLE, ["train"])
    assert whose(uid=4, cgroup=None) == (Kind.PEOPLE, [])
    assert whose(uid=4, cgroup=1 << 40) == (Kind.PEOPLE, [])
    host.doubt = "hidepid"
    assert whose(uid=0, cgroup=ssh) == (Kind.PEOPLE, [])


def test_a_new_connection_counts_as_a_whole_and_an_old_one_by_what_it_grew() -> None:
    """Nothing is known before the first look; what ended is gone."""
    grown = Grown()
    first = grown.bytes_since_last([connection(1, 1, 5000)])
    second = grown.bytes_since_last([connection(1, 1, 5100), connection(2, 2, 70)])
    third = grown.bytes_since_last([connection(2, 2, 70)])

    assert (first, second, third) == ({}, {1: 100, 2: 70}, {2: 0})


def test_several_machines_that_work_with_a_server_of_the_machines_own_keep_it(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A control plane with three agents elsewhere; once they are gone it is remembered for an hour, and for four."""
    host.runs(7, Kind.SERVICE, 501, 502, 503, name="k3s-server", uid=0)
    tells(monkeypatch, *(connection(each, 500 + each, 0, peer=10 + each) for each in (1, 2, 3)))
    host.look()
    said = host.look(60)
    tells(monkeypatch)
    gone, hours_later, forgotten = host.look(60), host.look(3 * 3600.0), host.look(2 * 3600.0)

    assert [each.says for each in (said, gone, hours_later, forgotten)] == [
        State.BUSY,
        State.BUSY,
        State.OCCUPIED,
        State.IDLE,
    ]
    assert said.note == "3 other machines work with port 8265 here"
    assert said.owner is not None
    assert said.owner.process == "k3s-server"


@pytest.mark.parametrize(("sent", "says"), [(40, State.OCCUPIED), (9000, State.IDLE)])
def test_one_machine_that_seldom_brings_something_keeps_a_server_of_the_machines_own(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch, sent: int, says: State
) -> None:
    """An instrument sends its log each 50 minutes. Who takes more than it brings reads a page, and keeps nothing."""
    host.runs(7, Kind.SERVICE, 501, 502, name="rsyslogd", uid=0)
    host.look()
    came = list[State]()
    for turn in (1, 2):
        tells(monkeypatch, connection(turn, 501, 0))
        host.look(2950)
        tells(monkeypatch, connection(turn, 501, 3000 + sent, received=3000))
        host.look(10)
        tells(monkeypatch)
        came += [host.look(60).says, host.look(3 * 3600.0 if turn == 2 else 60).says]

    assert came == ([State.BUSY, says] * 2 if says is State.OCCUPIED else [says] * 4)
    assert host.look(2 * 3600.0).says is State.IDLE


@pytest.mark.parametrize("name", ["sshd", "sshd-session", "dropbear"])
def test_logins_by_ssh_are_counted_as_people_and_not_as_machines(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Scanners that try passwords are nobody, and whoever is let in has a session."""
    host.runs(7, Kind.SERVICE, 501, 502, 503, name=name, uid=0)
    for minute in range(3):
        tells(monkeypatch, *(connection(each, 500 + each, minute * 90_000, peer=each) for each in (1, 2, 3)))
        found = host.look(60)

    assert found.says is State.IDLE


@pytest.mark.parametrize(
    ("received", "is_open", "says"),
    [(0, False, State.IDLE), (0, True, State.OCCUPIED), (9, False, State.IDLE), (9, True, State.BUSY)],
)
def test_what_a_packages_program_asks_elsewhere_is_its_own_unless_it_collects(
    host: ConnectedHost, monkeypatch: pytest.MonkeyPatch, received: int, is_open: bool, says: State
) -> None:
    """A backup agent sends; a Prometheus gets, and is asked itself."""
    host.runs(7, Kind.SERVICE, 501, 502, name="agent")
    host.running[7] = replace(host.running[7], rule=PACKAGED, placement=Placement(systemd_unit="agent.service"))
    listener = Sock(cookie=2, inode=502, uid=0, local=(b"\0\0\0\0", 9090), remote=(b"\0\0\0\0", 0))
    for minute in range(3):
        moved = minute * 600_000
        asks = connection(1, 501, moved, port=OUTGOING, received=moved * received // 10)
        found = Sockets(
            leaving=(asks,),
            listening=frozenset({9090}),
            bytes_known=True,
            listeners=(listener,) if is_open else (),
        )
        monkeypatch.setattr("gpuwatch.agent.evidence.connections.read_sockets", lambda _, found=found: found)
        said = host.look(60)

    assert said.says is says
