"""Pages of servers on this machine: asked over loopback alone, bounded in time and size, never redirected."""

import http.client
import io
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.agent.evidence.settings import ModelServerSettings
from gpuwatch.model.setting import Contradiction
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.http.deadline import seconds_left
from gpuwatch.runtime.printable import legible

_LARGEST_BYTES = 4 << 20  # vLLM's page has some hundred kB
_PART_BYTES = 1 << 16
_OK = 200
_PORTS = {"http": 80, "https": 443}
_CLOCK = SystemClock()  # the world's: what hangs here hangs in its time
_LOCALHOST = ("127.0.0.1", "::1")  # whatever a resolver says
_RIGHT = "a page on loopback, such as http://127.0.0.1:8000/metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Where a page is: the addresses to try in turn, the port, and what to ask for there."""

    addresses: tuple[str, ...]
    port: int
    target: str
    secure: bool = False


class _Whole:
    """An answer that has been read, as what http.client takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _: str) -> io.BytesIO:
        """Return the whole answer as a file."""
        return io.BytesIO(self._data)


def parse(url: str) -> Page:
    """Read a URL.

    Raises:
        ValueError: it is no URL of a page on loopback; the message says what it is.

    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("is no URL") from None
    if parts.scheme not in _PORTS or not parts.hostname or not url.isprintable() or " " in url:
        raise ValueError("is no URL of HTTP")
    if parts.username is not None or parts.password is not None:
        raise ValueError("names a user, and gpuwatch sends no password")
    addresses = _LOCALHOST if parts.hostname == "localhost" else (parts.hostname,)
    if not all(map(_is_loopback, addresses)):
        raise ValueError("is not on loopback")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii():
        raise ValueError("has letters that a URL must write as %XX")
    return Page(addresses=addresses, port=port or _PORTS[parts.scheme], target=target, secure=parts.scheme == "https")


def contradictions(settings: ModelServerSettings) -> Iterator[Contradiction]:
    """Endpoints that are not pages on loopback."""
    for name, url in settings.endpoints.items():
        try:
            parse(url)
        except ValueError as error:
            shown = legible(url.rpartition("@")[2], 80)  # what is before it may be a password
            yield Contradiction(
                keys=(("agent", "evidence", "model_servers", "endpoints", name),),
                wrong=f"{shown!r} {error}",
                right=_RIGHT,
            )


def fetch(page: Page, seconds: float) -> bytes:
    """The body of a page.

    Raises:
        ConnectionRefusedError: nobody listens there.
        OSError: the connection failed, or (TimeoutError) the whole answer was not there in time.
        UnseenError: the answer is no page: another status than 200, no HTTP, or too large.

    """
    ends = _CLOCK.monotonic() + seconds
    refused: ConnectionRefusedError | None = None
    for address in page.addresses:
        try:
            raw = _fetch_page(page, address, ends)
        except ConnectionRefusedError as error:
            refused = error
            continue
        return _body(raw)
    raise refused or UnseenError("it has no address")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _fetch_page(page: Page, address: str, ends: float) -> bytes:
    """All that the server writes until it hangs up: a page that drips must not hold us up."""
    host = f"[{address}]" if ":" in address else address
    words = (
        f"GET {page.target} HTTP/1.1",
        f"Host: {host}:{page.port}",
        "Accept: text/plain;version=0.0.4, application/json;q=0.5",
        "User-Agent: gpuwatch",
        "Connection: close",
    )
    with closing(_connect_to(page, address, ends)) as connection:
        connection.sendall("\r\n".join((*words, "", "")).encode("ascii"))
        data = bytearray()
        while len(data) <= _LARGEST_BYTES:
            connection.settimeout(seconds_left(_CLOCK, ends))
            part = connection.recv(_PART_BYTES)
            if not part:
                return bytes(data)
            data += part
    raise UnseenError("its page is larger than it can rightly be")


def _connect_to(page: Page, address: str, ends: float) -> socket.socket:
    plain = socket.create_connection((address, page.port), timeout=seconds_left(_CLOCK, ends))
    if not page.secure:
        return plain
    try:
        return _context().wrap_socket(plain)
    except BaseException:
        plain.close()
        raise


def _context() -> "ssl.SSLContext":
    """On loopback a certificate proves nothing: it does not name 127.0.0.1. Nothing secret is sent."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _body(raw: bytes) -> bytes:
    response = http.client.HTTPResponse(_Whole(raw), method="GET")  # type: ignore[arg-type]  # it wants makefile alone
    try:
        response.begin()
        if response.status != _OK:
            raise UnseenError(f"it answers HTTP {response.status}")
        return response.read()
    except (http.client.HTTPException, UnicodeError, ValueError):
        raise UnseenError("it does not speak HTTP") from None
