"""PURE: how a cloud refuses or stays silent, in types that the controller acts on, and how its words become these.

Each cloud has one table of its codes (`Table`), in which the first match wins; `kind_of` reads it and `typed` makes the
error.

A signature says when it was made, and every cloud takes it for some minutes only: Tencent Cloud and AWS for five,
Alibaba Cloud for 15. Some have a code of their own for that. Others refuse the credentials in the same words as wrong
ones; there the Date of the answer shows it (`explained`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase

from gpuwatch.runtime.network_errors import network_text

# Below five minutes, which the strictest allows; far above what an answer takes.
_MOST_SECONDS = 240.0
ADVICE = "set this machine's clock (`gpuwatch doctor` compares it with the cloud's)"


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


class BusyError(CloudError):
    """Another operation is under way on that machine or group: nothing was done, and it is asked again later."""


class ProtectedError(CloudError):
    """The machine is protected in the cloud against this call, or cannot do it (a one-time spot instance)."""


class NotFoundError(CloudError):
    """The cloud does not know that id. Shortly after a launch, or after an error, that does not mean it is gone."""


class AuthFailedError(CloudError):
    """Credentials missing, expired, or without the permission."""


class NoCredentialsError(AuthFailedError):
    """No usable credentials were found, so the cloud was not asked; the sentence says what to set."""


class ClockSkewError(CloudError):
    """The cloud does not take our signature because of its time: this machine's clock is wrong. Nothing was done."""


class CloudUnavailableError(CloudError):
    """No usable answer: a mutation may or may not have happened."""


class NotSentError(CloudUnavailableError):
    """No connection could be opened, so nothing of the request was sent: a mutation has certainly not happened."""


class PermitExpiredError(CloudError):
    """Our own refusal: the permit for the change did not hold any more. Nothing was sent."""


# Patterns of a cloud's codes and what they mean; the first match wins.
Table = tuple[tuple[str, type[CloudError]], ...]


def kind_of(code: str, table: Table, unlisted: type[CloudError] = CloudError) -> type[CloudError]:
    """Find the type of a code; `unlisted` is that of a code that the table does not know."""
    return next((kind for pattern, kind in table if fnmatchcase(code, pattern)), unlisted)


def means_no_machine(code: str, table: Table) -> bool:
    """Whether a code means that there is no stock, or no quota."""
    return kind_of(code, table) in {InsufficientCapacityError, QuotaExceededError}


def typed_error(kind: type[CloudError], asked: str, message: str, code: str) -> CloudError:
    """Make the error of an answer: what was asked, the first line of the cloud's message, and its code."""
    text = message.partition("\n")[0].strip()
    if kind is ClockSkewError:
        text = f"{text}; {ADVICE}"
    return kind(f"{asked}: {text} ({code})", code=code)


def no_answer(asked: str, error: BaseException, url: str = "") -> CloudUnavailableError:
    """The error of a call without a usable answer: the network's reason, else the kind of what was unusable."""
    name = type(error).__name__
    return CloudUnavailableError(f"{asked}: {network_text(error, url) or f'no usable answer ({name})'}", code=name)


@contextmanager
def reading(asked: str, *silent: type[Exception]) -> Iterator[None]:
    """Take an answer that lacks its parts, such as a gateway's page, for no answer: never an empty list or a yes.

    `silent` are more errors that mean no answer; their texts are cut off, because they may quote the request.
    """
    unusable: tuple[type[Exception], ...] = (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        *silent,
    )
    try:
        yield
    except unusable as error:
        raise no_answer(asked, error) from None


def explain_error(error: CloudError, date: str, now: datetime) -> CloudError:
    """The error, or what is behind it: where our credentials are refused and the clocks differ by minutes, the clock.

    `date` is the header Date of the answer ("" without one), `now` is this machine's time.
    """
    ahead = _seconds_ahead(date, now)
    if not isinstance(error, AuthFailedError) or ahead is None or abs(ahead) <= _MOST_SECONDS:
        return error
    side = "behind" if ahead > 0 else "ahead of"
    text = f"{error}; this machine's clock is {abs(ahead) / 60:.0f} min {side} the cloud's: {ADVICE}"
    return ClockSkewError(text, code=error.code)


def _seconds_ahead(date: str, now: datetime) -> float | None:
    """By how much the cloud's clock is ahead of ours."""
    try:
        return (parsedate_to_datetime(date) - now).total_seconds()
    except (ValueError, TypeError):  # no date, or one without a zone
        return None
