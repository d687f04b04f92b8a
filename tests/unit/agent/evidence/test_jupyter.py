"""agent/evidence/jupyter.py: kernels, as their own servers tell over loopback."""

import json
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.agent.evidence.files import list_paths as in_order
from gpuwatch.agent.evidence.jupyter import Jupyter
from gpuwatch.agent.evidence.settings import JupyterSettings
from gpuwatch.model.activity import State
from tests.support.fakes.host import DEAD_PID, FolderHost

TOKEN = "0123456789abcdef-the-token"  # noqa: S105  of a server in this file
RUNTIME = "home/alice/.local/share/jupyter/runtime"


class JupyterServer(HTTPServer):
    """Speaks the part of the REST API of jupyter_server that matters here."""

    def __init__(self) -> None:
        """Without kernels, on any free port of loopback."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer: bytes = b"[]"
        self.asked: list[str] = []

    def kernels(self, *kernels: dict[str, Any]) -> None:
        """What it lists."""
        self.answer = json.dumps(kernels).encode()


class _Handler(BaseHTTPRequestHandler):
    server: JupyterServer

    def do_GET(self) -> None:
        """One request."""
        self.server.asked.append(self.path)
        known = self.headers.get("Authorization") == f"token {TOKEN}"
        status = 403 if not known else 200 if self.path == "/user/alice/api/kernels" else 404
        body = self.server.answer if status == 200 else b"{}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Not to the tests' output."""


@pytest.fixture
def server() -> Iterator[JupyterServer]:
    """A server that runs."""
    made = JupyterServer()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def host(tmp_path: Path) -> FolderHost:
    """A host on which process 42 runs."""
    made = FolderHost(tmp_path)
    made.process(42)
    return made


def jupyter(host: FolderHost, **settings: Any) -> Jupyter:  # noqa: ANN401  any setting
    """The signal; an answer may take a second."""
    return Jupyter(JupyterSettings(**settings), host.roots, deadline_seconds=2.0)


def listed(host: FolderHost, server: JupyterServer, name: str = f"{RUNTIME}/jpserver-42.json", **other: Any) -> Path:  # noqa: ANN401  any key
    """The server's runtime file, as jupyter_server writes it."""
    known = {
        "base_url": "/user/alice/",
        "hostname": "localhost",
        "password": False,
        "pid": 42,
        "port": server.server_port,
        "root_dir": "/home/alice",
        "secure": False,
        "sock": "",
        "token": TOKEN,
        "url": f"http://localhost:{server.server_port}/user/alice/",
        "version": "2.14.2",
    }
    return host.write(name, json.dumps({**known, **other}))


def closed(host: FolderHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home whose runtime folder may not be read; root, as whom tests may run, may read it all."""
    shut = host.root / RUNTIME
    shut.mkdir(parents=True)

    def refused(folder: Path, *bounds: Any, **more: Any) -> list[Path]:  # noqa: ANN401  as `listed` has them
        if folder == shut:
            raise PermissionError(13, "Permission denied", str(folder))
        return in_order(folder, *bounds, **more)

    monkeypatch.setattr("gpuwatch.agent.evidence.jupyter.list_paths", refused)


def a_kernel(host: FolderHost, state: str = "idle", *, silent_seconds: float = 0.0, name: str = "k1") -> dict[str, Any]:
    """A kernel as /api/kernels lists it."""
    at = host.clock.now() - timedelta(seconds=silent_seconds)
    return {
        "id": name,
        "name": "python3",
        "last_activity": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "execution_state": state,
        "connections": 1,
    }


def test_without_servers_it_says_nothing(host: FolderHost) -> None:
    """Also where a server left its file behind."""
    nothing = host.told(jupyter(host))
    host.write(f"{RUNTIME}/jpserver-1.json", json.dumps({"pid": DEAD_PID, "port": 1, "token": TOKEN}))

    assert (nothing, host.told(jupyter(host))) == ((), ())


@pytest.mark.parametrize(
    ("state", "silent_seconds", "says"),
    [
        ("busy", 90_000, State.BUSY),
        ("starting", 10, State.BUSY),
        ("starting", 90_000, State.IDLE),
        ("idle", 0, State.BUSY),
        ("idle", 1799, State.BUSY),
        ("idle", 1800, State.IDLE),
        ("dead", 1800, State.IDLE),
        ("dreaming", 1800, State.UNKNOWN),
    ],
)
def test_one_kernel(host: FolderHost, server: JupyterServer, state: str, silent_seconds: float, says: State) -> None:
    """A cell that runs is busy however long; one that ended is use for half an hour more."""
    listed(host, server)
    server.kernels(a_kernel(host, state, silent_seconds=silent_seconds))
    found = host.tells(jupyter(host))

    assert found.says is says
    assert server.asked == ["/user/alice/api/kernels"]


def test_a_server_that_proc_hides_is_asked(host: FolderHost, server: JupyterServer) -> None:
    """With hidepid=2 its process is not to be seen, and that is no proof of its end."""
    listed(host, server)
    server.kernels(a_kernel(host, "busy"))
    host.hide_processes()

    assert host.tells(jupyter(host)).says is State.BUSY


def test_a_server_without_kernels_is_at_rest(host: FolderHost, server: JupyterServer) -> None:
    """A forgotten server keeps nothing alive."""
    listed(host, server)

    assert host.tells(jupyter(host)).says is State.IDLE


def test_a_wall_clock_that_leaps_silences_no_kernel(host: FolderHost, server: JupyterServer) -> None:
    """After the first look silence is counted on the monotonic clock."""
    listed(host, server)
    server.kernels(a_kernel(host, silent_seconds=60))
    signal = jupyter(host)
    host.tells(signal)
    host.clock.jump(86_400)
    leapt = host.tells(signal).says
    host.pass_time(1800)

    assert (leapt, host.tells(signal).says) == (State.BUSY, State.IDLE)


@pytest.mark.parametrize(
    "answer",
    [b"", b"{}", b"[{}]", b"\xff", b'[{"id": "1", "execution_state": "idle", "last_activity": "yesterday"}]'],
)
def test_an_answer_that_is_none_is_unknown(host: FolderHost, server: JupyterServer, answer: bytes) -> None:
    """A server that cannot be understood may have a kernel at work."""
    listed(host, server)
    server.answer = answer

    assert host.tells(jupyter(host)).says is State.UNKNOWN


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"token": "another"}, "HTTP 403"),
        ({"base_url": "/"}, "HTTP 404"),
        ({"port": 1}, "Connection refused"),
        ({"port": 0}, "it is not a runtime file"),
        ({"base_url": "/ HTTP/1.1\r\nX: y"}, "it is not a runtime file"),
        ({"sock": "/run/jupyter.sock"}, "UNIX socket"),
        ({"pid": "x"}, "it is not a runtime file"),
        ({"secure": True}, ""),
    ],
)
def test_a_listed_server_that_cannot_be_asked_is_unknown(
    host: FolderHost, server: JupyterServer, other: dict[str, Any], why: str
) -> None:
    """The note says why, and never holds the token."""
    listed(host, server, **other)
    found = host.tells(jupyter(host))

    assert found.says is State.UNKNOWN
    assert why in (found.note or "")
    assert TOKEN not in str(found)


def test_only_loopback_is_asked(host: FolderHost, server: JupyterServer) -> None:
    """Whatever address a user writes into the file, the token goes nowhere else."""
    listed(host, server, hostname="192.0.2.1", url="http://192.0.2.1:8888/")
    host.tells(jupyter(host))

    assert server.asked == ["/user/alice/api/kernels"]


def test_a_server_that_never_answers(host: FolderHost) -> None:
    """It is given up."""
    with HTTPServer(("127.0.0.1", 0), _Handler) as silent:  # listens, and accepts nothing
        host.write(f"{RUNTIME}/jpserver-42.json", json.dumps({"pid": 42, "port": silent.server_port, "token": TOKEN}))
        found = host.tells(jupyter(host))

    assert (found.says, found.note) == (State.UNKNOWN, "jpserver-42.json: TimeoutError")


def test_one_at_work_is_enough(host: FolderHost, server: JupyterServer) -> None:
    """Busy wins over a server that cannot be asked; older servers have a file of another name."""
    listed(host, server, f"{RUNTIME}/nbserver-42.json")
    listed(host, server, "home/bob/.local/share/jupyter/runtime/jpserver-42.json", port=1)
    server.kernels(a_kernel(host, "busy"))

    assert host.tells(jupyter(host)).says is State.BUSY


def test_configured_folders_must_be_readable(host: FolderHost, server: JupyterServer) -> None:
    """One that is there is looked into; one that is not is a doubt, unlike a user without Jupyter."""
    listed(host, server, "srv/runtime/jpserver-42.json")
    server.kernels(a_kernel(host, "busy"))
    there = host.tells(jupyter(host, runtime_dirs=(str(host.root / "srv/runtime"),)))
    missing = host.tells(jupyter(host, runtime_dirs=(str(host.root / "srv/none"),)))

    assert (there.says, missing.says) == (State.BUSY, State.UNKNOWN)


def test_links_and_pipes_are_not_followed(host: FolderHost, server: JupyterServer) -> None:
    """The agent may read what its users may not, and must not wait for them."""
    target = listed(host, server, "elsewhere.json")
    (host.root / RUNTIME).mkdir(parents=True)
    (host.root / RUNTIME / "jpserver-1.json").symlink_to(target)
    os.mkfifo(host.root / RUNTIME / "jpserver-2.json")

    assert host.tells(jupyter(host)).says is State.UNKNOWN
    assert server.asked == []


@pytest.mark.parametrize(
    ("comm", "numbers", "mine", "says"),
    [
        ("jupyter-lab", "7", True, [State.UNKNOWN]),
        ("jupyter-noteboo", "7", True, [State.UNKNOWN]),
        ("python3", "7", True, []),
        ("jupyter-lab", "7\t1", True, []),
        ("jupyter-lab", "7", False, [State.UNKNOWN]),
        ("jupyterhub", "7", False, []),
    ],
    ids=["lab", "notebook", "another program", "in a container", "with its file elsewhere", "a hub"],
)
def test_a_server_whose_file_may_not_be_read_is_unknown(
    host: FolderHost,
    monkeypatch: pytest.MonkeyPatch,
    comm: str,
    numbers: str,
    mine: bool,
    says: list[State],
) -> None:
    """An agent sees that somebody's server runs, and not what its kernels do: that is no silence.

    It may lack the rights, or the file lies in a home or a runtime folder that it does not know of.
    """
    host.write("proc/7/comm", f"{comm}\n")
    host.write("proc/7/status", f"Name:\t{comm}\nNSpid:\t{numbers}\n")
    if mine:
        closed(host, monkeypatch)

    assert [each.says for each in host.told(jupyter(host))] == says


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("python3 -m jupyterlab --no-browser", [State.UNKNOWN]),
        ("python -m notebook", [State.UNKNOWN]),
        ("python3 -m ipykernel_launcher -f /run/kernel-1.json", [State.UNKNOWN]),
        ("python3 train.py", []),
    ],
)
def test_a_server_that_python_was_given_as_a_module_is_no_less_one(
    host: FolderHost, monkeypatch: pytest.MonkeyPatch, arguments: str, says: list[State]
) -> None:
    """Its process has Python's name; only what it was told to run says what it is, and that is told to nobody."""
    host.write("proc/7/comm", f"{arguments.split(maxsplit=1)[0]}\n")
    host.write("proc/7/cmdline", arguments.replace(" ", "\0"))
    host.write("proc/7/status", "NSpid:\t7\n")
    closed(host, monkeypatch)
    found = host.told(jupyter(host))

    assert [each.says for each in found] == says
    assert all(arguments not in str(each) for each in found)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("python3 -m jupyterlab --no-browser", [State.UNKNOWN]),
        ("python3 -m ipykernel_launcher -f /run/kernel-1.json", []),
        ("python3 /opt/jupyter/collect.py --notebook", []),
    ],
    ids=["a server", "a kernel of an editor", "a path"],
)
def test_a_server_whose_file_is_nowhere_is_unknown(host: FolderHost, arguments: str, says: list[State]) -> None:
    """Homes that are elsewhere than in /home, folders set by JUPYTER_RUNTIME_DIR; a name in a path is no server."""
    host.write("proc/7/comm", "python3\n")
    host.write("proc/7/cmdline", arguments.replace(" ", "\0"))
    host.write("proc/7/status", "NSpid:\t7\n")

    assert [each.says for each in host.told(jupyter(host))] == says


def test_a_server_that_was_asked_is_not_missed(host: FolderHost, server: JupyterServer) -> None:
    """Its owner's process is the one that the file is of."""
    listed(host, server)
    host.write("proc/42/comm", "jupyter-lab\n")
    host.write("proc/42/status", "NSpid:\t42\n")

    assert host.tells(jupyter(host)).says is State.IDLE


def test_without_rights_and_without_sight_of_processes_it_is_unknown(
    host: FolderHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed home where /proc hides others' processes: nobody knows of a server or of none."""
    closed(host, monkeypatch)
    without_rights = host.told(jupyter(host))
    host.hide_processes()

    assert without_rights == ()
    assert host.tells(jupyter(host)).says is State.UNKNOWN


@pytest.mark.parametrize("unread", ["comm", "status"])
def test_a_process_that_cannot_be_read_has_not_ended(host: FolderHost, unread: str) -> None:
    """With hidepid=1, or no file descriptor left, nobody knows what runs here: it may be a server."""
    host.write("proc/42/comm", "jupyter-lab\n")
    host.write("proc/42/status", "Name:\tjupyter-lab\nNSpid:\t42\n")
    (host.roots.proc / "42" / unread).unlink()
    (host.roots.proc / "42" / unread).mkdir()

    assert [each.says for each in host.told(jupyter(host))] == [State.UNKNOWN]
