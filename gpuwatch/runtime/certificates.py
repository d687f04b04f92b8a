"""How long certificates are valid, and when those in use end.

There are two readers. `by_handshake` is for agents: it needs the standard library alone, which
shows the fields of a certificate in a handshake only. `runtime/x509.py` is for controllers, and reads any certificate.
"""

import contextlib
import logging
import ssl
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.joined import ANY_AGENT
from gpuwatch.runtime.reloading_file import signatures
from gpuwatch.runtime.tls import TlsFiles, client_context, server_context

_LOG = logging.getLogger(__name__)

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which the ssl module does not name


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """The time from which and until which a certificate is valid, and the names and addresses that it is for."""

    begin: datetime
    end: datetime
    names: tuple[str, ...] = field(default=(), compare=False)

    def wrong(self, now: datetime) -> str | None:
        """Why it is not valid at that time; None: it is."""
        if now >= self.end:
            return f"it ended on {self.end:%Y-%m-%d %H:%M} UTC"
        return None if now >= self.begin else f"it is valid from {self.begin:%Y-%m-%d %H:%M} UTC on, and not yet"

    def not_of(self, hosts: Collection[str]) -> str | None:
        """Why it is not for a machine with these names and addresses; None: it is, or a proxy's name may be."""
        if not self.names:
            return "it names no host (subjectAltName)"
        known = {part for each in (*hosts, ANY_AGENT) for part in (each.lower(), _label(each)) if part}
        looked_at = [each for each in self.names if _label(each) or any(not _label(host) for host in hosts)]
        if not looked_at or any(each.lower() in known or _label(each) in known | {"*"} for each in looked_at):
            return None
        machine = sorted(hosts, key=lambda each: (not _label(each), each))
        return f"it is for {_few(looked_at)}, and this machine is {_few(machine)}"

    def check_time(self, now: datetime) -> None:
        """It is valid at that time.

        Raises:
            ValueError: it is not; the words are about a certificate that was just made.

        """
        if not self.begin <= now < self.end:
            times = f"{self.begin:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"
            raise ValueError(
                f"the new certificate is valid from {times} and not now; compare the clocks of both machines"
            )


RENEW = "who checks it refuses the connection. Renew it, or set the clock; the new file is read without a restart"
NAMES_REMEDY = (
    "issue one for the name or address that clients ask, or set signals.tls_server_name of the controller to its name"
)
_MOST_NAMES = 5


def _label(name: str) -> str:
    """The first part of a host's name; empty of an address."""
    return "" if ":" in name or name.replace(".", "").isdigit() else name.partition(".")[0].lower()


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")


# By setting, of our own certificate and of a list of authorities. OSError or ValueError: a file is unusable.
Read = Callable[[TlsFiles], Mapping[str, Sequence[Validity]]]


@dataclass(frozen=True, slots=True)
class Watched:
    """Certificates by the names of their settings: files, and who reads them. OSError or ValueError: unusable."""

    paths: tuple[Path, ...]
    read: Callable[[], Mapping[str, Sequence[Validity]]]


class Ends:
    """When the certificates end that are in force, by the settings that name their files.

    Asking costs a stat of each file. After an unusable change the certificates before it count, as in the TLS contexts,
    which log the errors. The log says once of each that is not valid at the time of asking.
    """

    def __init__(self, files: Iterable[TlsFiles | Watched], read: Read, clock: Clock) -> None:
        """Read them a first time; `read` reads those that name no reader of their own."""
        watched = (Watched(each.paths, partial(read, each)) if isinstance(each, TlsFiles) else each for each in files)
        self._files = tuple(each for each in watched if each.paths)
        self._clock = clock
        self._seen: dict[Watched, object] = {}
        self._found: dict[Watched, Mapping[str, Sequence[Validity]]] = {}
        self._told: dict[str, str | None] = {}
        list(self.by_setting())

    def by_setting(self) -> Iterator[tuple[str, datetime]]:
        """Setting and end, where there is a certificate that can be used; of a list of authorities the first to end."""
        for files in self._files:
            seen = signatures(files.paths)
            if self._seen.get(files) != seen:
                self._seen[files] = seen
                with contextlib.suppress(OSError, ValueError):
                    self._found[files] = files.read()
            for name, several in self._found.get(files, {}).items():
                self._tell(files, name, several)
                yield name, min(each.end for each in several)

    def _tell(self, files: Watched, name: str, several: Sequence[Validity]) -> None:
        """Log what is not valid now; of a list of authorities, where none is."""
        wrong = [each.wrong(self._clock.now()) for each in several]
        why = None if None in wrong else wrong[0]
        if why != self._told.get(name):
            self._told[name] = why
            if why is not None:
                path = files.paths[0 if name.endswith(".tls_certificate") else -1]
                _LOG.warning("%s: %s is not valid: %s; %s", name, path, why, RENEW)


def by_handshake(files: TlsFiles) -> dict[str, list[Validity]]:
    """What a server shows, and the authorities that it believes, the first to end before the others.

    A trusted certificate that is not an authority's is left out.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not what it should be.

    """
    found = {}
    if files.certificate is not None:
        found[f"{files.section}.tls_certificate"] = [_validity(_own_certificate(replace(files, ca=None)))]
    if files.ca is not None:
        believed = client_context(replace(files, certificate=None, key=None)).get_ca_certs()
        found[f"{files.section}.{files.ca_key}"] = sorted(map(_validity, believed), key=lambda each: each.end)
    return {name: several for name, several in found.items() if several}


def _own_certificate(files: TlsFiles) -> Mapping[str, Any]:
    """Our own certificate, as a client sees it that believes this one and no other, whatever the time."""
    shows = server_context(files)  # first, for its errors name the right setting
    context = client_context(replace(files, certificate=None, key=None, ca=files.certificate))
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VerifyFlags(_NO_CHECK_TIME)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server)
    server = shows.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client.getpeercert() or {}


def _validity(shown: Mapping[str, Any]) -> Validity:
    begin, end = (ssl.cert_time_to_seconds(shown[key]) for key in ("notBefore", "notAfter"))
    names = tuple(_legible_name(kind, str(name)) for kind, name in shown.get("subjectAltName", ()))
    return Validity(begin=datetime.fromtimestamp(begin, UTC), end=datetime.fromtimestamp(end, UTC), names=names)


def _legible_name(kind: str, name: str) -> str:
    """A name of a certificate; an address as others write it."""
    if kind != "IP Address":
        return name
    with contextlib.suppress(ValueError):
        return str(ip_address(name.strip()))
    return name
