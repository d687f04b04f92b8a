"""What a refusal, a silence or an error in a step leaves in the ledger, and who was silent."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from gpuwatch.clouds import (
    AuthFailedError,
    BusyError,
    ClockSkewError,
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotSentError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.controller.circuits import Server
from gpuwatch.controller.context import ControllerContext
from gpuwatch.ledger import LedgerError, LedgerValueError
from gpuwatch.model.decision import ADDITIONS, Status, Verb

log = logging.getLogger(__name__)

# What an error leaves in the ledger; any other refusal is REFUSED.
_STATUS_OF: dict[type[CloudError], Status] = {
    ThrottledError: Status.THROTTLED,
    BusyError: Status.BUSY,
    AuthFailedError: Status.DENIED,
    ClockSkewError: Status.SKEWED,
    CloudUnavailableError: Status.UNAVAILABLE,
    # Another zone, another node or another hour may have it: this intent is over.
    InsufficientCapacityError: Status.FAILED,
    QuotaExceededError: Status.FAILED,
}
# A template that does not work, a right or a connection that is missing: the next offer is asked, as without stock.
OFFER_REFUSED = frozenset({Status.REFUSED, Status.DENIED, Status.UNSENT})


def status_of(error: CloudError, verb: Verb, *, sent: bool) -> Status:
    """Return the status of an attempt that ended so; `sent`: its permit was checked, so it was about to leave.

    What a cloud is asked before a change may find it silent, too: then nothing was sent. A removal stays in doubt.
    """
    silent = isinstance(error, CloudUnavailableError)
    if isinstance(error, BusyError) and verb is Verb.LAUNCH:
        return Status.REFUSED  # there is no machine yet that could be busy: another place may have one
    if silent and verb in ADDITIONS and (isinstance(error, NotSentError) or not sent):
        return Status.UNSENT
    return next((status for kind, status in _STATUS_OF.items() if isinstance(error, kind)), Status.REFUSED)


def note_silence(parts: ControllerContext, server: Server, error: CloudError, asked_at: float) -> None:
    """Note that a question gave no answer; `asked_at` is when it was asked, monotonic."""
    now = parts.clock.monotonic()
    parts.memory.circuits.note_silence(server, error, at=now, seconds=now - asked_at)


def ends_the_round(error: Exception) -> bool:
    """Whether an error says that nothing more may be written down; any other is that of one part of a round."""
    return isinstance(error, LedgerError) and not isinstance(error, LedgerValueError)


@contextmanager
def one_part(what: str) -> Iterator[None]:
    """Let an error within be that of this part of the round alone; `what` names the part in the log.

    Raises:
        CloudError: somebody gave no answer, which is no error of ours.
        LedgerError: nothing more may be written down.

    """
    try:
        yield
    except CloudError:
        raise
    except Exception as error:
        if ends_the_round(error):
            raise
        log.exception("%s failed", what)
