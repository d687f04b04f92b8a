"""A controller's port for hosts that join, on loopback and by a clock of the test's, and hosts at it."""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from click.testing import CliRunner, Result
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.cli.join_host import TOKEN_VARIABLE, agent_join
from gpuwatch.config import load_agent
from gpuwatch.controller.join.authority import Authority
from gpuwatch.controller.join.register import Book, Register
from gpuwatch.controller.join.serve import make_join_server, open_authority
from gpuwatch.controller.join.settings import JoinSettings
from gpuwatch.runtime import joined
from gpuwatch.runtime.clock import ManualClock, SystemClock
from gpuwatch.runtime.http.server import HttpServer
from gpuwatch.runtime.tls import TlsFiles, client_context

DAY = timedelta(days=1)
P256 = ec.SECP256R1()


def world_clock(days: float = 0.0) -> ManualClock:
    """A clock that stands so many days after the world's, by which OpenSSL judges certificates."""
    return ManualClock(wall=(SystemClock().now() + days * DAY).replace(microsecond=0))


def a_request(key: object = None) -> str:
    """A request for a certificate, signed with its own key."""
    signs = key if key is not None else ec.generate_private_key(P256)
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(signs, hashes.SHA256())  # type: ignore[arg-type]
    return made.public_bytes(serialization.Encoding.PEM).decode()


@dataclass(slots=True, kw_only=True)
class Controller:
    """The port at which hosts join."""

    join: JoinSettings
    fleet: str = "lab"
    clock: ManualClock = field(default_factory=world_clock)
    server: HttpServer | None = None

    def begin(self) -> None:
        """Start, or start again with what is in the folder."""
        self.end()
        self.server = make_join_server(self.join, self.fleet, self.clock)
        assert self.server is not None
        self.server.start()

    def end(self) -> None:
        """Listen no more."""
        if self.server is not None:
            self.server.close()
            self.server = None

    @property
    def url(self) -> str:
        """Where it listens."""
        assert self.server is not None
        return self.server.url

    @property
    def register(self) -> Register:
        """Its tokens and hosts."""
        return Register(Path(self.join.folder))

    @property
    def book(self) -> Book:
        """What is in the register now."""
        return self.register.read()

    @property
    def authority(self) -> Authority:
        """Its authority, with all files fresh."""
        return open_authority(self.join, self.fleet, self.clock)

    def token(self, *, hosts: int = 1, hours: float = 1.0, node_id: str | None = None) -> str:
        """A token."""
        now, authority = self.clock.now(), self.authority
        until = now + timedelta(hours=hours)
        with self.register.change(now, authority) as book:
            made = book.make_token(now, until=until, hosts=hosts, node_id=node_id, pin=authority.fingerprint)
        return made.text()

    def revoke(self, what: str) -> None:
        """`gpuwatch join revoke`."""
        with self.register.change(self.clock.now(), self.authority) as book:
            assert book.revoke(what, self.clock.now())

    def post(self, path: str, body: bytes, context: ssl.SSLContext | None = None) -> tuple[int, str]:
        """Status and words of an answer."""
        try:
            shown = context or joined.unverified_context()
            return 200, joined.ask_controller(self.url, path, body, shown, SystemClock()).decode()
        except joined.AnswerError as error:
            return error.status, str(error)

    def ask_to_join(
        self, token: str, node_id: str = "i-1", request: str | None = None, **more: object
    ) -> tuple[int, str]:
        """A request to join, with fields of the test's choice."""
        given = joined.read_token(token)
        body = {"token": given.id, "secret": given.secret, "node_id": node_id, "request": request or a_request()}
        return self.post(joined.JOIN_PATH, json.dumps(body | more).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class JoiningHost:
    """A host with files of its own."""

    folder: Path
    node_id: str = "i-1"

    @property
    def config(self) -> Path:
        """Its settings."""
        return self.folder / "gpuwatch.yaml"

    @property
    def agent(self) -> AgentSettings:
        """What its agent would obey."""
        return load_agent(self.config)

    def join(self, where: str, token: str, *words: str, env: Mapping[str, str] | None = None) -> Result:
        """`gpuwatch agent join`."""
        self.folder.mkdir(exist_ok=True)
        own = ["--node", self.node_id, "--folder", str(self.folder / "join"), "--config", str(self.config)]
        variables = {TOKEN_VARIABLE: token} if env is None else dict(env)
        return CliRunner().invoke(agent_join, [where, *own, *words], env=variables)

    def certificate(self) -> x509.Certificate:
        """What it has."""
        return x509.load_pem_x509_certificate((self.folder / "join/agent.pem").read_bytes())


def renewal_context(host: JoiningHost) -> ssl.SSLContext:
    """A client with the host's certificate."""
    folder = host.folder / "join"
    files = TlsFiles(section="agent", certificate=folder / "agent.pem", key=folder / "agent.key", ca=folder / "ca.pem")
    return client_context(files)


@contextmanager
def a_controller(folder: Path) -> Iterator[Controller]:
    """One that listens."""
    made = Controller(join=JoinSettings(host="127.0.0.1", port=0, folder=str(folder)))
    made.begin()
    yield made
    made.end()
