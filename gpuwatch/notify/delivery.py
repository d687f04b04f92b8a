"""What is due is sent, tried again where it failed, and recorded: notifications and reports alike.

What is due follows from the ledger at each look, so that after a crash or a change of leader nothing is lost, and only
what was on its way is sent again, with the same Message-ID or Idempotency-Key. All this runs on its own thread and
ledger connection: no round waits for a mail server.
"""

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.duration import format_duration
from gpuwatch.notify.transports.base import Delivery, DeliveryError, RecipientsRefusedError, Transport
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

Record = Callable[[Ledger], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A delivery that is due: `make` builds it, `records` are written once it arrived at a time and place.

    `group` separates the addresses of one receiver: a refused one does not hold up the others.
    """

    receiver: str
    transport: Transport
    what: str
    make: Callable[[], Delivery]
    records: Callable[[datetime, str], Sequence[Record]]
    group: Hashable = None


@dataclass(slots=True, kw_only=True)
class Outbox:
    """Sends what is due, and waits longer after each failure."""

    clock: Clock
    backoff: Backoff[Hashable]
    _unrecorded: deque[Record] = field(default_factory=deque)

    def waits(self, receiver: str, group: Hashable = None) -> bool:
        """Whether an earlier failure is too recent for another try."""
        return not (self.backoff.is_over(receiver) and self.backoff.is_over((receiver, group)))

    def send(self, ledger: Ledger, due: Due) -> bool:
        """Whether it arrived; whatever happens to the ledger afterwards, this process does not send it again.

        Raises:
            LedgerError: it arrived and could not be recorded; `record` tries again.

        """
        failed: Hashable = (due.receiver, due.group)
        try:
            where = due.transport.send(due.make())
        except DeliveryError as error:
            why = str(error)
            if not isinstance(error, RecipientsRefusedError):
                failed = due.receiver
        except Exception:
            log.exception("The %s to %s could not be made.", due.what, due.receiver)
            why = "it could not be made"
        else:
            self.backoff.note_success(due.receiver)
            self.backoff.note_success(failed)
            self._unrecorded.extend(due.records(self.clock.now(), where))
            log.info("The %s went to %s (%s).", due.what, due.receiver, where)
            self.record(ledger)
            return True
        wait = format_duration(self.backoff.note_failure(failed))
        log.warning("The %s did not reach %s: %s. Next try in %s.", due.what, due.receiver, why, wait)
        return False

    def record(self, ledger: Ledger) -> None:
        """Write what arrived and is not recorded yet. Nothing else may be sent before."""
        while self._unrecorded:
            self._unrecorded[0](ledger)
            self._unrecorded.popleft()


class Source(Protocol):
    """What makes deliveries: notifications, or reports."""

    @property
    def outbox(self) -> Outbox:
        """Where its deliveries go."""
        ...

    def pending(self) -> bool:
        """Whether the ledger must be read to see what is due."""
        ...

    def deliver(self, ledger: Ledger) -> None:
        """Send what is due now."""
        ...


@dataclass(slots=True, kw_only=True)
class DeliveryJob:
    """Runs every few seconds; only the leader sends."""

    ledger: LedgerSettings
    leads: Callable[[], bool]
    sources: Sequence[Source]

    def tick(self) -> None:
        """Send what is due; a failure is a line in the log, and is tried again later."""
        pending = [source for source in self.sources if source.pending()] if self.leads() else []
        if not pending:
            return
        try:
            ledger = Ledger.connect(self.ledger, controls_only=True)
        except LedgerError as error:
            log.warning("Messages wait: %s", error)
            return
        try:
            for source in pending:
                _deliver(source, ledger)
        finally:
            ledger.close()


def _deliver(source: Source, ledger: Ledger) -> None:
    try:
        source.outbox.record(ledger)
        source.deliver(ledger)
    except LedgerError as error:
        log.warning("Messages wait: %s", error)
    except Exception:
        log.exception("Messages wait; they are tried again.")


def key_of(kind: str, *parts: str) -> str:
    """The same for each try of one delivery to one receiver, and for no other."""
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"gpuwatch-{kind}-{digest[:32]}"
