"""Times as clouds write them: aware and in UTC, or not known.

A cloud that has no time to tell writes a zero: 1969-12-31T16:00-08:00, 1970-01-01T00:00Z, 0001-01-01T00:00Z. Taken for
a time it would make a machine half a century old, and its warm-up long past. So what is older than all five clouds is
not known. A time without a zone is not known either: it may be hours away from what it seems to say.
"""

from datetime import UTC, datetime, timedelta

_NO_CLOUD_YET = datetime(2006, 1, 1, tzinfo=UTC)  # EC2, the oldest of them, began in August of that year
LEAST_AGE = timedelta(days=30)  # of an image that is reported


def read_time(text: object) -> datetime | None:
    """A time of a cloud's answer, in ISO 8601 or as its package has read it; None: it is not known."""
    try:
        found = text if isinstance(text, datetime) else datetime.fromisoformat(str(text))
        at = None if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return None if at is None or at < _NO_CLOUD_YET else at


def need_time(text: str) -> datetime:
    """A time that the rest of an answer means nothing without.

    Raises:
        ValueError: it is not known.

    """
    found = read_time(text)
    if found is None:
        raise ValueError(text)
    return found


def time_made(text: str | None) -> datetime | None:
    """When something was made that nobody acts on: a time without a zone is in UTC. None: it is not known."""
    try:
        at = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return read_time(at if at.tzinfo else at.replace(tzinfo=UTC))


def is_old(made: str | None, now: datetime) -> bool:
    """Whether that time of a cloud's answer is a month past; one that is not known proves no age."""
    at = time_made(made)
    return at is not None and now - at >= LEAST_AGE
