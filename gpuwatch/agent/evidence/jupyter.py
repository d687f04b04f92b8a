"""Jupyter kernels: the servers of this host are found by their runtime files and asked over loopback.

A server's token is read from its runtime file, sent only to 127.0.0.1 or ::1, and not stored. It is sent, and an
answer is believed, only if the kernel says that the owner of that file has accepted the connection: on loopback any
user may listen.
"""

import http.client
import re
import ssl
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec

from gpuwatch.agent.attribution.process import user_name
from gpuwatch.agent.evidence.base import IdleClock, Moment, Roots, UnseenError, make_finding, several
from gpuwatch.agent.evidence.files import ENDED, hides_processes, list_paths, processes, read_small, surely_dead
from gpuwatch.agent.evidence.settings import JupyterSettings
from gpuwatch.agent.evidence.tcp_listeners import answered_by, belongs_to
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.bounds import BoundedInt
from gpuwatch.runtime.printable import legible

_FILES = re.compile(r"(jpserver|nbserver)-.*\.json", re.DOTALL)  # jupyter_server; notebook before 7
_IN_HOME = ".local/share/jupyter/runtime"
_MOST_SERVERS = 64
_MOST_KERNELS = 1024  # of all servers together: a server may list as many as an answer holds
_MOST_HOMES = 1 << 16  # only root makes them
_LARGEST_ANSWER_BYTES = 1 << 20
_OK = 200
_PATH = re.compile(r"/[\w.~%@+/-]*", re.ASCII)
_PYTHON = re.compile(r"i?python|conda|mamba", re.ASCII)
_JUPYTER_MODULES = (b"jupyter", b"notebook", b"ipykernel")
_SERVER_MODULE = re.compile(rb"\0-m\0(jupyter(?!hub\0)|notebook)")
_HUB = "jupyterhub"  # it starts servers, but is not one
_NESTED = re.compile(r"^NSpid:\t\d+\t", re.MULTILINE | re.ASCII)  # numbered in a namespace within ours, too
_AT_WORK = "busy"
# A kernel without any connection stays "starting" for ever: its last activity counts.
_AT_REST = frozenset({"idle", "starting", "restarting", "autorestarting", "terminating", "dead"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """What a runtime file says; other keys are not looked at."""

    pid: BoundedInt
    port: BoundedInt
    base_url: str = "/"
    secure: bool = False
    sock: str = ""
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """A running kernel, as /api/kernels lists it."""

    id: Annotated[str, msgspec.Meta(max_length=256)]
    execution_state: str
    last_activity: datetime


@dataclass(slots=True)
class _Found:
    """What a look has found so far."""

    servers: int = 0
    kernels: int = 0
    busy: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    silent: dict[str, float] = field(default_factory=dict)  # seconds, by kernel
    owners: set[int] = field(default_factory=set)


_SERVER = msgspec.json.Decoder(_Server)
_KERNELS = msgspec.json.Decoder(list[_Kernel])


class Jupyter:
    """Busy while a kernel computes, or did within `silent_after`."""

    name = "jupyter"
    source = "/api/kernels of the Jupyter servers on loopback"

    def __init__(self, settings: JupyterSettings, roots: Roots, deadline_seconds: float) -> None:
        self._silent_after = settings.silent_after
        self._runtime_dirs = tuple(Path(each) for each in settings.runtime_dirs)
        self._roots = roots
        self._timeout_seconds = deadline_seconds / 2
        self._silence = IdleClock()

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding over all servers; none where there is no server."""
        paths = list(islice(self._runtime_files(), _MOST_SERVERS + 1))
        if len(paths) > _MOST_SERVERS:
            raise UnseenError(f"more servers are listed than the {_MOST_SERVERS} that are asked")
        found = _Found()
        for path in paths:
            try:
                self._ask_server(path, found, now)
            except FileNotFoundError:
                continue  # it ended while we looked
            except OSError as error:
                found.doubts.append(f"{legible(path.name, 60)}: {error.strerror or type(error).__name__}")
            except UnseenError as error:
                found.doubts.append(f"{legible(path.name, 60)}: {error}")
        found.doubts += self._unreadable_servers(found.owners)
        self._silence.forget_all_but(found.silent.keys())
        least = min(found.silent.values(), default=None)
        if found.busy:
            return (self._say(State.BUSY, several(sorted(set(found.busy))), least),)
        if found.doubts:
            # A server and its kernels are processes: where all are seen, their work shows, and they occupy the node.
            seen = now.processes is not None and now.processes.doubt is None
            return (self._say(State.OCCUPIED if seen else State.UNKNOWN, several(found.doubts), least),)
        if not found.servers:
            return ()
        note = f"{len(found.silent)} kernels on {found.servers} servers are at rest"
        return (self._say(State.IDLE, note, least),)

    def _ask_server(self, path: Path, found: _Found, now: Moment) -> None:
        """One server by its runtime file."""
        contents = read_small(path)
        server = _decode_runtime_file(contents.data)
        if surely_dead(server.pid, self._roots):
            return  # it did not clean up
        found.servers += 1
        found.owners.add(contents.owner_uid)
        of = f"a kernel of {user_name(contents.owner_uid)} on port {server.port}"
        kernels = self._ask(server, contents.owner_uid)
        found.kernels += len(kernels)
        if found.kernels > _MOST_KERNELS:
            raise UnseenError(f"there are more than {_MOST_KERNELS} kernels")
        for kernel in kernels:
            silent = self._silence.seconds(kernel.id, kernel.last_activity.timestamp(), now)
            found.silent[kernel.id] = 0.0 if kernel.execution_state == _AT_WORK else silent
            if found.silent[kernel.id] < self._silent_after:
                found.busy.append(of)
            elif kernel.execution_state not in _AT_REST:
                found.doubts.append(f"{of} is in an unknown state")

    def _say(self, says: State, note: str, least: float | None) -> Evidence:
        return make_finding(self, says, note, observed=least, limit=self._silent_after, unit="seconds since activity")

    def _runtime_files(self) -> Iterator[Path]:
        """Runtime files in all readable homes, and in the configured folders, which must be readable."""
        folders = list(self._runtime_dirs)
        for folder in folders:
            list_paths(folder)
        folders += [home / _IN_HOME for home in self._homes()]
        for folder in dict.fromkeys(folders):
            with suppress(PermissionError):  # of a home; `_hidden` finds out whether that matters
                yield from _there(folder)

    def _homes(self) -> Iterator[Path]:
        """Every home; a folder of homes may be a home itself, as /root."""
        for home in self._roots.homes:
            yield home
            with suppress(OSError):
                yield from list_paths(home, most=_MOST_HOMES)

    def _unreadable_servers(self, asked: Collection[int]) -> Iterator[str]:
        """Servers with unreadable or missing runtime files: what their kernels do is unknown."""
        closed = {owner for home in self._homes() if (owner := _shut_out(home)) is not None}
        if closed and hides_processes(self._roots.proc):
            yield "there are homes that this agent may not read, and processes that it cannot see"
        hidden: dict[int, str] = {}
        for path, name in processes(self._roots.proc):
            owner, is_server = _whose(path, name)
            if owner in closed:
                hidden[owner] = "this agent may not read its file"
            elif owner is not None and is_server and owner not in asked:
                hidden.setdefault(owner, "its file is not found: see agent.evidence.jupyter.runtime_dirs")
        for owner in sorted(hidden):
            yield f"{user_name(owner)} runs a server, and {hidden[owner]}"

    def _ask(self, server: _Server, owner: int) -> list[_Kernel]:
        """The kernels of one server, whatever address it says that it has: only loopback is ever asked."""
        if server.sock:
            raise UnseenError("it listens on a UNIX socket, which gpuwatch does not ask")
        if not 0 < server.port < 1 << 16 or not _PATH.fullmatch(server.base_url) or not server.token.isprintable():
            raise UnseenError("it is not a runtime file")
        belongs_to(self._roots, server.port, owner)
        headers = {"Authorization": f"token {server.token}"} if server.token else {}
        refused: OSError | None = None
        for address in ("127.0.0.1", "::1"):
            try:
                with closing(self._connection(address, server)) as connection:
                    connection.connect()
                    answered_by(self._roots, connection.sock, owner)
                    connection.request("GET", f"{server.base_url.rstrip('/')}/api/kernels", headers=headers)
                    response = connection.getresponse()
                    if response.status != _OK:
                        raise UnseenError(f"its server answers HTTP {response.status}")
                    body = response.read(_LARGEST_ANSWER_BYTES)
            except ConnectionRefusedError as error:
                refused = refused or error
                continue
            except (http.client.HTTPException, UnicodeError):
                raise UnseenError("its server does not speak HTTP") from None
            try:
                kernels = _KERNELS.decode(body)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                raise UnseenError("its server's answer is not a list of kernels") from None
            if any(kernel.last_activity.tzinfo is None for kernel in kernels):
                raise UnseenError("its server gives times without a zone")
            return kernels
        raise refused or UnseenError("it cannot be reached")

    def _connection(self, address: str, server: _Server) -> http.client.HTTPConnection:
        """A connection, not yet open. On loopback a certificate proves nothing: it does not name 127.0.0.1."""
        if not server.secure:
            return http.client.HTTPConnection(address, server.port, timeout=self._timeout_seconds)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(address, server.port, timeout=self._timeout_seconds, context=context)


def _decode_runtime_file(data: bytes) -> _Server:
    """A runtime file; its text is never repeated, for it holds the token."""
    try:
        return _SERVER.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UnseenError("it is not a runtime file") from None


def _there(folder: Path) -> list[Path]:
    """The runtime files in a folder, which may not exist."""
    try:
        return list_paths(folder, _FILES)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _shut_out(home: Path) -> int | None:
    """The owner of the home, if runtime files in it cannot be read."""
    try:
        list_paths(home / _IN_HOME)
    except (FileNotFoundError, NotADirectoryError):
        pass  # it has none
    except OSError:
        with suppress(FileNotFoundError):
            return home.stat().st_uid
    return None


def _whose(process: Path, name: str) -> tuple[int | None, bool]:
    """The owner, if it is a Jupyter server or kernel, and whether it is a server for certain.

    One in a container of its own keeps its files there. A Python that was given a module to run has Python's own name,
    so its arguments are looked at, and never shown.
    """
    named = is_server = name.startswith("jupyter") and name != _HUB
    try:
        if _PYTHON.match(name):
            arguments = read_small(process / "cmdline").data
            named = any(word in arguments for word in _JUPYTER_MODULES)
            is_server = _SERVER_MODULE.search(arguments) is not None
        if not named or _NESTED.search(read_small(process / "status").text):
            return None, False
        return process.stat().st_uid, is_server
    except ENDED:
        return None, False
