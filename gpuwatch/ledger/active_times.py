"""When the controller could act: it was not paused, enforced, and made its rounds. Notices rest on it.

What begins or ends such a time is a record of its own in `controls`. These are people's orders (`pause`, `resume`), the
first round that only observes and the first that enforces again (`observe`, `enforce`), and the first round after a
time without rounds (`away`; its `reason` is the time of the round before).
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection, Text, bindparam, or_, select

from gpuwatch.guard.settings import Rulebook
from gpuwatch.ledger.chain import Writer, text
from gpuwatch.ledger.tables import CONTROLS, ROUNDS
from gpuwatch.model.decision import Observation
from gpuwatch.model.promise import Interruption

MODES = ("observe", "enforce")
_RELEVANT = ("pause", "resume", *MODES, "away")
_AWAY = timedelta(minutes=10)  # rounds further apart than this, and than some intervals, make a time without rounds
_INTERVALS = 3
_NEVER = sys.maxsize  # the number of a link that is yet to be made
EARLIER = timedelta(days=35)  # what began before a time may reach into it
_LAST = select(ROUNDS.c.at).order_by(ROUNDS.c.id.desc()).limit(1)
_MODE = select(CONTROLS.c.verb).where(CONTROLS.c.verb.in_(MODES)).order_by(CONTROLS.c.id.desc()).limit(1)
_LATE = bindparam("late", type_=Text)
_CONTROLS = select(CONTROLS).where(CONTROLS.c.verb.in_(_RELEVANT), or_(CONTROLS.c.at > _LATE, CONTROLS.c.until > _LATE))
_CONTROLS = _CONTROLS.order_by(CONTROLS.c.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A record of when a controller made rounds."""

    id: int
    at: datetime
    verb: str
    pool: str | None
    reason: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """An interruption of a pool (None: of all) with its place among the records; `last` None: by its time alone."""

    pool: str | None
    first: int
    last: int | None
    interruption: Interruption

    def touches(self, pool: str, link: int, at: datetime) -> bool:
        """Whether any of it comes after the record `link` of a pool, which was made at `at`."""
        if self.pool not in {None, pool}:
            return False
        if self.first > link:
            return True
        if self.last is not None:
            return self.last > link
        return self.interruption.until is None or self.interruption.until > at


def note_round(writer: Writer, observation: Observation, rulebook: Rulebook | None, controller: str) -> None:
    """A round begins: write down that none was made before it, or that it acts otherwise than those before."""
    row = {"at": text(observation.now), "pool": None, "who": controller, "until": None}
    absence = absent(writer.db, observation.now, observation.interval_seconds)
    if absence is not None:
        writer.append("control", {**row, "verb": "away", "reason": text(absence.since)})
    if rulebook is not None:
        mode = MODES[rulebook.enforce]
        if mode != (writer.db.scalar(_MODE) or "enforce"):
            writer.append("control", {**row, "verb": mode, "reason": ""})


def absent(db: Connection, now: datetime, interval_seconds: float) -> Interruption | None:
    """The time without rounds that ends now; None: the last one was made lately."""
    last_at = db.scalar(_LAST)
    last = now if last_at is None else datetime.fromisoformat(last_at)
    if now - last <= max(_AWAY, _INTERVALS * timedelta(seconds=interval_seconds)):
        return None
    return Interruption(why="away", since=last, until=now)


def controls(db: Connection, since: datetime) -> tuple[Control, ...]:
    """The records about the time from `since` on."""
    return tuple(
        Control(
            id=row.id,
            at=datetime.fromisoformat(row.at),
            verb=row.verb,
            pool=row.pool,
            reason=row.reason,
            until=None if row.until is None else datetime.fromisoformat(row.until),
        )
        for row in db.execute(_CONTROLS, {"late": text(since - EARLIER)})
    )


def interruptions_of(controls: Sequence[Control], absence: Interruption | None = None) -> Iterator[Between]:
    """The interruptions on record, and an absence that ends only now."""
    if absence is not None:
        yield Between(pool=None, first=_NEVER, last=_NEVER, interruption=absence)
    held: dict[int, Control] = {}
    observed: Control | None = None
    for each in controls:
        if each.verb == "pause":
            held[each.id] = each
        elif each.verb == "resume":
            for number in [number for number, pause in held.items() if each.pool in {None, pause.pool}]:
                yield _pause(held.pop(number), each)
        elif each.verb == "away":
            interruption = Interruption(why="away", since=datetime.fromisoformat(each.reason), until=each.at)
            yield Between(pool=None, first=each.id, last=each.id, interruption=interruption)
        elif each.verb == "observe":
            observed = each
        elif observed is not None:
            yield _observed_rounds(observed, each)
            observed = None
    for each in held.values():
        yield _pause(each, None)
    if observed is not None:
        yield _observed_rounds(observed, None)


def resumed_times(
    interruptions: Iterable[Between], since: datetime, now: datetime
) -> tuple[tuple[str | None, datetime], ...]:
    """When pools (None: all) had their notices and removals again, after `since`."""
    ends = ((each.pool, each.interruption.until) for each in interruptions)
    return tuple((pool, until) for pool, until in ends if until is not None and since < until <= now)


def touching(
    interruptions: Iterable[Between], pool: str, link: int, at: datetime, now: datetime
) -> tuple[Interruption, ...]:
    """Those that came after a notice: the record `link` of a pool, made at `at`. What is to come does not count yet."""
    found = (each.interruption for each in interruptions if each.touches(pool, link, at))
    return tuple(replace(each, until=None) if each.until is not None and each.until > now else each for each in found)


def _pause(pause: Control, resume: Control | None) -> Between:
    """A pause, which ends by itself where that is sooner."""
    if resume is None or (pause.until is not None and pause.until < resume.at):
        ended, link = pause.until, None
    else:
        ended, link = resume.at, resume.id
    interruption = Interruption(why="paused", since=pause.at, until=ended)
    return Between(pool=pause.pool, first=pause.id, last=link, interruption=interruption)


def _observed_rounds(observe: Control, enforce: Control | None) -> Between:
    """Rounds that only observed."""
    ended, link = (None, None) if enforce is None else (enforce.at, enforce.id)
    interruption = Interruption(why="observed", since=observe.at, until=ended)
    return Between(pool=None, first=observe.id, last=link, interruption=interruption)
