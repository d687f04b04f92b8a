"""Certificates that the settings name: how long they are good for; and who can read the files that hold secrets."""

import ssl
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpuwatch.clock import Clock
from gpuwatch.doctor.ailments import found
from gpuwatch.doctor.report import Finding, fine

SOON = timedelta(days=30)
LONGEST = timedelta(days=90)
_DAY = timedelta(days=1)
_END = "-----END CERTIFICATE-----"
_UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x17, 0x18, 0xA0  # tags of ASN.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """From when to when a certificate is good."""

    begin: datetime
    end: datetime


def certificates(files: Mapping[str, str | None], clock: Clock) -> Iterator[Finding]:
    """The first certificate of each file that a key names; those after it are somebody else's to renew."""
    for key, name in files.items():
        if name is None:
            continue
        where = f"{key}: {name}"
        try:
            validity = validity_of(Path(name))
        except (OSError, ValueError) as error:
            told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            yield found("certificate.unusable", where, told)
            continue
        yield from _judged(where, validity, clock.now(), ours=not key.endswith("ca"))


def secrets(files: Mapping[str, str | None]) -> Iterator[Finding]:
    """Each file with a secret is closed to others."""
    for key, name in files.items():
        if name is None:
            continue
        where = f"{key}: {name}"
        try:
            open_to_all = bool(Path(name).stat().st_mode & stat.S_IROTH)
            Path(name).open("rb").close()
        except OSError as error:
            yield found("certificate.unusable", where, f"{error.strerror}")
            continue
        if open_to_all:
            yield found("secret.open", where, "every user of this machine may read it")
        else:
            yield fine("secret", where, "others may not read it")


def validity_of(path: Path) -> Validity:
    """Of the first certificate in a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds no certificate in PEM.

    """
    begin, end, _ = path.read_text(encoding="ascii", errors="replace").partition(_END)
    try:
        return read_validity(ssl.PEM_cert_to_DER_cert(begin[begin.index("-----BEGIN CERTIFICATE-----") :] + end))
    except (ValueError, IndexError) as error:
        raise ValueError("it holds no certificate in PEM") from error


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


def _judged(where: str, validity: Validity, now: datetime, *, ours: bool) -> Iterator[Finding]:
    """What is to be said of it; a CA's may be good for years."""
    told = f"valid from {validity.begin:%Y-%m-%d} to {validity.end:%Y-%m-%d}"
    if not validity.begin <= now <= validity.end:
        yield found("certificate.expired", where, told)
        return
    left = (validity.end - now) // _DAY
    if validity.end - now < SOON:
        yield found("certificate.expires", where, f"{told}, {left} days more")
    length = validity.end - validity.begin
    if ours and length > LONGEST + _DAY:  # an issuer rounds to its day
        yield found("certificate.long_lived", where, f"{told}, {length // _DAY} days")
    elif validity.end - now >= SOON:
        yield fine("certificate", where, f"{told}, {left} days more")


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
