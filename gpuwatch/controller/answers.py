"""What a refusal or a silence leaves in the ledger, and who is not asked again in the same round after it."""

from collections import Counter
from enum import Enum, auto

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
# After these nothing else is asked of the same server in the same round.
_BREAKERS = frozenset({Status.THROTTLED, Status.SKEWED, Status.UNSENT, Status.UNAVAILABLE})


class Server(Enum):
    """Who is asked for a change. The silence of one says nothing about the others."""

    CLOUD = auto()
    API_SERVER = auto()  # of a Kubernetes cluster
    SLURM = auto()


class Servers:
    """Which servers are not asked again in this round."""

    def __init__(self) -> None:
        """All may be asked."""
        self._denied = Counter[Server]()  # calls in a row
        self._left_alone = set[Server]()

    def note_end(self, server: Server, status: Status, most_denied: float) -> None:
        """Note how a call ended; after `most_denied` denied ones in a row its server is left alone, too.

        One denied call may be about its target, many are about our credentials.
        """
        self._denied[server] = self._denied[server] + 1 if status is Status.DENIED else 0
        if status in _BREAKERS or self._denied[server] >= most_denied:
            self._left_alone.add(server)

    def is_left_alone(self, server: Server) -> bool:
        """Whether nothing else is to be asked of it."""
        return server in self._left_alone


def status_of(error: CloudError, verb: Verb, *, sent: bool) -> Status:
    """Return the status of an attempt that ended so; `sent`: its permit was checked, so it was about to leave.

    What a cloud is asked before a change may find it silent, too: then nothing was sent. A removal stays in doubt.
    """
    silent = isinstance(error, CloudUnavailableError)
    if silent and verb in ADDITIONS and (isinstance(error, NotSentError) or not sent):
        return Status.UNSENT
    return next((status for kind, status in _STATUS_OF.items() if isinstance(error, kind)), Status.REFUSED)
