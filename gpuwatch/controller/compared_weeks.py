"""Reads the first and the last weeks of metering for the metrics: once after a start, and once a day.

It has its own thread and its own connection to the ledger, so that no round and no scrape waits for it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.duration import format_duration
from gpuwatch.money.report.gather import ends_compared
from gpuwatch.money.report.progress import ComparedEnds
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

_METERED_AFTER = timedelta(hours=1)  # by then rounds have billed the end of the day before
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 300.0, 14_400.0
_WHAT = "weeks"


@dataclass(slots=True, kw_only=True)
class ComparedWeeks:
    """Looks each minute whether it is time; only the leader reads."""

    ledger: LedgerSettings
    zone: ZoneInfo
    clock: Clock
    leads: Callable[[], bool]
    tell: Callable[[ComparedEnds | None], None]
    _told: date | None = None  # the day for which it was read
    _backoff: Backoff[str] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing has failed yet."""
        self._backoff = Backoff(
            clock=self.clock, first_seconds=_FIRST_WAIT_SECONDS, longest_seconds=_LONGEST_WAIT_SECONDS
        )

    def tick(self) -> None:
        """Read and tell if it is time; a failure is a line in the log, and the figures stay until the next try."""
        now = self.clock.now()
        day = (now - _METERED_AFTER).astimezone(self.zone).date()
        if day == self._told or not self.leads() or not self._backoff.is_over(_WHAT):
            return
        try:
            ledger = Ledger.connect(self.ledger, read_only=True)
            try:
                found = ends_compared(ledger, self.zone, now)
            finally:
                ledger.close()
        except LedgerError as error:
            wait = format_duration(self._backoff.note_failure(_WHAT))
            log.warning("The first and last weeks of metering could not be compared: %s. Next try in %s.", error, wait)
            return
        except Exception:
            self._backoff.note_failure(_WHAT)
            log.exception("The first and last weeks of metering could not be compared; that is tried again.")
            return
        self._backoff.note_success(_WHAT)
        self.tell(found)
        self._told = day
