"""agent/evidence/tcp_listeners.py: whose a port is, and that no Jupyter token goes to anybody else."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.jupyter import Jupyter
from gpuwatch.agent.evidence.settings import JupyterSettings
from gpuwatch.agent.evidence.tcp_listeners import answered_by, belongs_to
from gpuwatch.model.activity import State
from tests.support.fakes.host import FolderHost

ME, ALICE, MALLORY = os.geteuid(), 12_001, 12_002
TOKEN = "a1b2c3-the-token-of-alice"  # noqa: S105  of a server in this file
RUNTIME = "home/alice/.local/share/jupyter/runtime"
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
root_only = pytest.mark.skipif(ME != 0, reason="only root can become somebody else")


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host on which process 42 runs."""
    made = FolderHost(tmp_path)
    made.process(42)
    return made


def tables(
    host: FolderHost, *rows: tuple[str, str, str, int, int], six: tuple[tuple[str, str, str, int, int], ...] = ()
) -> None:
    """The kernel's tables, written by hand: local and remote end, state, uid, inode."""
    for name, result in (("tcp", rows), ("tcp6", six)):
        (host.root / "proc/net" / name).unlink()
        lines = (
            f"{number:4}: {local} {remote} {state} 0:0 00:0 0 {uid} 0 {inode} 1 0 100 0 0\n"
            for number, (local, remote, state, uid, inode) in enumerate(result)
        )
        host.write(f"proc/net/{name}", HEAD + "".join(lines))


def listening(address: str, uid: int, port: int = 8888) -> tuple[str, str, str, int, int]:
    """A listener's row."""
    nobody = "0" * len(address)
    return (f"{address}:{port:04X}", f"{nobody}:0000", "0A", uid, 77)


LOOPBACK, ANY, ELSEWHERE, OTHER_LOOPBACK = "0100007F", "00000000", "0500000A", "0500007F"
SIX = {"any": "0" * 32, "loopback": "0" * 24 + "01000000", "mapped": "0000000000000000FFFF00000100007F"}


@pytest.mark.parametrize(
    ("four", "six", "is_alices"),
    [
        ([(LOOPBACK, ALICE)], [], True),
        ([(ANY, ALICE)], [], True),
        ([(LOOPBACK, ALICE)], [(SIX["loopback"], ALICE)], True),
        ([], [(SIX["any"], ALICE)], True),
        ([(LOOPBACK, MALLORY)], [], False),
        ([(LOOPBACK, MALLORY), (ELSEWHERE, ALICE)], [], False),
        ([(LOOPBACK, ALICE)], [(SIX["loopback"], MALLORY)], False),
        ([(LOOPBACK, ALICE)], [(SIX["any"], MALLORY)], False),
        ([(LOOPBACK, ALICE)], [(SIX["mapped"], MALLORY)], False),
        ([(LOOPBACK, ALICE), (OTHER_LOOPBACK, MALLORY)], [], False),
        ([(LOOPBACK, ALICE), (LOOPBACK, MALLORY)], [], False),
        ([(LOOPBACK, 0)], [], False),
        ([(LOOPBACK, ALICE), (ELSEWHERE, MALLORY)], [], True),
    ],
)
def test_a_port_is_somebodys_where_nobody_else_listens(
    host: FolderHost, four: list[tuple[str, int]], six: list[tuple[str, int]], is_alices: bool
) -> None:
    """On any address by which loopback can be reached, root's included; what listens on other cards is not asked."""
    tables(
        host,
        *(listening(address, uid) for address, uid in four),
        six=tuple(listening(address, uid) for address, uid in six),
    )
    if is_alices:
        belongs_to(host.roots, 8888, ALICE)
    else:
        with pytest.raises(UnseenError, match="listens on port 8888, and not 12001"):
            belongs_to(host.roots, 8888, ALICE)


@pytest.mark.parametrize("four", [[], [(ELSEWHERE, ALICE)], [(LOOPBACK, ALICE, 8889)]])
def test_where_nobody_listens_nobody_is_asked(host: FolderHost, four: list[tuple[str, int]]) -> None:
    """Also where the owner listens on another address or port only."""
    tables(host, *(listening(*each) for each in four))

    with pytest.raises(ConnectionRefusedError):
        belongs_to(host.roots, 8888, ALICE)


def test_what_cannot_be_read_is_nobodys(host: FolderHost) -> None:
    """No table, a broken one, or a user whom this namespace does not know: nobody is believed."""
    tables(host, listening(LOOPBACK, 65534))
    with pytest.raises(UnseenError):
        belongs_to(host.roots, 8888, 65534)
    host.write("proc/net/tcp", HEAD + "   0: garbage\n")
    with pytest.raises(UnseenError):
        belongs_to(host.roots, 8888, ALICE)
    (host.root / "proc/net/tcp").unlink()
    with pytest.raises(OSError, match="tcp"):
        belongs_to(host.roots, 8888, ALICE)


@given(st.text(max_size=200))
def test_no_table_whatever_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """It is read, or it is unseen."""
    host = FolderHost(tmp_path_factory.mktemp("host"))
    (host.root / "proc/net/tcp").unlink()
    host.write("proc/net/tcp", HEAD.encode() + text.encode("utf-8", "surrogatepass"))

    with pytest.raises((UnseenError, OSError)):
        belongs_to(host.roots, 0, ALICE)


def test_a_table_without_end_is_given_up(host: FolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user can have many sockets; they are not all read."""
    monkeypatch.setattr("gpuwatch.agent.evidence.tcp_listeners._MOST_LINES", 3)
    tables(host, *(listening(ELSEWHERE, ALICE, port) for port in range(1, 10)))

    with pytest.raises(UnseenError, match="longer than"):
        belongs_to(host.roots, 8888, ALICE)


# It becomes that user, says its port, then writes down what it hears.
_SERVER = """
import os, signal, socket, sys
uid, body, accepts = int(sys.argv[1]), sys.argv[2].encode(), sys.argv[3] == "True"
os.setuid(uid)
own = socket.create_server(("127.0.0.1", 0))
os.write(1, b"%d\\n" % own.getsockname()[1])
while not accepts:
    signal.pause()
while True:
    connection, _ = own.accept()
    os.write(1, connection.recv(65536))
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    connection.close()
"""


@contextlib.contextmanager
def answering(uid: int, body: str, *, accepts: bool = True) -> Iterator[tuple[int, int]]:
    """A server of that user's on loopback, in a process of its own: its port, and where it writes what it hears."""
    command = [sys.executable, "-c", _SERVER, str(uid), body, str(accepts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        heard = process.stdout.fileno()
        try:
            port = int(os.read(heard, 100))
            os.set_blocking(heard, False)
            yield port, heard
        finally:
            process.kill()


def asked(host: FolderHost, port: int, **other: object) -> State:
    """What the signal says of a server whose runtime file is the tests' own user's."""
    host.write(f"{RUNTIME}/jpserver-42.json", json.dumps({"pid": 42, "port": port, "token": TOKEN, **other}))
    return host.tells(Jupyter(JupyterSettings(), host.roots, deadline_seconds=2.0)).says


def heard_by(pipe: int) -> bytes:
    """All that it heard so far."""
    try:
        return os.read(pipe, 1 << 16)
    except BlockingIOError:
        return b""


@root_only
@pytest.mark.parametrize("secure", [False, True])
def test_somebody_elses_server_hears_nothing(host: FolderHost, secure: bool) -> None:
    """Mallory binds the port of a server that listens elsewhere: it gets no token, and its word counts for nothing."""
    with answering(MALLORY, "[]") as (port, heard):
        says = asked(host, port, secure=secure)

        assert (says, heard_by(heard)) == (State.UNKNOWN, b"")


@root_only
def test_the_owners_server_is_asked(host: FolderHost) -> None:
    """With the token, and believed."""
    with answering(ME, "[]") as (port, heard):
        says = asked(host, port)

        assert says is State.IDLE
        assert TOKEN.encode() in heard_by(heard)


@root_only
def test_whoever_takes_the_port_in_between_hears_nothing(host: FolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look may be too early: who has accepted the connection is looked at before anything is said."""
    monkeypatch.setattr("gpuwatch.agent.evidence.jupyter.belongs_to", lambda *_: None)
    with answering(MALLORY, "[]") as (port, heard):
        says = asked(host, port)

        assert (says, heard_by(heard)) == (State.UNKNOWN, b"")


@root_only
def test_who_does_not_accept_is_not_told(host: FolderHost) -> None:
    """A listener that lets connections wait, and could hand them on: nothing is said before somebody has accepted."""
    with answering(ME, "[]", accepts=False) as (port, _):
        assert asked(host, port) is State.UNKNOWN


def test_a_server_that_listens_on_both_is_known_by_either(host: FolderHost) -> None:
    """An IPv6 socket that speaks IPv4 has its rows in the other table, with mapped addresses."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        belongs_to(host.roots, port, ME)
        for address in ("127.0.0.1", "::1"):
            with socket.create_connection((address, port), timeout=0.2) as connection:
                with pytest.raises(TimeoutError):
                    answered_by(host.roots, connection, ME)
                accepted, _ = listener.accept()
                answered_by(host.roots, connection, ME)
                with pytest.raises(UnseenError):
                    answered_by(host.roots, connection, MALLORY)
                accepted.close()


def test_a_slow_one_is_waited_for(host: FolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has accepted at first."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted: list[socket.socket] = []
        monkeypatch.setattr("select.select", lambda *_: accepted.append(listener.accept()[0]))
        with socket.create_connection(listener.getsockname(), timeout=5) as connection:
            answered_by(host.roots, connection, ME)
        (one,) = accepted
        one.close()
