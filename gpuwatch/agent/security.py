"""The door of the settings: TLS, and passwords checked against bcrypt hashes, which are slow on purpose.

Each right password is verified once and remembered as a digest under a random key of this process, one for each user.
Only one is verified at a time, so that guessing cannot take more than one core from the jobs on this host.
"""

import hmac
import logging
import secrets
import threading
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from gpuwatch.agent.access import Strikes, basic_credentials, client_of, parse_users
from gpuwatch.agent.knobs import AgentKnobs
from gpuwatch.agent.server import TEXT, Door, Response
from gpuwatch.clock import Clock
from gpuwatch.reread import Reread
from gpuwatch.tls import TlsFiles, server_context

_LOG = logging.getLogger(__name__)

_WAIT_SECONDS = 5.0
_LONGEST_PASSWORD_BYTES = 72  # what bcrypt can take

_UNAUTHORIZED = Response(
    status=HTTPStatus.UNAUTHORIZED,
    body=b"401 a user and a password are needed\n",
    content_type=TEXT,
    headers=(("WWW-Authenticate", 'Basic realm="gpuwatch", charset="UTF-8"'),),
)
_TOO_MANY = Response(
    status=HTTPStatus.TOO_MANY_REQUESTS,
    body=b"429 too many wrong passwords from this address\n",
    content_type=TEXT,
    headers=(("Retry-After", "10"),),
)
_BUSY = Response(
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    body=b"503 other passwords are being verified\n",
    content_type=TEXT,
    headers=(("Retry-After", "1"),),
)


def door_of(knobs: AgentKnobs, clock: Clock, section: str = "agent") -> Door:
    """Who may come in by these settings of that section. Certificates and users are read again when their files change.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not what it should be.
        ImportError: passwords need bcrypt, and it is not installed.

    """
    gate, contexts = None, None
    if knobs.basic_auth_users or knobs.users_file is not None:
        gate = Authenticator(users_of(knobs, section), clock)
    if knobs.tls_certificate is not None and knobs.tls_key is not None:
        files = files_of(knobs, section)
        contexts = Reread(files.paths, lambda: server_context(files))
    return Door(
        gate=gate,
        secure=None if contexts is None else lambda: contexts.value,
        max_per_client=knobs.max_connections_per_client,
    )


def files_of(knobs: AgentKnobs, section: str = "agent") -> TlsFiles:
    """The files of the door's TLS."""
    certificate, key, ca = (
        None if name is None else Path(name) for name in (knobs.tls_certificate, knobs.tls_key, knobs.tls_client_ca)
    )
    return TlsFiles(section=section, certificate=certificate, key=key, ca=ca, ca_key="tls_client_ca")


class Authenticator:
    """Lets known users pass; it is a `Gate` of the server."""

    def __init__(self, users: Reread[Mapping[str, str]], clock: Clock) -> None:
        """`users` are bcrypt hashes by name.

        Raises:
            ImportError: bcrypt is not installed.

        """
        import bcrypt  # noqa: PLC0415  only where there are users

        self._users = users
        self._clock = clock
        self._matches = bcrypt.checkpw
        self._key = secrets.token_bytes(32)
        self._verified: dict[str, tuple[str, bytes]] = {}  # user: the hash it was verified against, the digest
        self._strikes = Strikes()
        self._verifying = threading.Lock()

    def __call__(self, authorization: str, address: str) -> Response | None:
        """None for a known user with the right password, else what to answer."""
        given = basic_credentials(authorization)
        if given is None:
            return _UNAUTHORIZED
        user, password = given
        users = self._users.value
        digest = hmac.digest(self._key, b"%d:%b:%b" % (len(user), user.encode(), password), "sha256")
        hashed, remembered = self._verified.get(user, ("", b""))
        if hashed and users.get(user) == hashed and hmac.compare_digest(remembered, digest):
            return None
        client = client_of(address)
        if not self._strikes.allowed(client, self._clock.monotonic()):
            return _TOO_MANY
        if not self._verifying.acquire(timeout=_WAIT_SECONDS):
            return _BUSY
        try:
            return self._verify(users, user, password, digest, client)
        finally:
            self._verifying.release()

    def _verify(
        self, users: Mapping[str, str], user: str, password: bytes, digest: bytes, client: str
    ) -> Response | None:
        """Pay for one verification; a user who does not exist costs as much, so that time tells nothing."""
        now = self._clock.monotonic()
        if not self._strikes.allowed(client, now):  # others of this client have failed while it waited
            return _TOO_MANY
        hashed = users.get(user)
        decoy = next(iter(users.values()))
        possible = len(password) <= _LONGEST_PASSWORD_BYTES and b"\0" not in password
        right = self._matches(password if possible else b"", (hashed or decoy).encode())
        if hashed is None or not right or not possible:
            self._strikes.failed(client, now)
            # No word of what was given: people type passwords into names.
            _LOG.warning("a wrong user or password from %s", client)
            return _UNAUTHORIZED
        self._verified = {known: kept for known, kept in self._verified.items() if known in users}
        self._verified[user] = (hashed, digest)
        return None


def users_of(knobs: AgentKnobs, section: str = "agent") -> Reread[Mapping[str, str]]:
    """The users that the settings list and name a file of; the file is read again when it changes.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else.

    """
    path = None if knobs.users_file is None else Path(knobs.users_file)

    def make() -> Mapping[str, str]:
        if path is None:
            return dict(knobs.basic_auth_users)
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise OSError(f"{section}.users_file: {path} cannot be read: {error.strerror}") from error
        return {**knobs.basic_auth_users, **parse_users(text, f"{section}.users_file: {path}")}

    return Reread([] if path is None else [path], make)
