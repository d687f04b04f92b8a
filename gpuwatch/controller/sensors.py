"""What each round keeps and finds of what machines were seen at work with. The rules are those of guard/sensors.py.

The ledger's record is written where something in it has changed, and otherwise once an hour: then its time says until
when somebody looked. A step of the clock and a time without rounds move all of it, for they prove nothing.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.controller.context import ControllerContext, LastLook
from gpuwatch.guard.sensors import count_machines, find_unproven, moved_record, with_round
from gpuwatch.model.decision import Observation

_WRITTEN = timedelta(hours=1)
_UNWATCHED = 2 * _WRITTEN  # so long without a round is no time in which somebody could have been seen at work
_STEP = timedelta(seconds=1)  # less is no step of the clock
_NO_TIME = timedelta(0)


def with_unproven(parts: ControllerContext, seen: Observation) -> Observation:
    """The observation with what machines have by now with which nobody is seen at work."""
    last, limits = parts.memory.sensors, parts.rules.limits
    kept, uptime = parts.ledger.sensors.read(), parts.clock.uptime()
    record = None
    if kept is not None:
        record = moved_record(kept, by) if (by := _moved_by(last, kept.at, seen.now, uptime)) else kept
    counts = count_machines(seen.fleet)
    record = with_round(record, counts, seen.ledger, seen.now)
    last.kept, last.seen, last.seen_uptime = kept, record, uptime
    if limits.mass_idleness_freeze == 0.0:  # mass idleness is no reason to freeze
        return seen
    unproven = find_unproven(record, seen.fleet, counts, limits.mass_idleness_ratio)
    return replace(seen, unproven=unproven) if unproven else seen


def keep_sensors(parts: ControllerContext) -> None:
    """Write down what the round has seen, where that says more than what is on record."""
    last = parts.memory.sensors
    if last.seen is None:
        return
    last.at, last.uptime = last.seen.at, last.seen_uptime
    if last.kept is None or last.kept.uses != last.seen.uses or last.seen.at - last.kept.at >= _WRITTEN:
        parts.ledger.sensors.keep(last.seen)


def _moved_by(last: LastLook, kept_at: datetime, now: datetime, uptime: float) -> timedelta:
    """By how much the times on record are to be moved."""
    if last.at is None or kept_at > last.at:  # another process wrote it, by another clock
        away = now - kept_at
        return away if away < _NO_TIME or away > _UNWATCHED else _NO_TIME
    elapsed = timedelta(seconds=uptime - last.uptime)
    step = now - last.at - elapsed
    return (step if abs(step) >= _STEP else _NO_TIME) + (elapsed if elapsed > _UNWATCHED else _NO_TIME)
