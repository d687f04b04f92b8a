"""The clouds behind one protocol with typed errors. "Already stopped" or "already gone" is success."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpuwatch.model.fleet import Node


class Cloud(Protocol):
    """What the controller asks of a cloud. Each mutation takes the ledger's key; one instance a call, never a count."""

    def nodes(self) -> Sequence[Node]:
        """All GPU machines that exist (not terminated), paginated to the end.

        Raises:
            CloudError: the list could not be had whole; a part of it is never returned.

        """
        ...

    def node(self, node_id: str) -> Node | None:
        """One machine as the cloud sees it now; None only where the cloud says that there is no such machine.

        Raises:
            CloudError: no answer.

        """
        ...

    def stop(self, node_id: str, key: str) -> None:
        """Ask for a stop; returns when the cloud has accepted it, or if the machine is stopping or stopped already.

        Raises:
            CloudError: it was not accepted, or nobody knows (CloudUnavailableError).

        """
        ...

    def start(self, node_id: str, key: str) -> None:
        """Ask for a start; returns when accepted, or if it runs already.

        Raises:
            CloudError: as for stop; InsufficientCapacityError and QuotaExceededError are its usual forms.

        """
        ...

    def tag(self, node_id: str, tags: Mapping[str, str], key: str) -> None:
        """Set tags of the allow-list on one machine.

        Raises:
            CloudError: they were not set, or nobody knows.

        """
        ...


class CloudError(Exception):
    """A cloud's refusal or silence; `code` is the cloud's own word."""

    def __init__(self, message: str, *, code: str = "") -> None:
        """Keep the cloud's own code beside the sentence."""
        super().__init__(message)
        self.code = code


class InsufficientCapacityError(CloudError):
    """There is no such machine to be had there now."""


class QuotaExceededError(CloudError):
    """The account's own limit; other zones will not help."""


class ThrottledError(CloudError):
    """Too many calls; try again later."""


class ProtectedError(CloudError):
    """The machine is protected in the cloud against this call, or cannot do it (a one-time spot instance)."""


class NotFoundError(CloudError):
    """The cloud does not know that id. Shortly after a launch, or after an error, that does not mean it is gone."""


class AuthFailedError(CloudError):
    """Credentials missing, expired, or without the permission."""


class CloudUnavailableError(CloudError):
    """No usable answer: a mutation may or may not have happened."""


# The only tag keys that gpuwatch ever writes.
NOTIFIED_AT = "gpuwatch:notified-at"
STOP_AT = "gpuwatch:stop-at"
DECISION_ID = "gpuwatch:decision-id"
WRITABLE_TAGS = frozenset({NOTIFIED_AT, STOP_AT, DECISION_ID})

# Tags that people and their tools set, and gpuwatch only reads.
FLEET_TAG = "gpuwatch:fleet"
POOL_TAG = "gpuwatch:pool"
OWNER_TAG = "gpuwatch:owner"
PROTECT_TAG = "gpuwatch:protect"
SNOOZE_TAG = "gpuwatch:snooze-until"
