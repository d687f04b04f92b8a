"""Where `gpuwatch top` has its page from: the agent of this host, else the same code in this process."""

import base64
import http.client
import logging
import socket
import ssl
import threading
from dataclasses import dataclass, field, replace
from typing import Protocol, cast
from urllib.parse import SplitResult, urlsplit

import msgspec

from gpuwatch.agent.health.watch import HealthWatch
from gpuwatch.agent.parts import assemble_parts, host_name
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.state import Interruption
from gpuwatch.model.host_page import HOST_SCHEMA, HostPage
from gpuwatch.runtime.clock import Clock, SystemClock
from gpuwatch.runtime.http.access import is_loopback
from gpuwatch.runtime.http.address import host_and_port, shown_address
from gpuwatch.runtime.http.deadline import TimedSocket, seconds_left
from gpuwatch.runtime.network_errors import network_text
from gpuwatch.runtime.printable import legible

_PATH = "/v1/host"
_CLOCK = SystemClock()  # the world's: what hangs there hangs in its time
_ANSWER_SECONDS = 5.0
_LARGEST_BYTES = 16 << 20
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  compared with, not bound
_READ_HERE = "read directly; idle times begin now"
_SETTLE_SECONDS = 3.0  # after the first cycle: for the second one, which has rates, and for a look at the host
_SETTLED_CYCLES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TopPage(HostPage):
    """What the agent answers at /v1/host. `note` is what is particular about where it comes from, or empty."""

    note: str


class NoAgentError(Exception):
    """No agent that has the page answers there."""


class RefusedError(Exception):
    """An agent answers and does not let us in, or gives no page; the message says what would help."""


class Source(Protocol):
    """Where `top` gets its pages from."""

    note: str  # for the header: what is particular about this source, or nothing

    def page(self) -> HostPage:
        """The host as it is now.

        Raises:
            NoAgentError, RefusedError: it gives none.

        """
        ...

    def settle(self) -> None:
        """Wait until a page is worth looking at; at most as long as a driver may take to start."""
        ...

    def close(self) -> None:
        """End whatever was begun."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user of the agent; no secret is in its text."""

    user: str
    password: str = field(repr=False)


class AgentSource:
    """An agent, by its URL."""

    def __init__(self, url: str, login: Login | None = None, certificate: str | None = None) -> None:
        """`certificate` is the agent's own as PEM file: that one alone is believed, whatever name it bears.

        Raises:
            ValueError: it is no URL of an agent, or the password would go out in the clear.

        """
        parts = _parts(url)
        if login is not None and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            raise ValueError(f"the password goes out over https or to this host only, and {url} is neither")
        self.note = ""
        self.url = f"{parts.scheme}://{host_and_port(parts.geturl())}"
        self._host, self._port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self._context = _context(certificate) if parts.scheme == "https" else None
        self._headers = {"Accept": "application/json"}
        if login is not None:
            words = base64.b64encode(f"{login.user}:{login.password}".encode()).decode("ascii")
            self._headers["Authorization"] = f"Basic {words}"

    def page(self) -> HostPage:
        """What it answers; raises as `Source.page`."""
        try:
            status, server, body = self._ask()
        except ssl.SSLCertVerificationError as error:
            words = (
                f"the certificate of {self.url} is not believed ({error.verify_message}); SSL_CERT_FILE names its CA"
            )
            raise RefusedError(words) from error
        except ssl.SSLError as error:
            raise RefusedError(f"no TLS with {self.url}: {network_text(error, self.url)}") from error
        except TimeoutError as error:
            raise RefusedError(f"{self.url} has not answered within {_ANSWER_SECONDS:.0f} s") from error
        except (OSError, http.client.HTTPException) as error:
            why = (
                network_text(error, self.url) or getattr(error, "strerror", None) or str(error) or type(error).__name__
            )
            raise NoAgentError(f"no agent answers at {self.url}: {why}") from error
        if not server.startswith("gpuwatch"):
            raise NoAgentError(
                f"another program answers at {self.url}: {legible(server, 60) or 'it does not say which'}"
            )
        self._judge(status)
        try:
            page = msgspec.json.decode(body, type=HostPage)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RefusedError(f"{self.url}{_PATH} is not what this version expects: {error}") from error
        if page.schema > HOST_SCHEMA:
            raise RefusedError(f"the agent at {self.url} is newer (schema {page.schema}); update this gpuwatch")
        return page

    def settle(self) -> None:
        """An agent has looked before."""

    def close(self) -> None:
        """Nothing is kept open."""

    def _judge(self, status: int) -> None:
        """Raise what an answer other than 200 means."""
        match status:
            case 200:
                return
            case 401:
                raise RefusedError(f"the agent at {self.url} wants a user and a password: --user NAME")
            case 403:
                raise RefusedError(f"the agent at {self.url} serves only clients with a certificate of its CA")
            case 404:
                raise RefusedError(
                    f"gpuwatch at {self.url} has no {_PATH}: it is a controller, or an agent of an older version"
                )
        raise RefusedError(f"the agent at {self.url} answered HTTP {status}")

    def _ask(self) -> tuple[int, str, bytes]:
        """Status, server and body of one answer: no redirect and no proxy, for the page is of that agent alone.

        An agent that drips has no more time than one that is silent.
        """
        until = _CLOCK.monotonic() + _ANSWER_SECONDS
        with socket.create_connection((self._host, self._port), timeout=_ANSWER_SECONDS) as plain:
            plain.settimeout(seconds_left(_CLOCK, until))
            line = plain if self._context is None else self._context.wrap_socket(plain, server_hostname=self._host)
            with line:
                line.settimeout(seconds_left(_CLOCK, until))
                asked = http.client.HTTPConnection(self._host, self._port)
                asked.sock = line
                asked.request("GET", _PATH, headers=self._headers)
                response = http.client.HTTPResponse(
                    cast("socket.socket", TimedSocket(line, _CLOCK, until)), method="GET"
                )
                response.begin()
                return response.status, response.headers.get("Server", ""), response.read(_LARGEST_BYTES)


def _parts(url: str) -> SplitResult:
    """A URL of an agent; people leave out its scheme, and then the port that most agents have.

    Raises:
        ValueError: it is not a URL of an agent.

    """
    wrong = ValueError(f"{shown_address(url)!r} is not the URL of an agent, such as http://127.0.0.1:9460")
    try:
        parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise wrong
    if "//" not in url and port is None:
        return parts._replace(netloc=f"{host_and_port(parts.geturl()).rstrip(':')}:{AgentSettings().port}")
    return parts


def _context(certificate: str | None) -> ssl.SSLContext:
    """As for every https; or for one certificate, which is believed itself."""
    if certificate is None:
        return ssl.create_default_context()
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False  # it is this host's own, whatever name it bears
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


class DirectSource:
    """The agent's own parts, in this process, for as long as somebody looks."""

    def __init__(self, settings: AgentSettings, clock: Clock, why: str) -> None:
        """Begin to read; `why` is said in the header."""
        settings = replace(settings, health_file="none")  # that one is the agent's
        self.note = f"{why}: {_READ_HERE}"
        self._clock = clock
        self._settings = settings
        logging.getLogger("gpuwatch").addHandler(logging.NullHandler())  # what is wrong is on the screen
        health = HealthWatch(clock, settings.health, interval_seconds=settings.interval)
        self._parts = assemble_parts(settings, clock, node_id=settings.node_id or host_name(), health=health)
        self._published = threading.Condition()
        self._parts.core.on_publish = self._hear
        self._parts.supervisor.start()
        self._parts.host.start(lambda: self._parts.core.snapshot(clock.monotonic()).readings, prepare=False)
        if settings.reads_this_host:  # other sources report processes of another host
            self._parts.users.start()

    def page(self) -> HostPage:
        """As an agent would answer."""
        return self._parts.page()

    def settle(self) -> None:
        """Wait for cycles, then for the host's signals and the owners of the processes."""
        began = self._clock.monotonic()
        self._await_cycles(1, self._settings.start_deadline + self._settings.deadline)
        until = self._clock.monotonic() + _SETTLE_SECONDS
        self._await_cycles(_SETTLED_CYCLES, _SETTLE_SECONDS)
        self._parts.host.watcher.await_looks(began, until - self._clock.monotonic())
        if self._settings.reads_this_host and self._settings.attribution.enabled:
            self._parts.users.refresh()
        cycles = self._parts.core.snapshot(self._clock.monotonic()).version
        self._await_cycles(cycles + 1, max(0.0, until - self._clock.monotonic()))  # which takes the looks in

    def close(self) -> None:
        """End the probe; threads that hang end with this process."""
        self._parts.host.stop()
        self._parts.users.stop()
        self._parts.supervisor.stop()

    def _await_cycles(self, count: int, seconds: float) -> None:
        """Wait for so many cycles in all, or until there is nothing to wait for."""

        def done() -> bool:
            snapshot = self._parts.core.snapshot(self._clock.monotonic())
            hopeless = snapshot.trouble is not None and snapshot.trouble.cause != Interruption.HANG
            return snapshot.version >= count or hopeless  # after a hang the next probe serves the other GPUs

        with self._published:
            self._published.wait_for(done, seconds)

    def _hear(self) -> None:
        with self._published:
            self._published.notify_all()


def own_agent(settings: AgentSettings, login: Login | None) -> AgentSource:
    """The agent that these settings would start."""
    host = _ANYWHERE.get(settings.host, settings.host)
    scheme = "http" if settings.tls_certificate is None else "https"
    url = f"{scheme}://[{host}]:{settings.port}" if ":" in host else f"{scheme}://{host}:{settings.port}"
    return AgentSource(url, login, settings.tls_certificate)


def find_source(settings: AgentSettings, login: Login | None, clock: Clock) -> Source:
    """The agent of this host if it answers, else this process; raises nothing."""
    try:
        agent = own_agent(settings, login)
        agent.page()
    except NoAgentError:
        return DirectSource(settings, clock, "no agent runs here")
    except RefusedError as error:
        return DirectSource(settings, clock, str(error))
    except (OSError, ValueError) as error:  # its certificate cannot be read, or it listens nowhere that could be asked
        return DirectSource(settings, clock, f"the agent cannot be asked ({error})")
    return agent
