"""The daily report goes out by itself: once a day to each destination, also over restarts, and from the leader alone.

It runs on a thread and a connection of its own, so that no round ever waits for a mail server.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.clouds import CloudError, Leftover
from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.duration import format_duration
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.report.gather import gathered
from gpuwatch.money.report.history import ActionHistory
from gpuwatch.money.report.report import Report, Stretch
from gpuwatch.notify.report_send import ReportDelivery, delivered
from gpuwatch.notify.report_settings import ReportSettings
from gpuwatch.notify.transports.errors import DeliveryError
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

_DAY = timedelta(days=1)
_FIRST_WAIT_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 3600.0


@dataclass(slots=True, kw_only=True)
class ReportScheduler:
    """Asked once a minute; does something once a day."""

    report: ReportSettings
    cost: CostSettings
    ledger: LedgerSettings
    interval_seconds: float  # of the controller's rounds
    clock: Clock
    leads: Callable[[], bool]
    leftovers: Callable[[], Sequence[Leftover]] = tuple
    _done: dict[str, date] = field(default_factory=dict)
    _patience: Backoff[str] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing has failed yet."""
        self._patience = Backoff(
            clock=self.clock, first_seconds=_FIRST_WAIT_SECONDS, longest_seconds=_LONGEST_WAIT_SECONDS
        )

    def tick(self) -> None:
        """Deliver what is due; what goes wrong is a line in the log, and is tried again later."""
        if not self.leads():
            return
        now, zone = self.clock.now(), ZoneInfo(self.cost.timezone)
        day = due(now, zone, self.report.at)
        waiting = [name for name in self.report.to if self._waits(name, day)]
        if not waiting:
            return
        try:
            ledger = Ledger.connect(self.ledger, controls_only=True)
        except LedgerError as error:
            log.warning("The report for %s waits: %s", day, error)
            return
        try:
            self._deliver(ledger, Stretch(zone=zone, first=day, after=day + _DAY), waiting, now)
        except Exception:
            log.exception("The report for %s could not be made; it is tried again.", day)
            for name in waiting:
                self._patience.failed(name)
        finally:
            ledger.close()

    def _waits(self, name: str, day: date) -> bool:
        return self._patience.over(name) and self._done.get(name, date.min) < day

    def _deliver(self, ledger: Ledger, stretch: Stretch, waiting: Sequence[str], now: datetime) -> None:
        """To each that has not had it. A day before metering began has no report."""
        day, began, deeds = stretch.first, SpendBook(ledger).began(), ActionHistory(ledger)
        if began is None or began >= stretch.until * 1000:
            return
        report: Report | None = None
        for name in waiting:
            last = deeds.delivered(name)
            if last is not None and last >= day.isoformat():
                self._done[name] = day
                continue
            report = report or self._made(ledger, stretch, now)
            try:
                where = delivered(
                    ReportDelivery(report=report, key=key_of(ledger, name, day.isoformat())), self.report.to[name]
                )
            except DeliveryError as error:
                told = format_duration(self._patience.failed(name))
                log.warning("The report for %s did not get to %s: %s. Next try in %s.", day, name, error, told)
                continue
            self._done[name] = day  # whatever becomes of the next line, this process sends it once
            self._patience.worked(name)
            deeds.keep_delivered(name, day.isoformat())
            log.info("The report for %s went to %s (%s).", day, name, where)

    def _made(self, ledger: Ledger, stretch: Stretch, now: datetime) -> Report:
        left = None
        if self.report.leftovers:
            try:
                left = self.leftovers()
            except (CloudError, ImportError) as error:
                log.warning("What stopped machines cost is not in the report: %s", error)
        return gathered(ledger, stretch, now, self.cost, self.interval_seconds, left)


def due(now: datetime, zone: ZoneInfo, at: str) -> date:
    """The newest day whose report's time has come."""
    local = now.astimezone(zone)
    return local.date() - _DAY * (1 if local.time() >= time.fromisoformat(at) else 2)


def key_of(ledger: Ledger, name: str, what: str) -> str:
    """The same for each try of one report to one destination, and for no other."""
    told = hashlib.sha256(f"{name}\n{what}".encode()).hexdigest()[:24]
    return f"gpuwatch-report-{ActionHistory(ledger).ledger_id()}-{told}"
