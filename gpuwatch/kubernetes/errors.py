"""What an API server answers when it refuses, as the errors that the controller knows from clouds."""

import msgspec

from gpuwatch.clouds.errors import (
    AuthFailedError,
    CloudError,
    CloudUnavailableError,
    NotFoundError,
    ThrottledError,
)
from gpuwatch.model.bounds import BoundedInt

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE, TOO_MANY = 401, 403, 404, 409, 410, 429
_SERVER_ERRORS = 500
# By the status of HTTP, which is also the `code` of the answer's Status object.
_KINDS: dict[int, type[CloudError]] = {
    UNAUTHORIZED: AuthFailedError,
    FORBIDDEN: AuthFailedError,
    NOT_FOUND: NotFoundError,
    408: CloudUnavailableError,
    TOO_MANY: ThrottledError,
}
# The API server's data went back to an earlier time, as after a restored backup.
_FROM_THE_FUTURE = "Too large resource version"
_LONGEST = 300  # characters of a sentence of the server's


class GoneError(CloudError):
    """The versions since the one that was named are forgotten: everything has to be listed again."""


class ConflictError(CloudError):
    """Somebody changed the object meanwhile; the change was not made."""


class Cause(msgspec.Struct):
    """One of a refusal's reasons."""

    reason: str = ""
    message: str = ""


class Details(msgspec.Struct):
    """What a refusal is about."""

    causes: list[Cause] | None = None


class Status(msgspec.Struct):
    """An answer that is no object: metav1.Status.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
    """

    code: BoundedInt = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None

    @property
    def by_budget(self) -> bool:
        """Whether a PodDisruptionBudget refused an eviction; any other 429 means too many calls."""
        causes = (self.details and self.details.causes) or ()
        return any(cause.reason == "DisruptionBudget" for cause in causes)


_STATUS = msgspec.json.Decoder(Status)


def status_of(code: int, body: bytes) -> Status:
    """The refusal of an answer; a body that is no Status leaves the code of HTTP alone."""
    try:
        status = _STATUS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Status(code=code)
    return msgspec.structs.replace(status, code=status.code or code)


def refusal(asked: str, status: Status) -> CloudError:
    """The typed form of an answer that is no success."""
    if status.code == GONE or _FROM_THE_FUTURE in status.message:
        kind: type[CloudError] = GoneError
    elif status.code == CONFLICT:
        kind = ConflictError
    else:
        broken = status.code >= _SERVER_ERRORS or status.code < NOT_FOUND - 4
        kind = _KINDS.get(status.code, CloudUnavailableError if broken else CloudError)
    said = " ".join(status.message.split())[:_LONGEST]
    return kind(f"{asked}: {said or f'HTTP {status.code}'}", code=status.reason or str(status.code))
