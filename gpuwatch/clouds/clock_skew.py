"""PURE: when a cloud's refusal is about our clock and not about our credentials.

A signature says when it was made, and every cloud takes it for some minutes only: Tencent Cloud and AWS for five,
Alibaba Cloud for 15. Some have a code of their own for that. Others refuse the credentials in the same words as wrong
ones; there the Date of the answer shows it.
"""

from datetime import datetime
from email.utils import parsedate_to_datetime

from gpuwatch.clouds.errors import AuthFailedError, ClockSkewError, CloudError

# Below five minutes, which the strictest allows; far above what an answer takes.
_MOST_SECONDS = 240.0
ADVICE = "set this machine's clock (`gpuwatch doctor` compares it with the cloud's)"


def explained(error: CloudError, date: str, now: datetime) -> CloudError:
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
