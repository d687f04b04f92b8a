"""A real PostgreSQL for the tests: one small cluster for each test process, a fresh database for each test."""

import itertools
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

from gpuwatch.ledger import Ledger, LedgerSettings
from tests.support.components import require
from tests.support.real.agents import eventually

_NOBODY = 65534  # initdb refuses root, so root becomes nobody for it
SETTINGS = "listen_addresses='127.0.0.1'\nfsync=off\nshared_buffers=16MB\nmax_connections=40\nautovacuum=off\n"
HBA = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"


@dataclass(frozen=True, slots=True)
class Cluster:
    """One running server; its socket lies in its folder."""

    folder: Path
    port: int
    numbers: Any = field(default_factory=itertools.count)

    def database(self, like: str = "template1") -> str:
        """The URL of a new, empty database; or of a copy of `like`, a name or a URL of ours that nobody has open."""
        name = f"ledger{next(self.numbers)}"
        self.execute("postgres", f"CREATE DATABASE {name} TEMPLATE {_name(like)}")
        return self.url(name)

    def answers(self) -> bool:
        """Whether it takes connections already."""
        try:
            self.execute("postgres", "SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def url(self, name: str) -> str:
        """By the socket, where nobody needs a password."""
        return f"postgresql://gpuwatch@/{name}?host={self.folder}&port={self.port}"

    def execute(self, database: str, statement: str) -> list[tuple[Any, ...]]:
        """As an administrator; `database` is a name or a URL of ours."""
        target = database if "://" in database else self.url(database)
        with psycopg.connect(target, autocommit=True) as db:
            cursor = db.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


@cache
def postgresql() -> Cluster:
    """This process's server; started by the first test that needs it."""
    program = require("pg_ctl")
    folder = Path(tempfile.mkdtemp(prefix="gpuwatch-pg-", dir="/tmp"))  # a socket's path must be short
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if os.geteuid() == 0:
        os.chown(folder, _NOBODY, _NOBODY)
    data = folder / "data"
    _run(program.with_name("initdb"), "--no-sync", "-U", "gpuwatch", "-A", "trust", "-D", data, cwd=folder)
    settings = f"{SETTINGS}port={port}\nunix_socket_directories='{folder}'\n"
    (data / "postgresql.auto.conf").write_text(settings, encoding="ascii")
    (data / "pg_hba.conf").write_text(HBA, encoding="ascii")
    # Not `pg_ctl start`, which leaves a daemon: this one gets SIGQUIT, an immediate stop, when this process is killed.
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            ["setpriv", "--pdeathsig=QUIT", program.with_name("postgres"), "-D", data],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            **_unprivileged(),
        )

    def end() -> None:
        server.send_signal(signal.SIGQUIT)
        server.wait(60)
        shutil.rmtree(folder, ignore_errors=True)

    _ENDS.append(end)  # not atexit, which a worker of pytest-xdist may not reach
    cluster = Cluster(folder, port)
    eventually(lambda: server.poll() is not None or cluster.answers(), (folder / "log").read_text)
    assert server.poll() is None, (folder / "log").read_text()
    return cluster


_ENDS: list[Callable[[], None]] = []


def end_postgresql() -> None:
    """Stop this process's server, if a test has started one."""
    while _ENDS:
        _ENDS.pop()()
    postgresql.cache_clear()


def _unprivileged() -> dict[str, Any]:
    """As `subprocess` is to be told: initdb and postgres refuse root."""
    return {"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}


def _run(program: Path, *arguments: str | Path, cwd: Path) -> None:
    """One of PostgreSQL's programs, never as root."""
    done = subprocess.run(
        [program, *arguments], cwd=cwd, capture_output=True, text=True, check=False, timeout=60, **_unprivileged()
    )
    assert done.returncode == 0, f"{program.name}: {done.stdout}{done.stderr}"


@dataclass(slots=True)
class Place:
    """Where a ledger of a test lives, whichever database it is; `open` gives a controller's, which leads."""

    settings: LedgerSettings
    opened: list[Ledger] = field(default_factory=list)

    def open(self) -> Ledger:
        """A controller's."""
        ledger = Ledger.connect(self.settings)
        self.opened.append(ledger)
        eventually(ledger.lead, ledger.leader)  # the server gives up the lead of a closed connection a moment later
        return ledger

    def beside(self, *, read_only: bool = True) -> Ledger:
        """A reader's, or a person's who gives orders."""
        ledger = Ledger.connect(self.settings, read_only=read_only, controls_only=not read_only)
        self.opened.append(ledger)
        return ledger

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Behind the ledger's back."""
        if self.settings.url is not None:
            return postgresql().execute(self.settings.url, statement)
        db = sqlite3.connect(self.settings.path, isolation_level=None)
        try:
            return db.execute(statement).fetchall()
        finally:
            db.close()

    def close(self) -> None:
        """All of them."""
        while self.opened:
            self.opened.pop().close()

    def copied(self, folder: Path) -> "Place":
        """The same once more, where nobody has it open; a file goes to that folder."""
        if self.settings.url is not None:
            return Place(replace(self.settings, url=postgresql().database(self.settings.url)))
        file = Path(self.settings.path)
        for each in file.parent.glob(f"{file.name}*"):
            shutil.copy2(each, folder / each.name)
        return Place(replace(self.settings, path=str(folder / file.name)))


def _name(database: str) -> str:
    """Of a database, from its name or its URL."""
    return database.rpartition("@/")[2].partition("?")[0]


def end_sessions(cluster: Cluster, url: str) -> None:
    """The network, or an administrator, cuts every connection to the database."""
    sessions = f"FROM pg_stat_activity WHERE datname = '{_name(url)}'"
    cluster.execute("postgres", f"SELECT pg_terminate_backend(pid) {sessions}")
