"""What a cloud's refusal or silence leaves in the ledger, and what else is asked after it."""

from gpuwatch.clouds import (
    AuthFailedError,
    ClockSkewError,
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotSentError,
    QuotaExceededError,
    ThrottledError,
)
from gpuwatch.model.decision import ADDITIONS, Status, Verb

# What an error leaves in the ledger; any other refusal is REFUSED.
_STATUS_OF: dict[type[CloudError], Status] = {
    ThrottledError: Status.THROTTLED,
    AuthFailedError: Status.DENIED,
    ClockSkewError: Status.SKEWED,
    CloudUnavailableError: Status.UNAVAILABLE,
    # Another zone, another node or another hour may have it: this intent is over.
    InsufficientCapacityError: Status.FAILED,
    QuotaExceededError: Status.FAILED,
}
# A template that does not work, a right or a connection that is missing: the next offer is asked, as without stock.
OFFER_REFUSED = frozenset({Status.REFUSED, Status.DENIED, Status.UNSENT})
# After these nothing else is asked of the cloud in the same round.
BREAKERS = frozenset({Status.THROTTLED, Status.SKEWED, Status.UNSENT, Status.UNAVAILABLE})


def status_of(error: CloudError, verb: Verb, *, sent: bool) -> Status:
    """The status of an attempt that ended so; `sent`: its permit was checked, so it was about to leave.

    What a cloud is asked before a change may find it silent, too: then nothing was sent. A removal stays in doubt.
    """
    silent = isinstance(error, CloudUnavailableError)
    if silent and verb in ADDITIONS and (isinstance(error, NotSentError) or not sent):
        return Status.UNSENT
    return next((status for kind, status in _STATUS_OF.items() if isinstance(error, kind)), Status.REFUSED)
