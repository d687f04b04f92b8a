"""Who may join and who has joined: tokens and hosts, in one file next to the authority.

1. A token is used up by hosts that get a certificate, never by one that is refused; its secret is kept as a hash.
2. A node that has joined is that host's: another key gets its name only by a token that is made for that node.
3. A host that asks again with the same key and the same token, because the answer was lost, is no second host.
4. A certificate that was replaced or taken back is on the authority's list until it ends.
"""

import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path

import msgspec

from gpuwatch.controller.join.authority import Issued, give_to_owner, write
from gpuwatch.model.bounds import BoundedInt
from gpuwatch.runtime.joined import LONGEST_NODE_ID, Token

_FILE, _LOCK = "register.json", ".lock"
_TOKENS_KEPT = timedelta(days=30)  # after their end, for `gpuwatch join list`
_HOSTS_KEPT = timedelta(days=90)  # after the end of their certificates: so long a name is nobody else's
_MOST_HOSTS = 20_000
_MOST_CERTIFICATES = 8  # of one host that are valid at the same time: an agent renews two or three times in one's life


class RefusedError(Exception):
    """A host is not let in; the words are for the person at that host, and name no other host's secrets."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status = status


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that was made: its number, and until when somebody may believe it."""

    serial: str
    end: datetime


class HeldToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token: of its secret only the hash is here."""

    id: str
    secret_sha256: str
    made_at: datetime
    until: datetime
    hosts: BoundedInt
    used: BoundedInt = 0
    node_id: str | None = None  # the one node that it is for
    revoked: bool = False

    def state(self, now: datetime) -> str:
        """Whether it can be used, in one word or two."""
        if self.revoked:
            return "revoked"
        if now >= self.until:
            return "ended"
        return "used up" if self.used >= self.hosts else "valid"


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A host that has joined: the key is the SHA-256 of its public key."""

    node_id: str
    key: str
    address: str
    joined_at: datetime
    token: str
    certificates: tuple[Certificate, ...] = ()
    revoked_at: datetime | None = None

    @property
    def end(self) -> datetime:
        """Until when its newest certificate is valid."""
        return max((each.end for each in self.certificates), default=self.joined_at)

    def state(self, now: datetime) -> str:
        """How it stands, in one word."""
        return "revoked" if self.revoked_at is not None else "joined" if now < self.end else "ended"


class Book(msgspec.Struct, kw_only=True):
    """All tokens, hosts and revoked certificates."""

    schema: BoundedInt = 1
    tokens: dict[str, HeldToken] = {}
    hosts: dict[str, Host] = {}
    revoked: list[Certificate] = []

    def make_token(self, now: datetime, *, until: datetime, hosts: int, node_id: str | None, pin: bytes) -> Token:
        """A new token; nobody but the caller ever has its secret."""
        made = Token(id=secrets.token_hex(4), secret=secrets.token_urlsafe(24), pin=pin)
        self.tokens[made.id] = HeldToken(
            id=made.id, secret_sha256=_sha256(made.secret), made_at=now, until=until, hosts=hosts, node_id=node_id
        )
        return made

    def check_token(self, token_id: str, secret: str, now: datetime) -> HeldToken:
        """The token.

        Raises:
            RefusedError: there is no such token, or its time is over.

        """
        held = self.tokens.get(token_id)
        right = hmac.compare_digest(_sha256(secret), "" if held is None else held.secret_sha256)
        if held is None or not right:
            raise RefusedError(HTTPStatus.FORBIDDEN, "the controller does not know this token")
        if held.state(now) in {"revoked", "ended"}:
            raise RefusedError(HTTPStatus.FORBIDDEN, f"this token is {held.state(now)}; ask for a new one")
        return held

    def admit(self, held: HeldToken, node_id: str, key: str) -> bool:
        """Whether the host is one more of the token's; it is let in either way.

        Raises:
            RefusedError: it is not let in.

        """
        if not node_id or len(node_id) > LONGEST_NODE_ID or not node_id.isprintable() or node_id != node_id.strip():
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"a node's id has 1 to {LONGEST_NODE_ID} printable characters")
        if held.node_id not in {None, node_id}:
            raise RefusedError(HTTPStatus.FORBIDDEN, f"this token is for the node {held.node_id} alone")
        there = self.hosts.get(node_id)
        again = there is not None and there.key == key and there.revoked_at is None
        if again and there is not None and there.token == held.id:
            return False
        if held.used >= held.hosts:
            raise RefusedError(HTTPStatus.FORBIDDEN, "this token is used up; ask for a new one")
        if there is not None and not again and held.node_id is None:
            remedy = f"if this host was installed again, use a token of `gpuwatch join token --node {node_id}`"
            was = "was revoked" if there.revoked_at is not None else "has joined already, with another key"
            raise RefusedError(HTTPStatus.CONFLICT, f"the node {node_id} {was}; {remedy}")
        if any(host.key == key and host.node_id != node_id for host in self.hosts.values()):
            raise RefusedError(HTTPStatus.CONFLICT, "another node has joined with this key; remove the key file")
        if there is None and len(self.hosts) >= _MOST_HOSTS:
            raise RefusedError(HTTPStatus.INSUFFICIENT_STORAGE, f"{_MOST_HOSTS} hosts have joined; no more can")
        return True

    def note_joined(self, held: HeldToken, host: Host, issued: Issued, *, counts: bool) -> None:
        """A host has its certificate; those of another key for the same node are taken back."""
        if counts:
            self.tokens[held.id] = msgspec.structs.replace(held, used=held.used + 1)
        there, new = self.hosts.get(host.node_id), _certificate_of(issued)
        kept: tuple[Certificate, ...] = ()
        if there is not None:
            if there.key == host.key:
                kept = there.certificates
            else:
                self.revoked += there.certificates
        self.hosts[host.node_id] = msgspec.structs.replace(host, certificates=(*kept, new))

    def of_key(self, key: str, now: datetime) -> Host:
        """The host that may renew with this key.

        Raises:
            RefusedError: none may.

        """
        found = next((each for each in self.hosts.values() if each.key == key), None)
        if found is None or found.revoked_at is not None:
            raise RefusedError(HTTPStatus.FORBIDDEN, "this certificate was revoked; join again with a new token")
        if sum(now < each.end for each in found.certificates) >= _MOST_CERTIFICATES:
            words = "this host has renewed too often; its agent has a certificate that is still valid"
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, words)
        return found

    def note_renewed(self, host: Host, issued: Issued, now: datetime) -> None:
        """A host has one more certificate."""
        kept = tuple(each for each in host.certificates if now < each.end)
        self.hosts[host.node_id] = msgspec.structs.replace(host, certificates=(*kept, _certificate_of(issued)))

    def revoke(self, what: str, now: datetime) -> str | None:
        """Take back a token by its id, or the certificates of a node; says what it was, None for nothing known."""
        if what in self.hosts:
            host = self.hosts[what]
            if host.revoked_at is None:
                self.revoked += host.certificates
                self.hosts[what] = msgspec.structs.replace(host, revoked_at=now)
            return "host"
        if what in self.tokens:
            self.tokens[what] = msgspec.structs.replace(self.tokens[what], revoked=True)
            return "token"
        return None

    def prune(self, now: datetime) -> None:
        """Forget what has ended long ago."""
        self.tokens = {key: each for key, each in self.tokens.items() if now < each.until + _TOKENS_KEPT}
        self.hosts = {key: each for key, each in self.hosts.items() if now < each.end + _HOSTS_KEPT}
        self.revoked = [each for each in self.revoked if now < each.end]

    @property
    def revoked_serials(self) -> list[int]:
        """The numbers of certificates that nobody should believe."""
        return [int(each.serial, 16) for each in self.revoked]


@dataclass(frozen=True, slots=True)
class Register:
    """The file; several processes may write it."""

    folder: Path

    def read(self) -> Book:
        """What is in it; nothing where there is no file yet.

        Raises:
            OSError: it cannot be read.
            ValueError: it is damaged.

        """
        path = self.folder / _FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=Book)
        except FileNotFoundError:
            return Book()
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path} is damaged: {error}; put back a copy of the folder") from error

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Nobody else writes in the folder meanwhile."""
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            give_to_owner(descriptor, self.folder)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def change(self, now: datetime) -> Iterator[Book]:
        """The book, written at the end unless there was an error; raises as `read`."""
        with self.lock():
            book = self.read()
            yield book
            book.prune(now)
            write(self.folder / _FILE, msgspec.json.format(msgspec.json.encode(book), indent=1))


def _certificate_of(issued: Issued) -> Certificate:
    return Certificate(serial=f"{issued.serial:x}", end=issued.end)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
