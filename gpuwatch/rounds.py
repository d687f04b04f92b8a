"""The live cast: the controller's parts made from the settings, and its rounds on a schedule."""

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from types import FrameType

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from gpuwatch.clock import SystemClock
from gpuwatch.clouds import connect
from gpuwatch.controller import Parts, Round, step
from gpuwatch.ledger import Ledger
from gpuwatch.settings import Settings
from gpuwatch.show import round_line
from gpuwatch.signals.scrape import ScrapeSource

log = logging.getLogger(__name__)


@contextmanager
def assembled(settings: Settings, *, read_only: bool) -> Iterator[Parts]:
    """The parts of a live controller; read only for `plan`, `explain` and `status`, which need no ledger yet.

    Raises:
        LedgerError: the ledger cannot be used.
        CloudError: the cloud cannot even be set up (no credentials, no region).
        ImportError: an extra is missing.

    """
    clock = SystemClock()
    cloud = connect(
        settings.cloud.provider,
        fleet=settings.fleet,
        clock=clock,
        regions=settings.cloud.regions,
        profile=settings.cloud.profile,
        endpoint_url=settings.cloud.endpoint_url,
    )
    path = Path(settings.ledger.path)
    ledger = Ledger.in_memory() if read_only and not path.exists() else Ledger.open(path, read_only=read_only)
    try:
        yield Parts(
            clock=clock,
            cloud=cloud,
            signals=ScrapeSource(knobs=settings.signals, clock=clock, max_age_seconds=settings.limits.max_verdict_age),
            ledger=ledger,
            pools=settings.pool,
            limits=settings.limits,
            enforce=settings.mode == "enforce",
        )
    finally:
        ledger.close()


def run(settings: Settings) -> None:
    """Rounds until SIGTERM or SIGINT; the round under way is finished first."""
    ended = threading.Event()

    def end(_signal: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    with assembled(settings, read_only=False) as parts:
        scheduler = scheduled(parts, settings.interval)
        log.info("The controller begins: %s", settings.summary)
        scheduler.start()
        ended.wait()
        scheduler.shutdown(wait=True)
        log.info("The controller has ended; what is open in the ledger is taken up at its next start.")


def scheduled(parts: Parts, interval_seconds: float) -> BackgroundScheduler:
    """Rounds from now on, not yet started. A late one is made up for once, never twice; no two run at the same time."""
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.add_job(
        one_round,
        IntervalTrigger(seconds=interval_seconds, timezone=UTC),
        args=[parts],
        next_run_time=parts.clock.now(),
        max_instances=1,
        coalesce=True,
        misfire_grace_time=None,
    )
    return scheduler


def one_round(parts: Parts) -> Round | None:
    """One round with its line in the log; what goes wrong in it must not end the controller."""
    try:
        done = step(parts)
    except Exception:
        log.exception("The round failed; nothing more is done until the next one.")
        return None
    log.log(logging.WARNING if done.trouble else logging.INFO, "%s", round_line(done))
    return done
