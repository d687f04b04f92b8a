"""Certificates that the settings name: how long they are good for; and who can read the files that hold secrets."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.cli.doctor.report import Finding, fine, make_finding
from gpuwatch.runtime.certificates import Read, Validity, Watched
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.secrets import is_reference, open_to_all, read_secret
from gpuwatch.runtime.tls import TlsFiles

if TYPE_CHECKING:
    from gpuwatch.config.settings import Settings

SOON = timedelta(days=30)
LONGEST = timedelta(days=90)
_DAY = timedelta(days=1)


def certificates(files: TlsFiles, clock: Clock, read: Read, hosts: Collection[str] | None = None) -> Iterator[Finding]:
    """The first certificate of each file; those after it are somebody else's to renew.

    `hosts` are the names and addresses by which a server is asked; None: that is not known, or it is a client.
    """
    shown, believed = replace(files, ca=None), replace(files, certificate=None, key=None)
    for each, path in ((shown, files.certificate), (believed, files.ca)):
        if path is None:
            continue
        where = f"{files.section}.{files.ca_key if each is believed else 'tls_certificate'}: {path}"
        try:
            validities = read(each)
        except (OSError, ValueError) as error:
            yield make_finding("certificate.unusable", where, str(error))
            continue
        for validity, *_ in validities.values():
            yield from _judge_dates(where, validity, clock.now(), ours=each is shown)
            why = None if each is believed or hosts is None else validity.not_of(hosts)
            if why is not None:
                yield make_finding("certificate.names", where, why)


def certificates_elsewhere(settings: "Settings") -> list[TlsFiles | Watched]:
    """The certificates that a controller uses besides those of agents, page and Prometheus."""
    from gpuwatch.ledger.peek import certificates_of as of_ledger
    from gpuwatch.runtime.x509 import authorities_named

    found: list[TlsFiles | Watched] = [*authorities_named(settings.notify, "notify"), *of_ledger(settings.ledger)]
    if settings.named_clusters:
        from gpuwatch.kubernetes.client import certificates_of as of_cluster

        for name, cluster in settings.named_clusters.items():
            found.append(of_cluster(cluster, f"kubernetes.{name}" if settings.clusters else "kubernetes"))
    return found


def judge_watched(each: Watched, clock: Clock) -> Iterator[Finding]:
    """Those of Kubernetes and PostgreSQL; the checks that ask these report a file that cannot be read."""
    with suppress(OSError, ValueError):
        for name, validities in each.read().items():
            first = min(validities, key=lambda one: one.end)
            yield from _judge_dates(f"{name}: {each.paths[0]}", first, clock.now(), ours=False)


def secrets(files: Mapping[str, str | None]) -> Iterator[Finding]:
    """Each file with a secret is closed to others, and each reference leads to one."""
    for key, name in files.items():
        if name is None:
            continue
        where = f"{key}: {name}"
        if is_reference(name):
            yield _looked_up(where, name)
            continue
        try:
            is_open = open_to_all(Path(name))
            with Path(name).open("rb") as file:
                empty = not file.read(1)
        except OSError as error:
            yield make_finding("certificate.unusable", where, f"{error.strerror}")
            continue
        if empty:
            yield make_finding("certificate.unusable", where, "it is empty")
        elif is_open:
            yield make_finding("secret.open", where, "every user of this machine may read it")
        else:
            yield fine("secret", where, "others may not read it")


def _looked_up(where: str, named: str) -> Finding:
    """What a reference leads to, asked for as the service would."""
    try:
        secret = read_secret(named)
    except OSError as error:
        return make_finding("secret.unread", where, f"{error.strerror}")
    return fine("secret", where, "it can be read") if secret else make_finding("secret.unread", where, "it is empty")


def _judge_dates(where: str, validity: Validity, now: datetime, *, ours: bool) -> Iterator[Finding]:
    """Findings about its dates; the certificate of an authority may be valid for years."""
    text = f"valid from {validity.begin:%Y-%m-%d} to {validity.end:%Y-%m-%d}"
    if not validity.begin <= now <= validity.end:
        yield make_finding("certificate.expired", where, text)
        return
    left = (validity.end - now) // _DAY
    if validity.end - now < SOON:
        yield make_finding("certificate.expires", where, f"{text}, {left} days more")
    length = validity.end - validity.begin
    if ours and length > LONGEST + _DAY:  # an issuer rounds to its day
        yield make_finding("certificate.long_lived", where, f"{text}, {length // _DAY} days")
    elif validity.end - now >= SOON:
        yield fine("certificate", where, f"{text}, {left} days more")
