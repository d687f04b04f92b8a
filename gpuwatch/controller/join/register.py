"""Who may join and who has joined: tokens and hosts, in one file next to the authority.

1. A token is used up by hosts that get a certificate, never by one that is refused; its secret is kept as a hash.
2. A node that has joined is that host's: another key gets its name only by a token that is made for that node.
3. A host that asks again with the same key and the same token, because the answer was lost, is no second host.
4. A certificate that was replaced or taken back is on the authority's list; a key that was revoked never comes back.
5. Nothing is forgotten because of its age alone: a clock that is wrong for a minute would forget all.
"""

import fcntl
import hashlib
import hmac
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from gpuwatch.controller.join.authority import Authority, Issued, give_to_owner, write
from gpuwatch.controller.join.settings import AUTHORITY
from gpuwatch.model.bounds import BoundedInt
from gpuwatch.runtime.joined import LONGEST_NODE_ID, Token

_FILE, _LOCK = "register.json", ".lock"
_REMEDY = "put back a copy of the folder, or move the folder away and let all hosts join again"
TOKENS_KEPT = timedelta(days=30)  # after their end, for `gpuwatch join list`
HOSTS_KEPT = timedelta(days=90)  # after the end of their certificates: so long a name is nobody else's
_MOST_HOSTS = 20_000
_ENDED_HOSTS, _ENDED_TOKENS, _ENDED_CERTIFICATES = 10_000, 1000, 4096  # so many are remembered however old they are
_MOST_CERTIFICATES = 8  # of one host that are valid at the same time: an agent renews two or three times in one's life
_BEYOND = timedelta(days=1)  # and one more so often, for a host that could not keep those that it got

WRONG_NODE_ID = f"a node's id has 1 to {LONGEST_NODE_ID} printable characters, and no space at its begin or end"

T = TypeVar("T")


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
    issued_at: datetime | None = None  # the newest of them
    revoked_at: datetime | None = None

    @property
    def end(self) -> datetime:
        """Until when its newest certificate is valid."""
        return max((each.end for each in self.certificates), default=self.joined_at)

    def check_rate(self, now: datetime) -> None:
        """Let a host have a certificate more.

        Raises:
            RefusedError: it has many, and got one today.

        """
        valid = sum(now < each.end for each in self.certificates)
        today = self.issued_at is not None and timedelta(0) <= now - self.issued_at < _BEYOND
        if valid >= _MOST_CERTIFICATES and today:
            words = f"this host has {valid} certificates that are valid, and gets one more tomorrow"
            raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, words)

    def state(self, now: datetime) -> str:
        """How it stands, in one word."""
        return "revoked" if self.revoked_at is not None else "joined" if now < self.end else "ended"


class Book(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All tokens, hosts and revoked certificates."""

    schema: Literal[1]  # always written, so that an empty file of another program is not taken for a new register
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

    def admit(self, held: HeldToken, node_id: str, key: str, now: datetime) -> bool:
        """Whether the host is one more of the token's; it is let in either way.

        Raises:
            RefusedError: it is not let in.

        """
        if not is_node_id(node_id):
            raise RefusedError(HTTPStatus.BAD_REQUEST, WRONG_NODE_ID)
        if held.node_id not in {None, node_id}:
            raise RefusedError(HTTPStatus.FORBIDDEN, f"this token is for the node {held.node_id} alone")
        there = self.hosts.get(node_id)
        if there is not None and there.end + HOSTS_KEPT < now and there.revoked_at is None:
            there = None
        again = there is not None and there.key == key and there.revoked_at is None
        if again and there is not None:
            there.check_rate(now)
            if there.token == held.id:
                return False
        if held.used >= held.hosts:
            raise RefusedError(HTTPStatus.FORBIDDEN, "this token is used up; ask for a new one")
        if there is not None and there.key == key and not again:
            remedy = f"move its file agent.key away, and use a token of `gpuwatch join token --node {node_id}`"
            raise RefusedError(HTTPStatus.CONFLICT, f"the key of the node {node_id} was revoked; {remedy}")
        if there is not None and not again and held.node_id is None:
            remedy = f"if this host was installed again, use a token of `gpuwatch join token --node {node_id}`"
            was = "was revoked" if there.revoked_at is not None else "has joined already, with another key"
            raise RefusedError(HTTPStatus.CONFLICT, f"the node {node_id} {was}; {remedy}")
        if any(host.key == key and host.node_id != node_id for host in self.hosts.values()):
            raise RefusedError(HTTPStatus.CONFLICT, "another node has joined with this key; remove the key file")
        if node_id not in self.hosts and len(self.hosts) >= _MOST_HOSTS:
            raise RefusedError(HTTPStatus.INSUFFICIENT_STORAGE, f"{_MOST_HOSTS} hosts have joined; no more can")
        return True

    def note_joined(self, held: HeldToken, host: Host, issued: Issued, *, counts: bool) -> None:
        """A host has its certificate; those of another key for the same node are taken back."""
        if counts:
            self.tokens[held.id] = msgspec.structs.replace(held, used=held.used + 1)
        there = self.hosts.get(host.node_id)
        if there is not None and there.key == host.key:
            host = msgspec.structs.replace(host, certificates=there.certificates)
        elif there is not None and there.revoked_at is None:
            self.revoked += there.certificates
        self.note_issued(host, issued, host.joined_at)

    def of_key(self, key: str, now: datetime) -> Host:
        """The host that may renew with this key.

        Raises:
            RefusedError: none may.

        """
        found = next((each for each in self.hosts.values() if each.key == key), None)
        if found is None:
            words = "the controller knows no host with this key; join again with a new token"
            raise RefusedError(HTTPStatus.FORBIDDEN, words)
        if found.revoked_at is not None:
            raise RefusedError(HTTPStatus.FORBIDDEN, "this certificate was revoked; join again with a new token")
        found.check_rate(now)
        return found

    def note_issued(self, host: Host, issued: Issued, now: datetime) -> None:
        """A host has one more certificate."""
        kept = tuple(each for each in host.certificates if now < each.end)
        new = Certificate(serial=f"{issued.serial:x}", end=issued.end)
        self.hosts[host.node_id] = msgspec.structs.replace(host, certificates=(*kept, new), issued_at=now)

    def revoke(self, what: str, now: datetime) -> list[str]:
        """Take back a token by its id, and the certificates of a node; says which it was, both where a name is both.

        A thief chooses the name of his node: he may take his token's id, which must not protect the token.
        """
        found = []
        if what in self.tokens:
            found.append("token")
            self.tokens[what] = msgspec.structs.replace(self.tokens[what], revoked=True)
        if what in self.hosts:
            found.append("host")
            host = self.hosts[what]
            if host.revoked_at is None:
                self.revoked += host.certificates
                self.hosts[what] = msgspec.structs.replace(host, revoked_at=now)
        return found

    def prune(self, now: datetime) -> None:
        """Forget what has ended, the oldest first, where there is much."""
        self.tokens = _recent(self.tokens, lambda each: each.until, now - TOKENS_KEPT, _ENDED_TOKENS)
        self.hosts = _recent(self.hosts, lambda each: each.end, now - HOSTS_KEPT, _ENDED_HOSTS)
        revoked = {each.serial: each for each in self.revoked}
        self.revoked = list(_recent(revoked, lambda each: each.end, now, _ENDED_CERTIFICATES).values())

    @property
    def revoked_serials(self) -> list[int]:
        """The numbers of certificates that nobody should believe."""
        return [int(each.serial, 16) for each in self.revoked]


@dataclass(frozen=True, slots=True)
class Register:
    """The file; several processes may write it."""

    folder: Path

    def read(self) -> Book:
        """What is in it.

        Raises:
            OSError: it cannot be read; FileNotFoundError: there is no authority yet.
            ValueError: it is damaged, or lost: an empty one would believe revoked hosts again.

        """
        path = self.folder / _FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=Book)
        except FileNotFoundError as error:
            if not (self.folder / f"{AUTHORITY}.pem").exists():
                raise
            raise ValueError(f"{path} is missing: {_REMEDY}") from error
        except msgspec.MsgspecError as error:
            raise ValueError(f"{path} is damaged: {error}; put back a copy of the folder") from error

    def begin(self) -> None:
        """Write an empty one where there is neither a register nor an authority; raises OSError."""
        if not any((self.folder / name).exists() for name in (_FILE, f"{AUTHORITY}.pem")):
            self._write(Book(schema=1))

    def check_authority(self) -> None:
        """Raise ValueError where hosts have joined and the authority is lost: a new one would shut all of them out."""
        path = self.folder / f"{AUTHORITY}.pem"
        if not path.exists() and (self.folder / _FILE).exists() and (book := self.read()).hosts:
            raise ValueError(f"{path} is missing, and hosts have joined ({len(book.hosts)}): {_REMEDY}")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Nobody else writes in the folder meanwhile."""
        path = self.folder / _LOCK
        # Root runs this in a folder of the controller's user: it follows no link, and gives away what it made alone.
        with suppress(FileExistsError):
            made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                give_to_owner(made, self.folder)
            finally:
                os.close(made)
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def change(self, now: datetime, authority: Authority) -> Iterator[Book]:
        """The book, written at the end unless there was an error, and then what the authority trusts; raises as `read`.

        A power cut between both is mended when the controller looks at its folder.
        """
        with self.lock():
            book = self.read()
            yield book
            book.prune(now)
            self._write(book)
            authority.revoke(book.revoked_serials)

    def _write(self, book: Book) -> None:
        write(self.folder / _FILE, msgspec.json.format(msgspec.json.encode(book), indent=1))


def is_node_id(text: str) -> bool:
    """Whether a node may have this id."""
    return 0 < len(text) <= LONGEST_NODE_ID and text.isprintable() and text == text.strip()


def _recent(all_of_them: Mapping[str, T], end: Callable[[T], datetime], ended: datetime, most: int) -> dict[str, T]:
    """Those that end later, and of the others so many as end last."""
    others = sorted((end(each), key) for key, each in all_of_them.items() if end(each) <= ended)
    forgotten = {key for _, key in others[: max(len(others) - most, 0)]}
    return {key: each for key, each in all_of_them.items() if key not in forgotten}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
