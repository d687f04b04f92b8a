"""Reads figures of money from the ledger for the metrics: weeks compared once a day, savings every five minutes.

Each has its own thread and its own connection to the ledger, so that no round and no scrape waits for it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar
from zoneinfo import ZoneInfo

from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.duration import format_duration
from gpuwatch.money.report.gather import ends_compared
from gpuwatch.money.report.progress import ComparedEnds
from gpuwatch.money.report.saved import SavedByPool, saved_by_pool
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

Found = TypeVar("Found")
SAVINGS_SECONDS = 300
_METERED_AFTER = timedelta(hours=1)  # by then rounds have billed the end of the day before
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 300.0, 14_400.0


@dataclass(slots=True, kw_only=True)
class Reading(Generic[Found]):
    """Looks each minute whether it is time: whether `turn` has changed since it last read. Only the leader reads."""

    what: str
    ledger: LedgerSettings
    clock: Clock
    leads: Callable[[], bool]
    turn: Callable[[datetime], object]
    read: Callable[[Ledger, datetime], Found]
    tell: Callable[[Found], None]
    _told: object = None
    _backoff: Backoff[str] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing has failed yet."""
        self._backoff = Backoff(
            clock=self.clock, first_seconds=_FIRST_WAIT_SECONDS, longest_seconds=_LONGEST_WAIT_SECONDS
        )

    def tick(self) -> None:
        """Read and tell if it is time; a failure is a line in the log, and the figures stay until the next try."""
        now = self.clock.now()
        turn = self.turn(now)
        if turn == self._told or not self.leads() or not self._backoff.is_over(self.what):
            return
        try:
            ledger = Ledger.connect(self.ledger, read_only=True)
            try:
                found = self.read(ledger, now)
            finally:
                ledger.close()
        except LedgerError as error:
            wait = format_duration(self._backoff.note_failure(self.what))
            log.warning("%s could not be read: %s. Next try in %s.", self.what, error, wait)
            return
        except Exception:
            self._backoff.note_failure(self.what)
            log.exception("%s could not be read; that is tried again.", self.what)
            return
        self._backoff.note_success(self.what)
        self.tell(found)
        self._told = turn


def compared_weeks(
    ledger: LedgerSettings,
    zone: ZoneInfo,
    clock: Clock,
    leads: Callable[[], bool],
    tell: Callable[[ComparedEnds | None], None],
) -> Reading[ComparedEnds | None]:
    """The first weeks of metering against the last ones, once after a start, and once a day."""
    return Reading(
        what="The first and last weeks of metering",
        ledger=ledger,
        clock=clock,
        leads=leads,
        turn=lambda now: (now - _METERED_AFTER).astimezone(zone).date(),
        read=lambda ledger, now: ends_compared(ledger, zone, now),
        tell=tell,
    )


def savings_read(
    ledger: LedgerSettings,
    zone: ZoneInfo,
    clock: Clock,
    leads: Callable[[], bool],
    tell: Callable[[SavedByPool], None],
    interval_seconds: float,
    rules: Callable[[], Rulebook | None],
) -> Reading[SavedByPool]:
    """What stops and terminations save, every five minutes."""
    return Reading(
        what="Savings",
        ledger=ledger,
        clock=clock,
        leads=leads,
        turn=lambda now: now.timestamp() // SAVINGS_SECONDS,
        read=lambda ledger, now: saved_by_pool(ledger, zone, now, interval_seconds, rules()),
        tell=tell,
    )
