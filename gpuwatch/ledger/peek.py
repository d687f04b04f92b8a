"""A look at a ledger that leaves no trace: not even the files that SQLite makes for readers."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import select

from gpuwatch.ledger.identity import Identity
from gpuwatch.ledger.postgresql import PostgresqlStore, conninfo
from gpuwatch.ledger.postgresql_tls import weaker
from gpuwatch.ledger.records import LedgerError
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.ledger.sqlite import SqliteStore
from gpuwatch.ledger.store import Store
from gpuwatch.ledger.tables import HEAD, SCHEMA_VERSION
from gpuwatch.runtime.certificates import Validity, Watched
from gpuwatch.runtime.installed import install_command
from gpuwatch.runtime.x509 import validities_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What a ledger says of itself: records so far, the newest link's hash, and who leads or led last.

    `doubt` is how it is not as it was left, `foreign` the decisions asked about that are not in it.
    """

    schema: int
    id: str
    links: int
    head: str
    leader: str
    doubt: str | None
    foreign: tuple[str, ...]


def glance(settings: LedgerSettings, decisions: Collection[str] = ()) -> Glance:
    """Look.

    Raises:
        LedgerError: it is not there, of another version, or no ledger.

    """
    store: Store
    if settings.file is None:
        store = PostgresqlStore(settings, read_only=True, controls_only=False)
    else:
        store = SqliteStore.beside(settings.file, read_only=True)
    try:
        with store.reading() as db:
            head = db.execute(select(HEAD)).one()
        foreign = Identity(store).foreign(decisions)
    finally:
        store.close()
    return Glance(
        schema=SCHEMA_VERSION,
        id=store.id,
        links=head.links,
        head=head.hash,
        leader=head.leader,
        doubt=store.doubt,
        foreign=foreign,
    )


def certificates_of(settings: LedgerSettings) -> Iterator[Watched]:
    """The files with certificates that the URL of a PostgreSQL ledger names, or libpq's variables."""
    try:
        named = {} if settings.file is not None else conninfo(settings)
    except (LedgerError, ImportError):
        return  # the ledger itself says so
    key = "ledger.url" if settings.url_file is None else "ledger.url_file"
    for name, most in (("sslrootcert", None), ("sslcert", 1)):
        file = named.get(name) or os.environ.get(f"PG{name.upper()}")
        if named and file and file != "system":
            yield Watched((Path(file),), partial(_validities, f"{key} ({name})", Path(file), most))


def _validities(name: str, file: Path, most: int | None) -> dict[str, list[Validity]]:
    return {name: validities_of(file)[:most]}


def plain(settings: LedgerSettings) -> str | None:
    """The sslmode of a PostgreSQL URL that lets others read along or step in between; None: it does not.

    Raises:
        LedgerError: the URL cannot be used, or the driver is missing.

    """
    try:
        return weaker(conninfo(settings), os.environ)
    except ImportError as error:
        raise LedgerError(f"the driver is missing ({error}); {install_command('postgres')}") from error
