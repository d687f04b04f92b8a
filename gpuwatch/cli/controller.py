"""The controller: its rounds on a schedule, and what goes on between them."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from gpuwatch.cli.deliveries import make_budget_notices, make_notifier, make_reports
from gpuwatch.cli.doctor.certificates import certificates_elsewhere
from gpuwatch.cli.parts import assemble_parts, cloud_of
from gpuwatch.cli.quotas import ask_clouds
from gpuwatch.cli.render import round_line
from gpuwatch.cli.round_server import LastRound, RoundServer, serve_rounds
from gpuwatch.clouds import CloudError
from gpuwatch.config import ConfigError
from gpuwatch.config.settings import Settings
from gpuwatch.controller.context import LiveParts, Memory
from gpuwatch.controller.join.serve import Joins
from gpuwatch.controller.readings import compared_weeks, savings_read
from gpuwatch.controller.round import ControllerContext, Round, step
from gpuwatch.controller.web.serve import Observers, make_observers, make_server
from gpuwatch.ledger import LeadLostError, LedgerError
from gpuwatch.model.currency import show_in
from gpuwatch.money import unused
from gpuwatch.money.accounting.scope import count_in
from gpuwatch.money.prices.overrides_file import PricesError
from gpuwatch.notify.delivery import DeliveryJob, Source
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.server import HttpServer
from gpuwatch.runtime.network_errors import not_listening
from gpuwatch.runtime.scheduler import SteadyScheduler, schedule_collections
from gpuwatch.runtime.secrets import secrets_named, warn_of_open
from gpuwatch.runtime.systemd import SignalWaiter, Watchdog, notify, notify_reloading

log = logging.getLogger(__name__)

_MESSAGES_SECONDS = 10.0
_REPORTS_SECONDS, _READINGS_SECONDS = 60.0, 60.0

# Errors of `assembled` that a person can correct.
_UNUSABLE = (CloudError, ImportError, LedgerError, PricesError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Settings in force, with the fingerprint of what they were read from."""

    settings: Settings
    fingerprint: str


def run(chosen: Chosen, reload: Callable[[], Chosen]) -> None:
    """Rounds until SIGTERM or SIGINT; the current round is finished first.

    At SIGHUP `reload` returns the settings of the next rounds. If they raise one of `_UNUSABLE`, the settings before
    them are used again.
    """
    waiter, memory = SignalWaiter(), Memory()
    current: Chosen | None = chosen
    before: Chosen | None = None
    while current is not None:
        try:
            before, current = current, _rounds(current, waiter, reload, memory)
        except _UNUSABLE as error:
            if before is None:
                raise
            log.error("The settings stay as they were: %s", error)  # noqa: TRY400  a person can mend it
            before, current = None, before


def _rounds(chosen: Chosen, waiter: SignalWaiter, reload: Callable[[], Chosen], memory: Memory) -> Chosen | None:
    """Rounds under these settings until a signal: the sound settings that follow, or None at the end."""
    settings = chosen.settings
    show_in(settings.shown_currency)
    count_in(settings.cost.scope)
    with assemble_parts(settings, read_only=False) as made:
        parts = replace(made, memory=memory)
        seen = observers_of(settings, parts)
        server = _make_server(settings, seen, parts)
        joins = Joins(settings.controller.join, settings.fleet, parts.clock)
        scheduler = schedule_rounds(parts, settings.interval, seen)
        schedule_deliveries(scheduler, settings, parts.clock, seen)
        schedule_readings(scheduler, settings, parts.clock, seen)
        schedule_collections(scheduler, settings.interval)
        watchdog = Watchdog(lambda: seen.metrics.rounds, rests=settings.interval)
        log.info("The controller starts: %s", settings.summary)
        for caution in settings.cautions:
            log.warning("Warning: %s", caution)
        warn_of_open(secrets_named(settings))
        if server is not None:
            server.start()
            log.info("Metrics and page are served at %s.", server.url)
        asked = _serve_status(chosen, seen, parts)
        joins.start(scheduler)
        scheduler.start()
        watchdog.start()
        notify("READY=1")
        following = _following(waiter, reload, parts.clock)
        watchdog.stop()
        if following is None:
            notify("STOPPING=1")
        scheduler.shutdown(wait=True)
        if server is not None:
            server.close()
        if asked is not None:
            asked.close()
        joins.close()
    if following is None:
        log.info("The controller has ended; its next start takes up what is open in the ledger.")
    return following


def _serve_status(chosen: Chosen, seen: Observers, parts: LiveParts) -> RoundServer | None:
    """Show the last round to `gpuwatch status` on this machine; it asks for quotas with a cloud of its own."""
    if seen.web is None:
        return None
    last = LastRound(
        state=seen.web.state,
        parts=parts,
        fingerprint=chosen.fingerprint,
        ask_limits=lambda: ask_clouds(cloud_of(chosen.settings, parts.clock)),
    )
    return serve_rounds(Path(chosen.settings.ledger.path), last)


def _following(waiter: SignalWaiter, reload: Callable[[], Chosen], clock: Clock) -> Chosen | None:
    """Wait for sound settings after a reload, or for the end: None. Mistakes in settings are logged."""
    while not waiter.wait():
        notify_reloading(clock)
        try:
            return reload()
        except ConfigError as error:
            why = str(error)
        log.error("The settings stay as they were: %s", why)
        notify("READY=1")
    return None


def why_not_served(error: Exception) -> str:
    """Why there is no page and no metrics, with what helps."""
    if not isinstance(error, OSError):
        return str(error)
    return f"{not_listening(error, 'controller')}. Rounds go on without page and metrics"


def _make_server(settings: Settings, seen: Observers, parts: ControllerContext) -> HttpServer | None:
    """The server of metrics and page, not started; the rounds also run without it."""
    try:
        return make_server(settings.controller, seen, parts.clock)
    except (OSError, ValueError, ImportError) as error:
        why = why_not_served(error)
    log.error("Nothing is served at port %d (controller.port): %s", settings.controller.port, why)
    return None


def observers_of(settings: Settings, parts: LiveParts) -> Observers:
    """Metrics and page of these settings, before the first round; browsers may ask for the host of `notify.url`."""
    server, host = settings.controller, urlsplit(settings.notify.url or "").hostname
    return make_observers(
        parts,
        parts.ledger,
        settings.fleet,
        server=server if host is None else replace(server, allowed_hosts=(*server.allowed_hosts, host)),
        signals=settings.signals,
        cost=settings.cost,
        link_key_file=settings.notify.link_key_file,
        believed=certificates_elsewhere(settings),
    )


def schedule_rounds(
    parts: ControllerContext, interval_seconds: float, seen: Observers | None = None
) -> BackgroundScheduler:
    """A scheduler of rounds, not started; their distance is measured by the monotonic clock.

    Several missed rounds are made up for by one; no two run at the same time. `seen` gets each round.
    """
    scheduler = SteadyScheduler(parts.clock)
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


def schedule_deliveries(scheduler: BackgroundScheduler, settings: Settings, clock: Clock, seen: Observers) -> None:
    """Send reports, messages about budgets and, in mode enforce, about nodes: in a thread of their own."""
    sources: list[Source] = []
    seconds = _REPORTS_SECONDS
    if settings.mode == "enforce" and (settings.notify.receivers or settings.notify.wall):
        sources.append(make_notifier(settings, clock, lambda: seen.metrics.fleet, seen.metrics.message))
        seconds = min(_MESSAGES_SECONDS, settings.interval)
    if any(budget.notify for budget in settings.budgets.values()):
        sources.append(make_budget_notices(settings, clock, lambda: seen.metrics.budgets, seen.metrics.message))
        seconds = min(_MESSAGES_SECONDS, settings.interval)
    if settings.report.receivers:
        sources.append(make_reports(settings, clock, lambda: unused.whole(cloud_of(settings, clock))))
    if sources:
        job = DeliveryJob(ledger=settings.ledger, leads=lambda: seen.metrics.leading, sources=sources)
        every = IntervalTrigger(seconds=seconds, timezone=UTC)
        scheduler.add_job(job.tick, every, max_instances=1, coalesce=True, misfire_grace_time=None)


def schedule_readings(scheduler: BackgroundScheduler, settings: Settings, clock: Clock, seen: Observers) -> None:
    """Tell the metrics what takes long to read from the ledger: each in a thread of its own."""
    if not settings.controller.metrics:
        return
    metrics, every = seen.metrics, IntervalTrigger(seconds=_READINGS_SECONDS, timezone=UTC)
    book = (settings.ledger, ZoneInfo(settings.cost.timezone), clock, lambda: metrics.leading)
    weeks = compared_weeks(*book, metrics.compare)
    saved = savings_read(*book, metrics.tell_savings, settings.interval, lambda: metrics.rules)
    for tick in (weeks.tick, saved.tick):
        scheduler.add_job(tick, every, max_instances=1, coalesce=True, misfire_grace_time=None)


def one_round(parts: ControllerContext, seen: Observers | None = None) -> Round | None:
    """One round with its line in the log; an error in it does not end the controller.

    Of several controllers on one ledger only the leader works; the others wait here.
    """
    begun = parts.clock.monotonic()
    done, leading = _round(parts, seen)
    if seen is not None:
        seen.update(done, parts.clock.monotonic() - begun, leading=leading, trouble=parts.ledger.identity.trouble)
    if done is not None:
        log.log(logging.WARNING if done.trouble else logging.INFO, "%s", round_line(done))
        if seen is not None and done.trouble is None:
            seen.warn(done, parts.rules)
    return done


def _round(parts: ControllerContext, seen: Observers | None) -> tuple[Round | None, bool]:
    """The round, and whether this controller leads."""
    try:
        if not parts.ledger.lead():
            if parts.ledger.identity.trouble is not None:
                log.error("Nothing is done: %s", parts.ledger.identity.trouble)
                return None, False
            log.info("This controller waits: the leader is %s.", parts.ledger.leader() or "not known")
            return None, False
        done = _meter(parts, step(parts), seen)
        _compact(parts)
    except LeadLostError as error:
        log.warning("This controller is no longer the leader; the round ends: %s", error)
        return None, False
    except Exception:
        log.exception("The round failed; the next one starts on schedule.")
        return None, True
    return done, True


def _compact(parts: ControllerContext) -> None:
    """Drop what is old; after a failure the next round does it, and this one is still shown."""
    try:
        parts.ledger.compact(parts.clock.now())
    except LeadLostError:
        raise
    except Exception:
        log.exception("Old rounds could not be dropped; the next round does it.")


def _meter(parts: ControllerContext, done: Round, seen: Observers | None) -> Round:
    """Record what was billed, after a failure in the next round; what is shown of budgets has it already."""
    if parts.meter is None or done.trouble is not None:
        return done
    try:
        billed = parts.meter(done.observation)
        if seen is not None:
            seen.metrics.count_billed(billed)
        shown = parts.with_billed(done.observation.budgets, billed)
        return replace(done, observation=replace(done.observation, budgets=shown))
    except LeadLostError:
        raise
    except Exception:
        log.exception("What was billed could not be recorded; the next round makes up for it.")
    return done
