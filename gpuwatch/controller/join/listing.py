"""Tokens and hosts as people and programs read them; no secret and no hash is shown."""

from dataclasses import dataclass
from datetime import datetime

from gpuwatch.controller.join.register import HOSTS_KEPT, TOKENS_KEPT, Register
from gpuwatch.runtime.table import align_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedToken:
    """A token: `node_id` is the one node that it is for, null for any; `used` of `hosts` have joined by it.

    `state` is valid, used up, ended or revoked.
    """

    id: str
    state: str
    used: int
    hosts: int
    node_id: str | None
    made_at: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedHost:
    """A host: `address` is where it joined from, `token` the id of its token, `until` the end of its certificate.

    `state` is joined, ended or revoked.
    """

    node_id: str
    state: str
    address: str
    token: str
    joined_at: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedDocument:
    """What `gpuwatch join list` prints: tokens and hosts, the newest last."""

    tokens: tuple[ListedToken, ...]
    hosts: tuple[JoinedHost, ...]

    @property
    def text(self) -> str:
        """Tokens and hosts as tables."""
        tokens = [("TOKEN", "STATE", "USED", "NODE", "UNTIL (UTC)")]
        for each in self.tokens:
            used = f"{each.used} of {each.hosts}"
            tokens.append((each.id, each.state, used, each.node_id or "any", _minute(each.until)))
        hosts = [("NODE", "STATE", "JOINED FROM", "TOKEN", "JOINED (UTC)", "UNTIL (UTC)")]
        for host in self.hosts:
            times = (_minute(host.joined_at), _minute(host.until))
            hosts.append((host.node_id, host.state, host.address, host.token, *times))
        lines = ["No token was made." if not self.tokens else "\n".join(align_rows(tokens, left=None))]
        lines += ["No host has joined." if not self.hosts else "\n".join(align_rows(hosts, left=None))]
        return "\n\n".join(lines)


def list_joined(register: Register, now: datetime) -> JoinedDocument:
    """What is in the register, in the order in which it came; not what has ended long ago.

    Raises:
        OSError: it cannot be read; FileNotFoundError: there is no authority yet.
        ValueError: it is damaged.

    """
    book = register.read()
    tokens = [
        ListedToken(
            id=each.id,
            state=each.state(now),
            used=each.used,
            hosts=each.hosts,
            node_id=each.node_id,
            made_at=each.made_at,
            until=each.until,
        )
        for each in sorted(book.tokens.values(), key=lambda each: each.made_at)
        if now < each.until + TOKENS_KEPT
    ]
    hosts = [
        JoinedHost(
            node_id=each.node_id,
            state=each.state(now),
            address=each.address,
            token=each.token,
            joined_at=each.joined_at,
            until=each.end,
        )
        for each in sorted(book.hosts.values(), key=lambda each: each.joined_at)
        if now < each.end + HOSTS_KEPT
    ]
    return JoinedDocument(tokens=tuple(tokens), hosts=tuple(hosts))


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
