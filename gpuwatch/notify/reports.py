"""The daily report: once a day to each receiver, also over restarts."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from functools import cache, partial
from typing import Any
from zoneinfo import ZoneInfo

from gpuwatch.clouds import CloudError, Leftover
from gpuwatch.ledger import Ledger
from gpuwatch.model.money import format_cents
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.report.document import report_document
from gpuwatch.money.report.gather import gather_report
from gpuwatch.money.report.history import ActionHistory
from gpuwatch.money.report.pages import as_html, as_text
from gpuwatch.money.report.period import Period
from gpuwatch.money.report.report import Report
from gpuwatch.money.report.sections import figures, headline, title
from gpuwatch.notify.delivery import Due, Outbox, key_of
from gpuwatch.notify.settings import ReportSettings
from gpuwatch.notify.transports.base import Delivery
from gpuwatch.notify.transports.registry import ReportTransports
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.json_document import document

log = logging.getLogger(__name__)

_DAY = timedelta(days=1)
_FIRST_WAIT_SECONDS = 60.0
_LONGEST_WAIT_SECONDS = 3600.0
_WORST = 3  # owners in a chat


@dataclass(frozen=True, slots=True)
class ReportContent:
    """A report as the content of a delivery."""

    report: Report

    @property
    def title(self) -> str:
        """Return the title of the report."""
        return title(self.report)

    def text(self) -> str:
        """Return all sections of the report as text."""
        return as_text(self.report).replace("://", ": //") + "\n"  # of names: it has no links of its own

    def chat(self, *, links: bool = True) -> str:
        """The first figures, and the owners with the most waste."""
        del links
        lines = [headline(self.report)]
        lines += [f"{each.name}: {each.value} ({each.note})" for each in figures(self.report).figures]
        lines += [each.sentence for each in self.report.facts.anomalies]
        worst = [line for line in self.report.slices["owner"][:_WORST] if line.wasted_cents > 0]
        if worst:
            owners = ", ".join(f"{line.name[:80]} {format_cents(line.wasted_cents)}" for line in worst)
            lines.append(f"Most waste: {owners}")
        return "\n".join(lines).replace("://", ": //")

    def html(self, *, mail: bool) -> str:
        """A page with charts; a mail without them."""
        return as_html(self.report, mail=mail)

    def document(self, key: str) -> dict[str, Any]:
        """The document of `gpuwatch report --json`."""
        del key
        return document("report", report_document(self.report))

    def parts(self) -> Sequence["ReportContent"]:
        """Return the report as its only part."""
        return (self,)


def report_delivery(report: Report, to: ReportTransports, key: str) -> Delivery:
    """A report on its way to one receiver."""
    facts = report.facts
    return Delivery(key=key, at=facts.now, day=facts.period.first, content=ReportContent(report), to=to.mail.to)


@dataclass(slots=True, kw_only=True)
class Reports:
    """Which receivers get the report of the day before."""

    report: ReportSettings
    cost: CostSettings
    interval_seconds: float  # of the controller's rounds
    clock: Clock
    unused: Callable[[], Sequence[Leftover]] = tuple
    outbox: Outbox = field(init=False)
    _done: dict[str, date] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing has failed yet."""
        backoff: Backoff[object] = Backoff(
            clock=self.clock, first_seconds=_FIRST_WAIT_SECONDS, longest_seconds=_LONGEST_WAIT_SECONDS
        )
        self.outbox = Outbox(clock=self.clock, backoff=backoff)

    def _day(self) -> date:
        return due_day(self.clock.now(), ZoneInfo(self.cost.timezone), self.report.at)

    def pending(self) -> bool:
        """Whether a receiver may still lack the newest report."""
        return bool(self._waiting(self._day()))

    def _waiting(self, day: date) -> list[str]:
        return [
            name
            for name in self.report.receivers
            if self._done.get(name, date.min) < day and not self.outbox.waits(name)
        ]

    def deliver(self, ledger: Ledger) -> None:
        """Send it to each receiver that has not had it. A day before metering began has no report."""
        day, began, history = self._day(), SpendBook(ledger).began(), ActionHistory(ledger)
        period = Period(zone=ZoneInfo(self.cost.timezone), first=day, after=day + _DAY)
        made = cache(partial(self._make_report, ledger, period, self.clock.now()))
        for name in self._waiting(day):
            last = history.last_delivered(name)
            if began is None or began >= period.until * 1000 or (last is not None and last >= day.isoformat()):
                self._done[name] = day
                continue
            if self.outbox.send(ledger, self._due(name, day, made, report_key(ledger, name, day.isoformat()))):
                self._done[name] = day

    def _due(self, name: str, day: date, made: Callable[[], Report], key: str) -> Due:
        to = self.report.receivers[name]
        return Due(
            receiver=name,
            transport=to.transport,
            what=f"report for {day}",
            make=lambda: report_delivery(made(), to, key),
            records=lambda *_: [lambda ledger: ActionHistory(ledger).keep_delivered(name, day.isoformat())],
        )

    def _make_report(self, ledger: Ledger, period: Period, now: datetime) -> Report:
        unused = None
        if self.report.unused:
            try:
                unused = self.unused()
            except (CloudError, ImportError) as error:
                log.warning("What stopped machines cost is not in the report: %s", error)
        return gather_report(ledger, period, now, self.cost, self.interval_seconds, unused)


def due_day(now: datetime, zone: ZoneInfo, at: str) -> date:
    """The newest day with a report that is due."""
    local = now.astimezone(zone)
    return local.date() - _DAY * (1 if local.time() >= time.fromisoformat(at) else 2)


def report_key(ledger: Ledger, name: str, what: str) -> str:
    """The key of one report to one receiver."""
    return key_of("report", ActionHistory(ledger).ledger_id(), name, what)
