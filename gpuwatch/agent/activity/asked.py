"""PURE: at which hours other machines begin to ask a server here, and when it is due again.

A license server, a share or a database may be asked at nine each morning, and by nobody until the next. Rules, all of
them:

1. Kept is of each port, for three days, the hour in which a machine came that had not asked it for an hour. Who asks
   around the clock, a Prometheus for example, comes once.
2. What came at the same hour of two days in a row, an hour more or less, is due at that hour of the next day.
3. It has not come, and is no longer due, once the hour after that one is over.
"""

from collections.abc import Iterable, Mapping

HOUR_SECONDS = 3600.0
MOST_PORTS = 16
MOST_HOURS = 74  # of a port: three days, and the hour more or less
_DAY_HOURS = 24
_NEAR = (0, -1, 1)

Hours = Mapping[str, tuple[int, ...]]  # hours since 1970 by "tcp 445", the newest port last


def after_asks(known: Hours, at: float, came: Iterable[tuple[str, int]]) -> Hours:
    """The hours with those in which somebody new came, without what is too old or to come."""
    found = dict(known)
    for port, hour in came:
        found[port] = tuple(sorted({*found.pop(port, ()), hour}))
    now = int(at // HOUR_SECONDS)
    kept = {port: tuple(each for each in hours if now - MOST_HOURS < each <= now) for port, hours in found.items()}
    newest = [(port, hours) for port, hours in kept.items() if hours][-MOST_PORTS:]
    return dict(newest)


def due_hours(known: Hours, at: float) -> dict[str, float]:
    """When each port that is due is due next, in seconds since 1970; within its hours, when they end."""
    now = int(at // HOUR_SECONDS)
    found: dict[str, float] = {}
    for port, hours in known.items():
        ahead = range(now - 1, now + _DAY_HOURS + 1)
        due = next((hour for hour in ahead if _is_due(hour, hours) and not _is_near(hour, hours)), None)
        if due is not None:
            begin = due * HOUR_SECONDS
            found[port] = begin if at <= begin else begin + 2 * HOUR_SECONDS
    return found


def _is_due(hour: int, hours: tuple[int, ...]) -> bool:
    return hour - _DAY_HOURS in hours and _is_near(hour - 2 * _DAY_HOURS, hours)


def _is_near(hour: int, hours: tuple[int, ...]) -> bool:
    return any(hour + near in hours for near in _NEAR)
