"""A BMC by Redfish: the resource ComputerSystem and its action Reset (DMTF DSP0266), and nothing else.

Rules, all of them:

1. The password goes out over TLS alone, to a server with a certificate that is believed. To another path of Redfish on
   the same server a read follows once; a change never does, and nothing goes to another server.
2. What is off or on is only what the BMC says in so many words; all else is unknown.
3. A change is sent once. An answer below 300 is a yes, one from 500 on and none at all a doubt, the rest a no.
4. Only `GracefulShutdown` and `On` are ever sent. A system that lists what it allows must list both.
"""

import base64
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from gpuwatch.clouds.errors import AuthFailedError, CloudError, CloudUnavailableError, no_answer
from gpuwatch.clouds.hosts.bmc import REFUSED_LOGIN, Shown
from gpuwatch.clouds.permit import Permit
from gpuwatch.clouds.sending import WatchedConnection, attempt_begins, sending
from gpuwatch.model.bounds import BoundedText
from gpuwatch.model.fleet import NodeState
from gpuwatch.model.power import same_host
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.printable import legible
from gpuwatch.runtime.reloading_file import ReloadingFile
from gpuwatch.runtime.tls import TlsFiles, client_context

_ROOT = "/redfish/v1/Systems"
_SECONDS, _LOOK_SECONDS = 10.0, 20.0  # for one answer, and for all of a connection
_LARGEST_BYTES = 1 << 20
_MOST_SYSTEMS = 16  # behind one BMC
_LONGEST = 200  # characters of a BMC's own words
_OK, _ELSEWHERE, _REFUSED, _GONE, _BROKEN = 300, (301, 302, 307, 308), (401, 403), 404, 500
_STATES = {
    "On": NodeState.RUNNING,
    "Off": NodeState.STOPPED,
    "PoweringOn": NodeState.PENDING,
    "PoweringOff": NodeState.STOPPING,
}
OFF, ON = "GracefulShutdown", "On"


class _Link(msgspec.Struct, frozen=True):
    """A link to a resource."""

    path: BoundedText = msgspec.field(name="@odata.id")


class _Systems(msgspec.Struct, frozen=True):
    """The collection of systems, as far as it is read."""

    members: list[_Link] = msgspec.field(name="Members")


class _Reset(msgspec.Struct, frozen=True):
    """The action Reset: where it is asked for, and what it takes."""

    target: BoundedText = ""
    allowed: list[BoundedText] | None = msgspec.field(name="ResetType@Redfish.AllowableValues", default=None)


class _Actions(msgspec.Struct, frozen=True):
    """What a system can be asked for."""

    reset: _Reset = msgspec.field(name="#ComputerSystem.Reset", default=_Reset())


class _System(msgspec.Struct, frozen=True):
    """A ComputerSystem, as far as it is read."""

    uuid: BoundedText | None = msgspec.field(name="UUID", default=None)
    power: BoundedText | None = msgspec.field(name="PowerState", default=None)
    reset_at: BoundedText | None = msgspec.field(name="LastResetTime", default=None)
    actions: _Actions = msgspec.field(name="Actions", default=_Actions())


class _Connection(WatchedConnection, HTTPSConnection):
    """An HTTPS connection that checks the permit last, and takes no more requests after some time."""

    until = 0.0


def trusted_context(ca: str | None) -> ReloadingFile[ssl.SSLContext]:
    """How certificates of BMCs are checked; the file is read again when it changes."""
    files = TlsFiles(section="cloud.hosts.power", ca=None if ca is None else Path(ca), ca_key="ca")
    return ReloadingFile(files.paths, lambda: client_context(files))


class Redfish:
    """One BMC; the system is looked up by its links."""

    def __init__(
        self,
        host: str,
        port: int | None,
        *,
        user: str,
        password: Callable[[], bytes],
        context: ReloadingFile[ssl.SSLContext],
        clock: Clock,
    ) -> None:
        """Nothing is asked yet."""
        self._host, self._port, self._user = host, port or 443, user
        self._password, self._context, self._clock = password, context, clock
        self._name = f"its BMC {host}"
        self._path = self._target = ""

    def show(self, uuid: str | None) -> Shown:
        """The system behind this BMC, of several the one with that UUID; the list of them is read once."""
        with self._open_connection() as line:
            found = None if not self._path else self._read(line, self._path, _System, gone=None)
            if found is None or not same_host(found.uuid, uuid):
                found = self._find(line, uuid)
        self._target = found.actions.reset.target
        state = _STATES.get(found.power or "", NodeState.UNKNOWN)
        return Shown(uuid=found.uuid, state=state, unable=_unable(found.actions.reset), reset_at=found.reset_at)

    def _find(self, line: "_Connection", uuid: str | None) -> "_System":
        links = self._read(line, _ROOT, _Systems).members[:_MOST_SYSTEMS]
        systems = [(link.path, self._read(line, link.path, _System)) for link in links]
        if len(systems) > 1:
            systems = [each for each in systems if same_host(each[1].uuid, uuid)]
        if len(systems) != 1:
            which = "one that is this host" if len(links) > 1 else "one"
            raise CloudError(f"{self._name} shows {len(links)} systems, and not {which}", code="NoSystem")
        ((self._path, only),) = systems
        found: _System = only
        return found

    def switch_off(self, permit: Permit) -> None:
        """Ask for a clean shutdown, `GracefulShutdown`."""
        self._reset(OFF, permit)

    def switch_on(self, permit: Permit | None) -> None:
        """Ask for power, `On`."""
        self._reset(ON, permit)

    def _reset(self, kind: str, permit: Permit | None) -> None:
        asked = f"{self._name}, {kind}"
        with sending(asked, permit), self._open_connection() as line:
            status, body, _ = self._send(line, "POST", self._target, json.dumps({"ResetType": kind}).encode())
        if status >= _OK:
            raise _error(asked, status, body)

    def _read(self, line: "_Connection", path: str, kind: type[Any], **missing: None) -> Any:  # noqa: ANN401  what was asked for
        """A resource; `gone`, if given, is the answer where there is no such resource any more."""
        status, body, elsewhere = self._send(line, "GET", path)
        if status in _ELSEWHERE and self._is_path_here(elsewhere):
            status, body, _ = self._send(line, "GET", urlsplit(elsewhere).path)
        if missing and status == _GONE:
            return missing["gone"]
        if status >= _OK:
            raise _error(self._name, status, body)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise CloudUnavailableError(f"{self._name}: its answer is not valid ({error})", code="Nonsense") from None

    @contextmanager
    def _open_connection(self) -> Iterator["_Connection"]:
        """A connection for some requests, which is opened by the first one."""
        try:
            line = _Connection(self._host, self._port, timeout=_SECONDS, context=self._context.value)
        except (OSError, ValueError) as error:
            raise AuthFailedError(f"{self._name} cannot be asked: {error}", code="NoCertificates") from None
        line.until = self._clock.uptime() + _LOOK_SECONDS
        try:
            yield line
        except (OSError, HTTPException) as error:
            raise no_answer(self._name, error) from None
        finally:
            line.close()

    def _is_path_here(self, url: str) -> bool:
        """Whether it is a path of Redfish on this very server."""
        if not url.isascii() or not url.isprintable() or " " in url:
            return False
        try:
            scheme, server, path = urlsplit(url)[:3]
        except ValueError:  # such as https://[
            return False
        here = (scheme, server) in {("", ""), ("https", self._host), ("https", f"{self._host}:{self._port}")}
        return here and path.startswith("/redfish/")

    def _send(self, line: "_Connection", method: str, path: str, body: bytes | None = None) -> tuple[int, bytes, str]:
        """Status, body, and where else it is."""
        if not path.startswith("/redfish/") or not self._is_path_here(path):
            raise CloudError(f"{self._name} names no path of Redfish, but {legible(path, _LONGEST)!r}", code="NoPath")
        try:
            token = base64.b64encode(f"{self._user}:".encode() + self._password()).decode()
        except OSError as error:
            raise AuthFailedError(f"{self._name} cannot be asked: {error}", code="NoPassword") from None
        headers = {"Authorization": f"Basic {token}", "Accept": "application/json", "OData-Version": "4.0"}
        headers |= {} if body is None else {"Content-Type": "application/json"}
        attempt_begins()
        if (now := self._clock.uptime()) > line.until:
            raise TimeoutError(f"no whole answer within {_LOOK_SECONDS:.0f} s")
        until = now + _SECONDS
        line.request(method, path, body=body, headers=headers)
        answer, read = line.getresponse(), bytearray()
        while len(read) <= _LARGEST_BYTES and (more := answer.read1(1 << 16)):
            read += more
            if self._clock.uptime() > until:
                raise TimeoutError(f"no whole answer within {_SECONDS:.0f} s")
        answer.close()  # read1() does not notice the end, and the connection would not take another request
        if len(read) > _LARGEST_BYTES:
            raise CloudUnavailableError(f"{self._name}: its answer is too large", code="Nonsense")
        return answer.status, bytes(read), answer.headers.get("Location", "")


def _unable(reset: _Reset) -> str | None:
    """Why the system cannot be switched off cleanly, or on again; what it does not list is not known to be allowed."""
    if not reset.target:
        return "its BMC offers no action Reset"
    lacks = [each for each in (OFF, ON) if reset.allowed is not None and each not in reset.allowed]
    return f"its BMC does not offer {' and '.join(lacks)}" if lacks else None


def _error(asked: str, status: int, body: bytes) -> CloudError:
    code = f"HTTP{status}"
    if status in _REFUSED:
        return AuthFailedError(f"{asked}: {REFUSED_LOGIN} (HTTP {status})", code=code)
    if status >= _BROKEN:
        return CloudUnavailableError(f"{asked}: it is busy, or starts itself again (HTTP {status})", code=code)
    return CloudError(
        f"{asked}: it answers HTTP {status}: {legible(body.decode('utf-8', 'replace'), _LONGEST)}", code=code
    )
