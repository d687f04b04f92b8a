"""The live cast: the controller's parts made from the settings, and its rounds on a schedule."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from gpuwatch import prices
from gpuwatch.agent.server import AgentServer
from gpuwatch.clock import Clock, SystemClock
from gpuwatch.clouds import Cloud, connect
from gpuwatch.controller import Parts, Round, step
from gpuwatch.discovery import Discovery, served
from gpuwatch.ending import Ending
from gpuwatch.ledger import LeadLostError, Ledger
from gpuwatch.model.fleet import Fleet
from gpuwatch.settings import Settings
from gpuwatch.show import round_line
from gpuwatch.signals import SignalSource
from gpuwatch.signals.promql import PromqlSource
from gpuwatch.signals.scrape import ScrapeSource

log = logging.getLogger(__name__)

SOURCES: dict[str, Callable[..., SignalSource]] = {"scrape": ScrapeSource, "promql": PromqlSource.of}


def cloud_of(settings: Settings, clock: Clock) -> Cloud:
    """The cloud of the settings; nothing is asked yet.

    Raises:
        CloudError: it cannot even be set up (no profile, no region).
        ImportError: its extra is missing.

    """
    return connect(
        settings.cloud.provider,
        fleet=settings.fleet,
        clock=clock,
        regions=settings.cloud.regions,
        accounts=settings.cloud.accounts,
        profile=settings.cloud.profile,
        endpoint_url=settings.cloud.endpoint_url,
    )


@contextmanager
def assembled(settings: Settings, *, read_only: bool) -> Iterator[Parts]:
    """The parts of a live controller; read only for `plan`, `explain` and `status`, which need no ledger yet.

    Raises:
        LedgerError: the ledger cannot be used.
        CloudError: the cloud cannot even be set up (no credentials, no region).
        ImportError: an extra is missing.

    """
    clock = SystemClock()
    cloud = cloud_of(settings, clock)
    file = settings.ledger.file
    unwritten = read_only and file is not None and not file.exists()
    ledger = Ledger.in_memory() if unwritten else Ledger.connect(settings.ledger, read_only=read_only)
    try:
        yield Parts(
            clock=clock,
            cloud=cloud,
            signals=SOURCES[settings.signals.source](
                knobs=settings.signals, clock=clock, max_age_seconds=settings.limits.max_verdict_age
            ),
            ledger=ledger,
            rules=settings.rulebook,
            prices=prices.lookup,
        )
    finally:
        ledger.close()


def run(settings: Settings) -> None:
    """Rounds until SIGTERM or SIGINT; the round under way is finished first."""
    ending = Ending()
    with assembled(settings, read_only=False) as parts:
        discovery = Discovery(signals=settings.signals)
        server = _served(settings, discovery, parts)
        scheduler = scheduled(parts, settings.interval, discovery.tell)
        log.info("The controller begins: %s", settings.summary)
        if server is not None:
            server.start()
            log.info("The fleet is at %s/v1/http_sd for Prometheus.", server.url)
        scheduler.start()
        ending.wait()
        scheduler.shutdown(wait=True)
        if server is not None:
            server.close()
        log.info("The controller has ended; what is open in the ledger is taken up at its next start.")


def _served(settings: Settings, discovery: Discovery, parts: Parts) -> AgentServer | None:
    """What is to be served, bound; without it the rounds go on, for they need nobody who asks."""
    try:
        return served(settings.controller, discovery, parts.clock)
    except (OSError, ValueError) as error:
        why = str(error)
    except ImportError as error:
        why = f"controller.users_file needs bcrypt ({error}): pip install 'gpuwatch[auth]'"
    log.error("Nothing is served at port %d (controller.port): %s", settings.controller.port, why)
    return None


def scheduled(
    parts: Parts, interval_seconds: float, seen: Callable[[Fleet], None] = lambda _: None
) -> BackgroundScheduler:
    """Rounds from now on, not yet started. A late one is made up for once, never twice; no two run at the same time.

    `seen` is told the fleet of each round that saw it.
    """
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.add_job(
        one_round,
        IntervalTrigger(seconds=interval_seconds, timezone=UTC),
        args=[parts, seen],
        next_run_time=parts.clock.now(),
        max_instances=1,
        coalesce=True,
        misfire_grace_time=None,
    )
    return scheduler


def one_round(parts: Parts, seen: Callable[[Fleet], None] = lambda _: None) -> Round | None:
    """One round with its line in the log; what goes wrong in it must not end the controller.

    Of several controllers on one ledger only the leader works; the others wait here for the lead.
    """
    try:
        if not parts.ledger.lead():
            log.info("This controller waits: %s leads.", parts.ledger.leader() or "nobody")
            return None
        done = step(parts)
        parts.ledger.compact(parts.clock.now())
    except LeadLostError as error:
        log.warning("The lead is lost in the middle of a round: %s", error)
        return None
    except Exception:
        log.exception("The round failed; nothing more is done until the next one.")
        return None
    if done.trouble is None:
        seen(done.observation.fleet)
    log.log(logging.WARNING if done.trouble else logging.INFO, "%s", round_line(done))
    return done
