"""PURE: which of an account's own images count as left behind: those that nothing names, and that are old.

An image that nothing uses today may be tomorrow's template: one of the last month is not reported. What other accounts,
or programs outside the cloud, make of an image cannot be seen, so people decide, and gpuwatch removes none.
"""

from datetime import UTC, datetime, timedelta

LEAST_AGE = timedelta(days=30)


def is_old(made: str | None, now: datetime, *, form: str | None = None) -> bool:
    """Whether that time of a cloud's answer is a month past; one that is missing or cannot be read proves no age.

    `form` is how the time is written, in UTC; None: as ISO 8601.
    """
    try:
        at = datetime.fromisoformat(made or "") if form is None else datetime.strptime(made or "", form)  # noqa: DTZ007
    except ValueError:
        return False
    return now - (at if at.tzinfo else at.replace(tzinfo=UTC)) >= LEAST_AGE
