"""The door of the settings: TLS, and passwords checked against bcrypt hashes, which are slow on purpose.

Each right password is verified once and remembered as a digest under a random key of this process, one for each user.
Only one is verified at a time, so that guessing cannot take more than one core from the jobs on this host.
"""

import hmac
import logging
import math
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from pathlib import Path

from gpuwatch.runtime.bounded_text import text_of
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.access import LoginLimiter, basic_credentials, client_of, cost_of, of_cost, parse_users
from gpuwatch.runtime.http.request import TEXT, Response
from gpuwatch.runtime.http.server import ServerAuth
from gpuwatch.runtime.http.settings import ServerSettings
from gpuwatch.runtime.reloading_file import ReloadingFile
from gpuwatch.runtime.tls import TlsFiles, server_context

_LOG = logging.getLogger(__name__)

RESULTS = ("wrong", "limited", "busy")  # of requests that are refused with a user and a password

_WAIT_SECONDS = 5.0
_LOG_SECONDS = 60.0
_MOST_PAIRS = 4096
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
_COME_IN = Response(body=b"", content_type=TEXT)
_BUSY = Response(
    status=HTTPStatus.SERVICE_UNAVAILABLE,
    body=b"503 other passwords are being verified\n",
    content_type=TEXT,
    headers=(("Retry-After", "1"),),
)


def make_auth(settings: ServerSettings, clock: Clock, section: str) -> ServerAuth:
    """Who may come in by these settings of that section. Certificates and users are read again when their files change.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not what it should be.
        ImportError: passwords need bcrypt, and it is not installed; the words say how to install it.

    """
    gate, contexts = None, None
    if settings.basic_auth_users or settings.users_file is not None:
        try:
            gate = Authenticator(users_of(settings, section), clock)
        except ImportError as error:
            from gpuwatch.runtime.installed import MissingExtraError, install_command  # noqa: PLC0415  for this alone

            why = (
                f"{section}.users_file and {section}.basic_auth_users need bcrypt ({error}): {install_command('auth')}"
            )
            raise MissingExtraError(why) from error
    if settings.tls_certificate is not None and settings.tls_key is not None:
        files = files_of(settings, section)
        contexts = ReloadingFile(files.paths, lambda: server_context(files))
    return ServerAuth(
        gate=gate,
        failures=dict if gate is None else gate.failures,
        secure=None if contexts is None else lambda: contexts.value,
        max_per_client=settings.max_connections_per_client,
        client_names=frozenset(settings.tls_client_names),
        names=frozenset((settings.host, *settings.allowed_hosts)),
    )


def files_of(settings: ServerSettings, section: str) -> TlsFiles:
    """The files of the door's TLS."""
    certificate, key, ca = (
        None if name is None else Path(name)
        for name in (settings.tls_certificate, settings.tls_key, settings.tls_client_ca)
    )
    return TlsFiles(
        section=section,
        certificate=certificate,
        key=key,
        ca=ca,
        ca_key="tls_client_ca",
        only_1_3=settings.tls_min == "1.3",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request's user and password, its client, and what they are compared with."""

    user: str
    password: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    client: str
    users: Mapping[str, str] = field(repr=False)
    passed: set[str]

    @property
    def pair(self) -> str:
        """That user from that address."""
        return f"{self.client}\0{self.user}"


class Authenticator:
    """Lets known users pass; it is a `Gate` of the server.

    Guesses are limited twice, each time to a few at once and then one more each ten seconds:

    1. Of one user from one address. Beyond that nothing is looked at, right or wrong: an answer that differs for
       the right password would allow further guessing. Only a connection on which that user has logged in
       goes on, until it sends a wrong password.
    2. Of one address, whatever user. Beyond that no password is verified; those verified before are still known.

    Checking a wrong password takes the same time for every user, known or not, so that time reveals no names.
    """

    def __init__(self, users: ReloadingFile[Mapping[str, str]], clock: Clock) -> None:
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
        self._by_address, self._by_user = LoginLimiter(), LoginLimiter(most_clients=_MOST_PAIRS)
        self._book = threading.Lock()  # of what is verified and of both strikes: a look and its consequence are one
        self._turn = FairLock()
        self._failures = Counter[str]()
        self._unlogged, self._logged_at = 0, -math.inf

    def failures(self) -> Mapping[str, int]:
        """Requests that were refused with a user and a password, by result, since the start."""
        with self._book:
            return {result: self._failures[result] for result in RESULTS}

    def __call__(self, authorization: str, address: str, passed: set[str] | None = None) -> Response | None:
        """None for a known user with the right password, else what to answer.

        `passed` are the users who have logged in on this connection; it is kept here.
        """
        given = basic_credentials(authorization)
        if given is None:
            return _UNAUTHORIZED
        user, password = given
        attempt = Attempt(
            user=user,
            password=password,
            digest=hmac.digest(self._key, b"%d:%b:%b" % (len(user), user.encode(), password), "sha256"),
            client=client_of(address),
            users=self._users.value,
            passed=set() if passed is None else passed,
        )
        with self._book:
            known, answer = self._looked_up(attempt)
            late = self._by_address.any(attempt.client, self._clock.monotonic())
        if answer is not None:
            return None if answer is _COME_IN else answer
        with self._turn.hold(int(late), _WAIT_SECONDS) as mine:
            if not mine:
                with self._book:
                    self._failures["busy"] += 1
                return _BUSY
            return self._verify(attempt, known=known)

    def _looked_up(self, attempt: Attempt) -> tuple[bool, Response | None]:
        """Whether a right password of that user is remembered, and the answer where none has to be verified."""
        now = self._clock.monotonic()
        hashed, digest = self._verified.get(attempt.user, ("", b""))
        known = bool(hashed) and attempt.users.get(attempt.user) == hashed
        right = known and hmac.compare_digest(digest, attempt.digest)
        if attempt.user not in attempt.passed and not self._by_user.allows(attempt.pair, now):
            return known, self._refuse_unchecked(attempt, now)
        if right:
            attempt.passed.add(attempt.user)
            return known, _COME_IN
        attempt.passed.discard(attempt.user)
        if known:  # it counts before it is answered: others may be guessing at the same time
            self._by_user.note_failure(attempt.pair, now)
        return known, None if self._by_address.allows(attempt.client, now) else self._refuse_unchecked(attempt, now)

    def _verify(self, attempt: Attempt, *, known: bool) -> Response | None:
        """Pay for one verification; what is known to be wrong, and a user who does not exist, cost as much."""
        user, client = attempt.user, attempt.client
        with self._book:
            now = self._clock.monotonic()
            counted = known or self._by_user.allows(attempt.pair, now)
            if not counted or not self._by_address.allows(client, now):  # others have failed while it waited
                return self._refuse_unchecked(attempt, now)
        hashed = attempt.users.get(user)
        possible = len(attempt.password) <= _LONGEST_PASSWORD_BYTES and b"\0" not in attempt.password
        right = self._check_password(attempt.password if possible else b"", hashed, attempt.users) and possible
        with self._book:
            if hashed is not None and right:
                self._verified = {name: kept for name, kept in self._verified.items() if name in attempt.users}
                self._verified[user] = (hashed, attempt.digest)
                attempt.passed.add(user)
                return None
            self._by_address.note_failure(client, now)
            if hashed is not None and not known:
                self._by_user.note_failure(attempt.pair, now)
            self._failures["wrong"] += 1
        # No word of what was given: people type passwords into names.
        _LOG.warning("a wrong user or password from %s", client)
        return _UNAUTHORIZED

    def _check_password(self, password: bytes, hashed: str | None, users: Mapping[str, str]) -> bool:
        """Whether that password fits; where it does not, at the cost of the dearest hash of all, to the round.

        Hashes of costs c, c + 1, … d - 1 take together what one of cost d takes less one of cost c: 2^c rounds each.
        """
        dearest = max(users.values(), key=cost_of)
        if self._matches(password, (hashed or dearest).encode()):
            return hashed is not None
        for cost in range(cost_of(hashed or dearest), cost_of(dearest)):
            self._matches(password, of_cost(dearest, cost).encode())
        return False

    def _refuse_unchecked(self, attempt: Attempt, now: float) -> Response:
        """Refuse without a check; counted, and logged once a minute."""
        self._failures["limited"] += 1
        self._unlogged += 1
        if now - self._logged_at >= _LOG_SECONDS:
            _LOG.warning(
                "too many wrong passwords; log-ins refused without a check (429): %d, the latest from %s",
                self._unlogged,
                attempt.client,
            )
            self._unlogged, self._logged_at = 0, now
        return _TOO_MANY


def users_of(settings: ServerSettings, section: str) -> ReloadingFile[Mapping[str, str]]:
    """The users that the settings list and name a file of; the file is read again when it changes.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else.

    """
    path = None if settings.users_file is None else Path(settings.users_file)

    def make() -> Mapping[str, str]:
        if path is None:
            return dict(settings.basic_auth_users)
        try:
            text = text_of(path, encoding="utf-8")
        except OSError as error:
            raise OSError(f"{section}.users_file: {path} cannot be read: {error.strerror}") from error
        return {**settings.basic_auth_users, **parse_users(text, f"{section}.users_file: {path}")}

    return ReloadingFile([] if path is None else [path], make)


class FairLock:
    """A lock that serves its waiters by rank, the lowest first, and within a rank as they came."""

    def __init__(self) -> None:
        """Begin with the lock free."""
        self._changed = threading.Condition()
        self._held = False
        self._waiting: set[tuple[int, int]] = set()
        self._numbers = count()

    @contextmanager
    def hold(self, rank: int, timeout_seconds: float) -> Iterator[bool]:
        """Hold it for a while; False: it could not be had within that time, and is not held."""
        held = self._take(rank, timeout_seconds)
        try:
            yield held
        finally:
            if held:
                with self._changed:
                    self._held = False
                    self._changed.notify_all()

    def _take(self, rank: int, timeout_seconds: float) -> bool:
        with self._changed:
            mine = (rank, next(self._numbers))
            self._waiting.add(mine)
            try:
                first = self._changed.wait_for(lambda: not self._held and min(self._waiting) == mine, timeout_seconds)
                self._held = self._held or first
            finally:
                self._waiting.discard(mine)
                self._changed.notify_all()  # who waits behind one that gave up
            return first
