"""Who may ask a server. Pure: text and numbers in, answers out.

1. Beyond loopback there is TLS and a proof of who asks (a password or a client certificate), or an explicit `insecure`.
2. No message repeats a password or a hash.
3. A client that fails too often waits; others never do.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from gpuwatch.model.setting import Contradiction
from gpuwatch.runtime.http.settings import ServerSettings

# A cost of 15 takes about two seconds of a core for each password that is tried; one of 31 takes days.
_HASH = re.compile(r"\$2[aby]\$(0[4-9]|1[0-5])\$[./A-Za-z0-9]{53}")
_RIGHT_HASH = "a bcrypt hash of cost 4 to 15; make one with `htpasswd -nBC 12 NAME`"
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9_.-]+))(?::\d*)?")  # RFC 9110, 7.2
_FIXED_PREFIX = 64  # bits of an IPv6 address that its holder does not choose


def contradictions(settings: ServerSettings, section: str) -> Iterator[Contradiction]:
    """What is wrong with the server settings of that section."""
    certificate, key = (section, "tls_certificate"), (section, "tls_key")
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        here, missing = (certificate, key) if settings.tls_key is None else (key, certificate)
        yield Contradiction(
            keys=(here, missing),
            wrong=f"{'.'.join(here)} is set without {'.'.join(missing)}",
            right="both, or neither",
        )
    if settings.tls_client_ca is not None and settings.tls_certificate is None:
        yield Contradiction(
            keys=((section, "tls_client_ca"), certificate),
            wrong=f"{section}.tls_client_ca is set without {section}.tls_certificate: "
            "without TLS no client shows a certificate",
            right=f"also {section}.tls_certificate and {section}.tls_key",
        )
    if settings.tls_min == "1.3" and settings.tls_certificate is None:
        yield Contradiction(
            keys=((section, "tls_min"), certificate),
            wrong=f"{section}.tls_min is set without {section}.tls_certificate: there is no TLS",
            right=f"also {section}.tls_certificate and {section}.tls_key",
        )
    if settings.tls_client_names and settings.tls_client_ca is None:
        yield Contradiction(
            keys=((section, "tls_client_names"), (section, "tls_client_ca")),
            wrong=f"{section}.tls_client_names is set without {section}.tls_client_ca: "
            "no client certificate is asked for",
            right=f"also {section}.tls_client_ca",
        )
    for user, hashed in settings.basic_auth_users.items():
        if not user or ":" in user or not _HASH.fullmatch(hashed):
            where = (section, "basic_auth_users", user)
            yield Contradiction(
                keys=(where,), wrong=f"the value of {'.'.join(where)} (hidden) is not a hash", right=_RIGHT_HASH
            )
    lacking = tuple(protection_lacking(settings))
    if lacking and not is_loopback(settings.host) and not settings.insecure:
        yield Contradiction(
            keys=((section, "host"),),
            wrong=f"{section}.host {settings.host} opens the {section} to the network "
            f"without {' and without '.join(lacking)}",
            right=f"{section}.tls_certificate with {section}.tls_key, "
            f"and {section}.users_file or {section}.tls_client_ca; "
            f"or {section}.host 127.0.0.1; or, where the network itself is trusted, {section}.insecure: true",
        )


def protection_lacking(settings: ServerSettings) -> Iterator[str]:
    """What a door to the network should have and this one has not, in words."""
    if settings.tls_certificate is None:
        yield "encryption (TLS)"
    if not (settings.basic_auth_users or settings.users_file or settings.tls_client_ca):
        yield "authentication"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address; a name other than localhost may lead anywhere."""
    try:
        return ipaddress.ip_address(host.split("%", 1)[0]).is_loopback
    except ValueError:
        return host == "localhost"


def is_known(host_header: str, names: Collection[str]) -> bool:
    """Whether a Host header's name is an address, localhost or one of `names`: no other site's name may lead here."""
    found = _HOST.fullmatch(host_header.strip())
    name = "" if found is None else (found[1] or found[2]).lower()
    return name == "localhost" or name in names or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.split("%", 1)[0])
    except ValueError:
        return False
    return True


def client_of(address: str) -> str:
    """What the limits count an address as: itself, or its /64 in IPv6, where a host has as many as it likes."""
    try:
        parsed = ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _FIXED_PREFIX), strict=False))


def parse_users(text: str, where: str) -> dict[str, str]:
    """Hashes by user from lines of `user:hash`, as htpasswd -B writes them; empty lines and # comments are skipped.

    Raises:
        ValueError: a line is something else, a user is there twice, or no line has a user.

    """
    users: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        user, _, hashed = line.strip().partition(":")
        if not user or not _HASH.fullmatch(hashed):
            raise ValueError(f"{where}:{number}: is not USER:HASH with {_RIGHT_HASH}")
        if user in users:
            raise ValueError(f"{where}:{number}: a user who is there already")
        users[user] = hashed
    if not users:
        raise ValueError(f"{where}: names no user; write lines of USER:HASH with {_RIGHT_HASH}")
    return users


def cost_of(hashed: str) -> int:
    """The cost of a bcrypt hash: it takes 2 to that power rounds to compute."""
    return int(hashed[4:6])


def of_cost(hashed: str, cost: int) -> str:
    """The same hash as if it had another cost; no password fits."""
    return f"{hashed[:4]}{cost:02d}{hashed[6:]}"


def basic_credentials(header: str) -> tuple[str, bytes] | None:
    """User and password of an Authorization header (RFC 7617); None for another scheme."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


@dataclass(slots=True, kw_only=True)
class LoginLimiter:
    """Failed log-ins by client: so many at once, then one more each `forgiven_seconds`."""

    most: int = 5
    forgiven_seconds: float = 10.0
    most_clients: int = 1024
    _until: dict[str, float] = field(default_factory=dict)  # when all of a client's will be forgiven

    def allows(self, client: str, now: float) -> bool:
        """Whether the client may try a password."""
        return self._until.get(client, now) - now <= (self.most - 1) * self.forgiven_seconds

    def any(self, client: str, now: float) -> bool:
        """Whether it has a strike that is not forgiven yet."""
        return self._until.get(client, now) > now

    def note_failure(self, client: str, now: float) -> None:
        """Count one; beyond `most_clients` the one that failed longest ago is forgotten."""
        until = max(self._until.pop(client, now), now) + self.forgiven_seconds
        while len(self._until) >= self.most_clients:
            del self._until[next(iter(self._until))]
        self._until[client] = until
