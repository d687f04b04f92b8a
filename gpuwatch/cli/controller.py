"""The live cast: the controller's parts made from the settings, and its rounds on a schedule."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger

from gpuwatch.cli.render import round_line
from gpuwatch.clouds import Cloud, CloudError, Leftover, connect
from gpuwatch.config import ConfigError
from gpuwatch.config.settings import Settings
from gpuwatch.controller.context import LiveParts, Memory
from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.observe import NodeReportSource
from gpuwatch.controller.observe.credentials import files_of
from gpuwatch.controller.observe.promql import PromqlSource
from gpuwatch.controller.observe.scrape import ScrapeSource
from gpuwatch.controller.round import ControllerContext, Round, step
from gpuwatch.controller.web.app import Web
from gpuwatch.controller.web.keep_page import links_of
from gpuwatch.controller.web.serve import Discovery, make_server
from gpuwatch.controller.web.state import State
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import LeadLostError, Ledger, LedgerError
from gpuwatch.model.fleet import Fleet
from gpuwatch.money.accounting.store import Meter
from gpuwatch.money.budgets.tracker import Budgeting
from gpuwatch.money.prices.open import open_book
from gpuwatch.money.prices.overrides_file import PricesError
from gpuwatch.notify.notifier import Notifier
from gpuwatch.notify.report_job import ReportScheduler
from gpuwatch.runtime.certificates import Ends
from gpuwatch.runtime.clock import Clock, SystemClock
from gpuwatch.runtime.http.auth import files_of as door_files
from gpuwatch.runtime.http.server import HttpServer
from gpuwatch.runtime.scheduler import SteadyScheduler
from gpuwatch.runtime.secrets import use
from gpuwatch.runtime.shutdown import SignalWaiter
from gpuwatch.runtime.systemd import Watchdog, notify, tell_reloading
from gpuwatch.runtime.x509 import by_x509

log = logging.getLogger(__name__)

_MESSAGES_SECONDS = 10.0

# What `assembled` says that a person can mend.
_UNUSABLE = (CloudError, ImportError, LedgerError, PricesError)

SOURCES: dict[str, Callable[..., NodeReportSource]] = {"scrape": ScrapeSource, "promql": PromqlSource.of}


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
def assembled(settings: Settings, *, read_only: bool) -> Iterator[LiveParts]:
    """The parts of a live controller; read only for `plan`, `explain` and `status`, which need no ledger yet.

    Raises:
        LedgerError: the ledger cannot be used.
        CloudError: the cloud cannot even be set up (no credentials, no region).
        PricesError: the file of own prices cannot be used.
        ImportError: an extra is missing.

    """
    use(settings.secrets)
    clock = SystemClock()
    cloud = cloud_of(settings, clock)
    unwritten = read_only and settings.ledger.unwritten
    ledger = Ledger.in_memory() if unwritten else Ledger.connect(settings.ledger, read_only=read_only)
    try:
        yield LiveParts(
            clock=clock,
            cloud=cloud,
            signals=SOURCES[settings.signals.source](
                settings=settings.signals,
                clock=clock,
                max_age_seconds=settings.limits.max_verdict_age,
                confirm_timeout=settings.limits.max_confirmation_age,
            ),
            ledger=ledger,
            rules=settings.rulebook,
            prices=open_book(
                settings.prices,
                provider=settings.cloud.provider,
                region=next(iter(settings.cloud.regions), None),
                clock=clock,
                background=not read_only,
                profile=settings.cloud.profile,
            ).price,
            meter=Meter(ledger, settings.cost.metering(settings.interval)),
            interval_seconds=settings.interval,
            budgets=Budgeting(
                ledger=ledger, budgets=settings.budgets, zone=ZoneInfo(settings.cost.timezone), tells=not read_only
            ).states,
        )
    finally:
        ledger.close()


def run(settings: Settings, reread: Callable[[], Settings]) -> None:
    """Rounds until SIGTERM or SIGINT; the round under way is finished first.

    At SIGHUP `reread` gives the settings of the next round; those that raise one of `_UNUSABLE` change nothing.
    """
    ending, memory = SignalWaiter(), Memory()
    following = _rounds(settings, ending, reread, memory)
    while following is not None:
        before, settings = settings, following
        try:
            following = _rounds(settings, ending, reread, memory)
            continue
        except _UNUSABLE as error:
            why = str(error)
        log.error("The settings stay as they were: %s", why)
        settings = before
        following = _rounds(settings, ending, reread, memory)


def _rounds(
    settings: Settings, ending: SignalWaiter, reread: Callable[[], Settings], memory: Memory
) -> Settings | None:
    """Rounds under these settings until a signal: the sound settings that follow, or None at the end."""
    with assembled(settings, read_only=False) as made:
        parts = replace(made, memory=memory)
        seen = Observers(
            discovery=Discovery(signals=settings.signals),
            telling=ControllerMetrics(settings.mode, settings.fleet, parts.clock, _certificates(settings).told),
            web=_web(settings, parts),
        )
        server = _served(settings, seen, parts)
        scheduler = scheduled(parts, settings.interval, seen)
        send_reports(scheduler, settings, parts.clock, seen)
        send_messages(scheduler, settings, parts.clock, seen)
        log.info("The controller begins: %s", settings.summary)
        for caution in settings.cautions:
            log.warning("Warning: %s", caution)
        if server is not None:
            server.start()
            log.info("Metrics and page are served at %s.", server.url)
        scheduler.start()
        watchdog = Watchdog(lambda: seen.telling.rounds, rests=settings.interval)
        watchdog.start()
        notify("READY=1")
        following = _following(ending, reread, parts.clock)
        watchdog.stop()
        if following is None:
            notify("STOPPING=1")
        scheduler.shutdown(wait=True)
        if server is not None:
            server.close()
    if following is None:
        log.info("The controller has ended; what is open in the ledger is taken up at its next start.")
    return following


def _following(ending: SignalWaiter, reread: Callable[[], Settings], clock: Clock) -> Settings | None:
    """Wait until new settings are sound, or for the end: None. What is wrong with others is told."""
    while not ending.wait():
        tell_reloading(clock)
        try:
            return reread()
        except ConfigError as error:
            why = str(error)
        log.error("The settings stay as they were: %s", why)
        notify("READY=1")
    return None


def _served(settings: Settings, seen: "Observers", parts: ControllerContext) -> HttpServer | None:
    """What is to be served, bound; without it the rounds go on, for they need nobody who asks."""
    try:
        return make_server(settings.controller, seen.discovery, seen.telling, parts.clock, seen.web)
    except (OSError, ValueError) as error:
        why = str(error)
    except ImportError as error:
        why = f"controller.users_file needs bcrypt ({error}): pip install 'gpuwatch[auth]'"
    log.error("Nothing is served at port %d (controller.port): %s", settings.controller.port, why)
    return None


def _certificates(settings: Settings) -> Ends:
    """Of those that are shown and believed."""
    door = door_files(settings.controller, "controller")
    return Ends([door, files_of(settings.signals), files_of(settings.signals.promql)], by_x509)


def _web(settings: Settings, parts: LiveParts) -> Web:
    """The page, before the first round."""
    server = settings.controller
    state = State(
        fleet=settings.fleet,
        interval_seconds=settings.interval,
        rules=parts.rules,
        ledger=parts.ledger,
        clock=parts.clock,
        zone=ZoneInfo(settings.cost.timezone),
        energy=settings.cost.energy,
    )
    return Web(
        state=state,
        operators=frozenset(server.operators),
        names=frozenset((server.host, *server.names, urlsplit(settings.notify.url or "").hostname or "")) - {""},
        links=links_of(settings.notify.link_key_file, state, insecure=server.insecure),
    )


def scheduled(
    parts: ControllerContext, interval_seconds: float, seen: "Observers | None" = None
) -> BackgroundScheduler:
    """Rounds from now on, not yet started, their distance by the monotonic clock.

    A late one is made up for once, never twice; no two run at the same time.

    `seen` is told each round.
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


def send_reports(scheduler: BackgroundScheduler, settings: Settings, clock: Clock, seen: "Observers") -> None:
    """Look once a minute whether a report is due, beside the rounds."""
    if settings.report.to:
        postman = make_report_scheduler(
            settings, clock, lambda: seen.telling.leading, lambda: cloud_of(settings, clock).leftovers()
        )
        every = IntervalTrigger(minutes=1, timezone=UTC)
        scheduler.add_job(postman.tick, every, max_instances=1, coalesce=True, misfire_grace_time=None)


def make_report_scheduler(
    settings: Settings, clock: Clock, leads: Callable[[], bool], leftovers: Callable[[], Sequence[Leftover]]
) -> ReportScheduler:
    """Who delivers the reports of these settings."""
    return ReportScheduler(
        report=settings.report,
        cost=settings.cost,
        ledger=settings.ledger,
        interval_seconds=settings.interval,
        clock=clock,
        leads=leads,
        leftovers=leftovers,
    )


def send_messages(scheduler: BackgroundScheduler, settings: Settings, clock: Clock, seen: "Observers") -> None:
    """Look every few seconds who is to be told of what the rounds did, beside them; where nothing is done, nobody."""
    if settings.mode == "enforce" and (settings.notify.to or settings.notify.terminals):
        crier = make_notifier(
            settings, clock, lambda: seen.telling.leading, lambda: seen.telling.fleet, seen.telling.message
        )
        every = IntervalTrigger(seconds=min(_MESSAGES_SECONDS, settings.interval), timezone=UTC)
        scheduler.add_job(crier.tick, every, max_instances=1, coalesce=True, misfire_grace_time=None)


def make_notifier(
    settings: Settings,
    clock: Clock,
    leads: Callable[[], bool],
    fleet: Callable[[], Fleet | None],
    count: Callable[[str, str, str], None],
) -> Notifier:
    """Who sends the notices of these settings."""
    return Notifier(
        notify=settings.notify,
        ledger=settings.ledger,
        signals=settings.signals,
        fleet_name=settings.fleet,
        rules=settings.rulebook,
        provider=settings.cloud.provider,
        zone=ZoneInfo(settings.cost.timezone),
        clock=clock,
        leads=leads,
        fleet=fleet,
        count=count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Observers:
    """Who is told of each round."""

    discovery: Discovery
    telling: ControllerMetrics
    web: Web | None = None
    unknown_pools: set[str] = field(default_factory=set)  # that the log has told of

    def warn(self, done: Round, rules: Rulebook) -> None:
        """Pools that the settings do not have, in the log once for as long as machines are in them."""
        pools = rules.unknown(done.observation.fleet.pools)
        for pool in set(pools) - self.unknown_pools:
            log.warning("Warning: %s What is in it is left alone.", rules.doubt(pool))
        self.unknown_pools.clear()
        self.unknown_pools.update(pools)

    def tell(self, done: Round | None, seconds: float, *, leading: bool = True, trouble: str | None = None) -> None:
        """A round is over; the fleet of one that saw nothing is not told. `trouble` is the ledger's."""
        self.telling.round(done, seconds, leading=leading, ledger_ok=trouble is None)
        if self.web is not None:
            self.web.state.tell(done, leading=leading, trouble=trouble)
        if done is not None and done.trouble is None:
            self.discovery.tell(done.observation.fleet)


def one_round(parts: ControllerContext, seen: Observers | None = None) -> Round | None:
    """One round with its line in the log; what goes wrong in it must not end the controller.

    Of several controllers on one ledger only the leader works; the others wait here for the lead.
    """
    begun = parts.clock.monotonic()
    done, leading = _round(parts, seen)
    if seen is not None:
        seen.tell(done, parts.clock.monotonic() - begun, leading=leading, trouble=parts.ledger.identity.trouble)
    if done is not None:
        log.log(logging.WARNING if done.trouble else logging.INFO, "%s", round_line(done))
        if seen is not None and done.trouble is None:
            seen.warn(done, parts.rules)
    return done


def _round(parts: ControllerContext, seen: "Observers | None") -> tuple[Round | None, bool]:
    """The round, and whether this controller leads."""
    try:
        if not parts.ledger.lead():
            if parts.ledger.identity.trouble is not None:
                log.error("Nothing is done: %s", parts.ledger.identity.trouble)
                return None, False
            log.info("This controller waits: %s leads.", parts.ledger.leader() or "nobody")
            return None, False
        done = step(parts)
        _meter(parts, done, seen)
        parts.ledger.compact(parts.clock.now())
    except LeadLostError as error:
        log.warning("The lead is lost in the middle of a round: %s", error)
        return None, False
    except Exception:
        log.exception("The round failed; nothing more is done until the next one.")
        return None, True
    return done, True


def _meter(parts: ControllerContext, done: Round, seen: Observers | None) -> None:
    """What was billed since the round before is written down; should that fail, the next round makes up for it."""
    if parts.meter is None or done.trouble is not None:
        return
    try:
        billed = parts.meter(done.observation)
        if seen is not None:
            seen.telling.billed(billed)
    except LeadLostError:
        raise
    except Exception:
        log.exception("What was billed could not be written down; the next round makes up for it.")
