"""The port at which hosts join, for as long as a controller runs; the rounds also run without it."""

import logging
import ssl
from datetime import UTC
from pathlib import Path

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from gpuwatch.controller.join import settings as names
from gpuwatch.controller.join.authority import Authority, make_authority, remove_leftovers
from gpuwatch.controller.join.door import JoinDoor
from gpuwatch.controller.join.register import Register
from gpuwatch.controller.join.settings import JoinSettings
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.server import HttpServer, ServerAuth
from gpuwatch.runtime.reloading_file import ReloadingFile
from gpuwatch.runtime.tls import TlsFiles, server_context

log = logging.getLogger(__name__)

_AUTHORITY_SECONDS = 300.0  # how often the folder is looked at: own certificates, the list of revoked ones
# Many hosts may be behind one address, so there is no limit for one: who keeps us waiting makes room for others.
_CONNECTIONS = 256
_REQUEST_SECONDS = 20.0


class Joins:
    """The port and its authority; where `controller.join.host` is not set, nothing."""

    def __init__(self, join: JoinSettings, fleet: str, clock: Clock) -> None:
        """Bound and not yet started; what is wrong is in the log."""
        self._join, self._fleet, self._clock = join, fleet, clock
        self._server = self._open()

    def _open(self) -> HttpServer | None:
        try:
            return make_join_server(self._join, self._fleet, self._clock)
        except (OSError, ValueError) as error:
            where = getattr(error, "filename", None) or self._join.host
            words = f"{where}: {error.strerror}" if isinstance(error, OSError) else str(error)
            log.error("No host can join or renew at port %d (controller.join): %s", self._join.port, words)  # noqa: TRY400
            return None

    @property
    def url(self) -> str | None:
        """Where hosts find it."""
        return None if self._server is None else self._server.url

    def start(self, scheduler: BackgroundScheduler) -> None:
        """Serve in a thread of its own; the scheduler keeps the certificates fresh."""
        if self._join.host is not None:
            every = IntervalTrigger(seconds=_AUTHORITY_SECONDS, timezone=UTC)
            scheduler.add_job(self.tick, every, misfire_grace_time=None)
        self._listen()

    def _listen(self) -> None:
        if self._server is not None:
            self._server.start()
            log.info("Hosts join at %s; `gpuwatch join token` lets one in.", self.url)

    def tick(self) -> None:
        """Keep the authority and the controller's own certificates fresh; open the port, if that has failed before."""
        if self._server is None:
            self._server = self._open()
            self._listen()
            return
        try:
            open_authority(self._join, self._fleet, self._clock, make=False)
        except (OSError, ValueError) as error:
            log.error("controller.join.folder cannot be kept: %s; the next try is in five minutes", error)  # noqa: TRY400

    def close(self) -> None:
        """End every connection of hosts."""
        if self._server is not None:
            self._server.close()


def open_authority(join: JoinSettings, fleet: str, clock: Clock, *, make: bool = True) -> Authority:
    """The authority with all its files: made where they are missing, renewed where they are old.

    Without `make`, as in the middle of a controller's life, no other authority is made in place of one that is gone.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: a file is not what it should be.

    """
    register, now = Register(Path(join.folder)), clock.now()
    if make:
        register.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with register.lock():
        remove_leftovers(register.folder)
        if make:
            register.begin()
            register.check_authority()
        authority = make_authority(join, fleet, now) if make else Authority(join, now)
        authority = authority.keep_successor(fleet, now)
        authority.keep_own(now)
        authority.revoke(register.read().revoked_serials)
    return authority


def make_join_server(join: JoinSettings, fleet: str, clock: Clock) -> HttpServer | None:
    """Bound and not yet started; None where no host may join.

    Raises:
        OSError: the address is not available, or a file cannot be read or written.
        ValueError: a file is not what it should be.

    """
    if join.host is None:
        return None
    open_authority(join, fleet, clock)
    door = JoinDoor(join=join, register=Register(Path(join.folder)), clock=clock)
    files = TlsFiles(
        section="controller.join",
        certificate=join.file(f"{names.CONTROLLER}.pem"),
        key=join.file(f"{names.CONTROLLER}.key"),
        ca=join.file(f"{names.AUTHORITY}.pem"),  # not TRUST: a revoked host is told so, in words
        ca_key="folder",
        only_1_3=True,
    )

    def context() -> ssl.SSLContext:
        made = server_context(files)
        made.verify_mode = ssl.CERT_OPTIONAL  # hosts that join have none yet
        return made

    contexts = ReloadingFile(files.paths, context)
    return HttpServer(
        join.host,
        join.port,
        {},
        clock=clock,
        max_connections=_CONNECTIONS,
        timeout_seconds=_REQUEST_SECONDS,
        door=ServerAuth(secure=lambda: contexts.value, max_per_client=_CONNECTIONS + 1),
        app=door.answer,
    )
