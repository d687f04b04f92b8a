"""The port of an agent or a controller: free, served by gpuwatch, or taken by somebody else."""

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from gpuwatch.cli.doctor.report import Finding, fine, make_finding
from gpuwatch.runtime.http.access import cost_of, is_loopback, protection_lacking
from gpuwatch.runtime.http.auth import users_of
from gpuwatch.runtime.http.settings import ServerSettings

_SECONDS = 5.0
_LOWEST_COST = 10
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  compared with, not bound


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """Which program answers at the port: HTTP status and Server. Status 0: it answers, but not in HTTP."""

    status: int
    server: str


def port(settings: ServerSettings, section: str) -> Iterator[Finding]:
    """The port is free, and the address is of this machine. Nothing is bound: that could disturb a start."""
    where = f"{section}.host {settings.host}, {section}.port {settings.port}"
    lacking = tuple(protection_lacking(settings))
    if lacking and not is_loopback(settings.host):
        yield make_finding("port.open", where, f"it is open to the network without {' and without '.join(lacking)}")
    if settings.port == 0:
        yield fine("port", where, "any free port is taken")
        return
    try:
        answer = _ask_port(settings, "/healthz")
    except ConnectionRefusedError:
        yield _free(settings, where)
        return
    except (OSError, http.client.HTTPException) as error:
        code = "port.address" if _unbindable(settings.host) else "port.taken"
        yield make_finding(code, where, f"something is there that does not answer: {type(error).__name__}")
        return
    if answer.status and not answer.server.startswith("gpuwatch"):
        yield make_finding("port.taken", where, f"another program answers: {answer.server or 'it does not say which'}")
    else:
        yield fine("port", where, "gpuwatch serves there already")


def passwords(settings: ServerSettings, section: str) -> Iterator[Finding]:
    """Hashes of users that are quick to guess; unreadable files are another finding."""
    with contextlib.suppress(OSError, ValueError):
        cheap = [user for user, hashed in users_of(settings, section).value.items() if cost_of(hashed) < _LOWEST_COST]
        if cheap:
            yield make_finding("passwords.cheap", f"{section}.users_file", ", ".join(sorted(cheap)))


def alive(settings: ServerSettings, section: str) -> Finding:
    """Whether the agent or the controller of these settings runs; a container's health check."""
    where = f"{section} at {settings.host} port {settings.port}"
    path = "/healthz" if section == "agent" else "/metrics"
    try:
        answer = _ask_port(settings, path)
    except (OSError, http.client.HTTPException) as error:
        return make_finding("running.down", where, f"no answer: {error}")
    if answer.status >= http.client.INTERNAL_SERVER_ERROR:
        return make_finding("running.ill", where, f"HTTP status {answer.status}")
    if answer.status and not answer.server.startswith("gpuwatch"):
        return make_finding(
            "running.down", where, f"another program answers: {answer.server or 'it does not say which'}"
        )
    return fine("running", where, "it answers")


def _ask_port(settings: ServerSettings, path: str) -> _Answer:
    """One request without credentials: who they are is all that is asked, so their certificate is not checked."""
    host = _ANYWHERE.get(settings.host, settings.host)
    if settings.tls_certificate is None:
        connection = http.client.HTTPConnection(host, settings.port, timeout=_SECONDS)
    else:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, settings.port, timeout=_SECONDS, context=context)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return _Answer(status=response.status, server=response.headers.get("Server", ""))
    except ssl.SSLError as error:
        if "CERTIFICATE_REQUIRED" not in str(error).upper():  # it asks for a client certificate, which is fine
            raise
        return _Answer(status=0, server="")
    finally:
        connection.close()


def _free(settings: ServerSettings, where: str) -> Finding:
    wrong = _unbindable(settings.host)
    return make_finding("port.address", where, wrong) if wrong else fine("port", where, "it is free")


def _unbindable(host: str) -> str | None:
    """Why no port of that address can be listened at; None: one can. Any free port is tried, for a moment."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as tried:
            tried.bind(address)
    except OSError as error:
        return f"{host} is not an address of this machine: {error.strerror or error}"
    return None
