"""PURE: how a cloud refuses or stays silent, in types that the controller acts on."""


class CloudError(Exception):
    """A cloud's refusal or silence; `code` is the cloud's own word."""

    def __init__(self, message: str, *, code: str = "") -> None:
        """Keep the cloud's own code with the sentence."""
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


class ClockSkewError(CloudError):
    """The cloud does not take our signature because of its time: this machine's clock is wrong. Nothing was done."""


class CloudUnavailableError(CloudError):
    """No usable answer: a mutation may or may not have happened."""


class NotSentError(CloudUnavailableError):
    """No connection could be opened, so nothing of the request was sent: a mutation has certainly not happened."""


class PermitExpiredError(CloudError):
    """Our own refusal: the permit for the change did not hold any more. Nothing was sent."""
