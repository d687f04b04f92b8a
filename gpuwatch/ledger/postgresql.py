"""A ledger in PostgreSQL that several controllers share: the one that holds the session's advisory lock leads.

The lock ends with its session, so a leader that dies, or says nothing for `leader_timeout`, makes room; the epoch shuts
it out should it come back. Connections go to PostgreSQL itself: a pooler that shares sessions between clients breaks
the lock, which is noticed, and then nobody leads.
"""

import hashlib
import logging
import os
from typing import Any

from sqlalchemy import Connection, create_engine, func, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from gpuwatch.ledger import schema
from gpuwatch.ledger.postgresql_tls import HINT, guarded_parameters
from gpuwatch.ledger.records import LedgerError
from gpuwatch.ledger.settings import LedgerSettings, is_postgresql
from gpuwatch.ledger.store import Store, cause, this_process
from gpuwatch.ledger.tables import HEAD
from gpuwatch.runtime.installed import install_command
from gpuwatch.runtime.secrets import read_secret_text

log = logging.getLogger(__name__)

_CREATING = 0x677075776174  # "gpuwat": one process at a time makes or migrates the tables
_IDLE_SESSIONS_SINCE = 140000  # PostgreSQL 14 ends sessions that say nothing
# Nobody waits for ever on a leader that hangs in a transaction, nor on a host that is gone.
_SESSION = {
    "statement_timeout": "60s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "10s",
    "tcp_keepalives_interval": "5s",
    "tcp_keepalives_count": "3",
}
_CLIENT = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds: keepalives do not watch a line on which a question is under way
}


class PostgresqlStore(Store):
    """An open database; `lead` competes for it."""

    def __init__(self, settings: LedgerSettings, *, read_only: bool = False, controls_only: bool = False) -> None:
        """Connect; make or migrate the tables unless only reading or giving orders.

        Raises:
            LedgerError: no such database, wrong URL, wrong version, no driver.

        """
        try:
            import psycopg  # noqa: PLC0415  an extra: only who uses PostgreSQL needs it
        except ImportError as error:
            raise LedgerError(f"the driver is missing ({error}); {install_command('postgres')}") from error

        about = guarded_parameters(conninfo(settings), os.environ, psycopg.pq.version())
        self._secret = about.get("password")
        options = dict(_SESSION)
        if read_only:
            options |= {"default_transaction_read_only": "on", "default_transaction_isolation": r"repeatable\ read"}
        all_options = " ".join(
            [about.pop("options", "") or "", *(f"-c {name}={value}" for name, value in options.items())]
        )
        about = {**_CLIENT, "application_name": "gpuwatch", **about, "options": all_options.strip()}

        def connect() -> Any:  # noqa: ANN401  the driver's connection
            try:
                return psycopg.connect(**about)
            except psycopg.OperationalError as error:
                raise LedgerError(f"the ledger {settings.place} cannot be reached: {self._message(error)}") from None

        engine = create_engine("postgresql+psycopg://", creator=connect, poolclass=NullPool, hide_parameters=True)
        super().__init__(engine, settings.place, this_process())
        self._hand_over = settings.leader_timeout
        self._session: int | None = None
        self._waiting_for: str | None = None
        try:
            self._begin_session(make=not (read_only or controls_only))
            self._adopt()
        except BaseException:
            self.close()
            raise

    def lead(self) -> bool:
        """Compete for the lead, or keep it; says in the log when that changes. A lost connection is opened again."""
        if self.leading():
            return True
        led = self.epoch is not None
        try:
            self._drop()
            leads = self._compete()
            other = "" if leads else self.leader()
        except (SQLAlchemyError, LedgerError) as error:
            self._drop()
            leads, other = False, cause(error) if isinstance(error, SQLAlchemyError) else str(error)
            self.trouble = other
        else:
            self.trouble = None
        if leads:
            log.info("This controller (%s) leads now, epoch %s.", self.controller, self.epoch)
        elif led or other != self._waiting_for:
            log.warning(
                "This controller (%s) does not lead and waits: %s", self.controller, other or "nobody leads yet"
            )
        self._waiting_for = None if leads else other
        return leads

    def _leads(self, db: Connection) -> bool:
        """Only the session that took the lock holds it: another one was made behind our back."""
        return bool(super()._leads(db) and db.scalar(select(func.pg_backend_pid())) == self._session)

    def _compete(self) -> bool:
        """Try for the lock; with it, begin a lead."""
        with self._turn:
            with self._db().begin():
                self._recognise(self._db(), self._db().execute(select(HEAD)).one())  # a server that lags may answer
                number = hashlib.sha256(f"gpuwatch leader {self.id}".encode()).digest()[:8]
                wanted = func.pg_try_advisory_lock(int.from_bytes(number, "big", signed=True))
                won, self._session = self._db().execute(select(wanted, func.pg_backend_pid())).one()
                version = int(self._db().scalar(text("SHOW server_version_num")) or 0)
                if won and version >= _IDLE_SESSIONS_SINCE:
                    seconds = f"{round(self._hand_over * 1000)}ms"
                    self._db().execute(select(func.set_config("idle_session_timeout", seconds, False)))  # noqa: FBT003
            if won:
                self._take()
        return bool(won)

    def _begin_session(self, *, make: bool) -> None:
        """The first connection, and the tables."""
        with self._explain_errors(), self._db().begin():
            if make:
                self._db().execute(select(func.pg_advisory_xact_lock(_CREATING)))
                schema.prepare(self._db(), self.place)
            else:
                schema.check(self._db(), self.place)

    def _message(self, error: Exception) -> str:
        """The driver's words in one line, without the password should they ever hold it."""
        message = " ".join(str(error).split())
        if "SSL" in message or "certificate" in message:
            message = f"{message}; {HINT}"
        return message.replace(self._secret, "***") if self._secret else message


def conninfo(settings: LedgerSettings) -> dict[str, Any]:
    """What the URL says, for libpq, which adds its passfile and PG* variables; never repeated in an error."""
    from psycopg import ProgrammingError  # noqa: PLC0415  as above
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415  as above

    url = settings.url or ""
    if settings.url_file is not None:
        try:
            url = read_secret_text(settings.url_file)
        except OSError as error:
            raise LedgerError(f"ledger.url_file {settings.url_file} cannot be read: {error.strerror}") from None
    key = "ledger.url" if settings.url_file is None else f"ledger.url_file {settings.url_file}"
    try:
        if is_postgresql(url):
            return dict(conninfo_to_dict(url))
    except ProgrammingError:  # its words repeat the URL
        pass
    raise LedgerError(f"{key} holds no URL that PostgreSQL's libpq takes; write postgresql://user@host/database")
