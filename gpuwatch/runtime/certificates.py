"""How long certificates are good for, and when those that are in force end."""

import contextlib
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gpuwatch.runtime.reload import signatures
from gpuwatch.runtime.tls import TlsFiles, client_context

_PEM = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x17, 0x18, 0xA0  # tags of ASN.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """From when to when a certificate is good."""

    begin: datetime
    end: datetime


class Ends:
    """When the certificates end that are in force, by the settings that name their files.

    Asking costs a stat of each file. As with the contexts that are made of them, a change that cannot be used leaves in
    force what was there before; whoever makes the contexts tells of it.
    """

    def __init__(self, files: Iterable[TlsFiles]) -> None:
        """Nothing is read yet."""
        self._files = tuple(each for each in files if each.paths)
        self._seen: dict[TlsFiles, object] = {}
        self._ends: dict[TlsFiles, Mapping[str, datetime]] = {}

    def told(self) -> Iterator[tuple[str, datetime]]:
        """Setting and end, where there is a certificate that can be used."""
        for files in self._files:
            seen = signatures(files.paths)
            if self._seen.get(files) != seen:
                self._seen[files] = seen
                with contextlib.suppress(OSError, ValueError):
                    self._ends[files] = _ends(files)
            yield from self._ends.get(files, {}).items()


def _ends(files: TlsFiles) -> dict[str, datetime]:
    """Of our own certificate, which its chain outlives; and of the first to end of a list of authorities."""
    client_context(files)  # raises where certificate and key are no pair: what cannot be used is not in force
    ends = {}
    if files.certificate is not None:
        ends[f"{files.section}.tls_certificate"] = validity_of(files.certificate).end
    if files.ca is not None:
        ends[f"{files.section}.{files.ca_key}"] = min(each.end for each in validities_of(files.ca))
    return ends


def validity_of(path: Path) -> Validity:
    """Of the first certificate in a file; raises as `validities_of`."""
    return validities_of(path)[0]


def validities_of(path: Path) -> tuple[Validity, ...]:
    """Of each certificate in a file, at least one.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no certificate in PEM.

    """
    found = _PEM.findall(path.read_text(encoding="ascii", errors="replace"))
    try:
        validities = tuple(read_validity(ssl.PEM_cert_to_DER_cert(each)) for each in found)
    except (ValueError, IndexError) as error:
        raise ValueError("it holds no certificate in PEM") from error
    if not validities:
        raise ValueError("it holds no certificate in PEM")
    return validities


def read_validity(der: bytes) -> Validity:
    """Source: RFC 5280, 4.1: in TBSCertificate after version, serial number, signature algorithm and issuer.

    Raises:
        ValueError, IndexError: the bytes are no certificate.

    """
    _, certificate, _ = _element(der)
    _, signed, _ = _element(certificate)
    tag, _, rest = _element(signed)
    for _ in range(3 if tag == _VERSION else 2):
        _, _, rest = _element(rest)
    _, validity, _ = _element(rest)
    begin_tag, begin, rest = _element(validity)
    end_tag, end, _ = _element(rest)
    return Validity(begin=_time(begin_tag, begin), end=_time(end_tag, end))


def _element(der: bytes) -> tuple[int, bytes, bytes]:
    """Tag, content and what follows of the first element of DER."""
    tag, size, start = der[0], der[1], 2
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[2:start], "big")
    if len(der) < start + size:
        raise ValueError("cut off")
    return tag, der[start : start + size], der[start + size :]


def _time(tag: int, content: bytes) -> datetime:
    """UTCTime has two digits of the year, of 1950 to 2049."""
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("no time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
