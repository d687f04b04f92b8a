"""How long certificates are valid, and when those in use end.

There are two readers. `by_handshake` is for agents: it needs the standard library alone, which
shows the fields of a certificate in a handshake only. `runtime/x509.py` is for controllers, and reads any certificate.
"""

import contextlib
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gpuwatch.runtime.reloading_file import signatures
from gpuwatch.runtime.tls import TlsFiles, client_context, server_context

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which the ssl module does not name


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """The time from which and until which a certificate is valid."""

    begin: datetime
    end: datetime

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


# By setting, of our own certificate and of a list of authorities. OSError or ValueError: a file is unusable.
Read = Callable[[TlsFiles], Mapping[str, Sequence[Validity]]]


class Ends:
    """When the certificates end that are in force, by the settings that name their files.

    Asking costs a stat of each file. After an unusable change the certificates before it count, as in the TLS contexts,
    which log the errors.
    """

    def __init__(self, files: Iterable[TlsFiles], read: Read) -> None:
        """Nothing is read yet."""
        self._files = tuple(each for each in files if each.paths)
        self._read = read
        self._seen: dict[TlsFiles, object] = {}
        self._ends: dict[TlsFiles, Mapping[str, datetime]] = {}

    def by_setting(self) -> Iterator[tuple[str, datetime]]:
        """Setting and end, where there is a certificate that can be used; of a list of authorities the first to end."""
        for files in self._files:
            seen = signatures(files.paths)
            if self._seen.get(files) != seen:
                self._seen[files] = seen
                with contextlib.suppress(OSError, ValueError):
                    found = self._read(files)
                    self._ends[files] = {name: min(each.end for each in several) for name, several in found.items()}
            yield from self._ends.get(files, {}).items()


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
    return Validity(begin=datetime.fromtimestamp(begin, UTC), end=datetime.fromtimestamp(end, UTC))
