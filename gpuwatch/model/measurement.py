"""What was measured of a pool, and what the ledger says of its past: its starts, pauses, answers, offers and work."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricQuery:
    """A number to be had of a pool: a name that the agents' verdicts give, or a PromQL expression."""

    pool: str
    name: str
    expression: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """A pool's number at a time. `value` None is unknown and `doubt` says why: no answer, empty, partial, late.

    `samples` is how many nodes or series it was made of, `expected` of how many; where both are known and differ, the
    number is partial.
    """

    pool: str
    name: str
    at: datetime
    value: float | None
    doubt: str | None = None
    samples: int | None = None
    expected: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """What a pool's starts have shown: how long one takes to its first work, None: too few `starts` to say.

    `failed` is how many starts and launches failed lately. Of the last weeks' the cloud answered `asked` and had no
    machine for `refused`; what is older counts less, so neither is whole.
    """

    seconds: float | None = None
    starts: int = 0
    failed: int = 0
    asked: float = 0.0
    refused: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """What a pool has shown of its pauses: how many of them ended in work, and how many days it was looked at."""

    ended: int = 0
    days: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What people have answered to a pool's notices, by what they did.

    `known` is whether enough of them ran out unanswered; `passed` is when that happened last to a machine that is
    there, of a pool that is not known. `regrets` is when somebody started such a machine again within an hour of our
    stop, lately. Of the last 30 days, `stops` are those that are an hour old, and `regretted` how many of them were
    taken back like that.
    """

    known: bool = False
    passed: Mapping[str, datetime] = field(default_factory=dict)
    regrets: Mapping[str, tuple[datetime, ...]] = field(default_factory=dict)
    stops: int = 0
    regretted: int = 0

    @property
    def regretted_ratio(self) -> float | None:
        """The share of stops that somebody took back; None: there was no stop."""
        return self.regretted / self.stops if self.stops else None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferPast:
    """One offer's past of the last three days: the pool's own tries and losses there, and nothing of the cloud's own.

    `refusals` is the count after the newest try, where each success takes one away; `refused_at` is when the newest
    refusal was, and `refused_since` the first since a node came from there. `losses` are nodes that ended without
    gpuwatch, `hours_up` are node-hours. `faults` are the newest tries in a row that failed for another reason than
    stock (a missing right, a broken template, no answer), `fault` is the last one's. `rests_until`: what was launched
    from there does not last, so nothing is until then.
    """

    refusals: int = 0
    refused_at: datetime | None = None
    refused_since: datetime | None = None
    faults: int = 0
    fault_at: datetime | None = None
    fault: str = ""
    losses: int = 0
    hours_up: float = 0.0
    rests_until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffersPast:
    """The past of a pool's offers, by their names.

    `spot_refused_since` is when spot was refused first since any spot node came; None: not since then.
    """

    offers: Mapping[str, OfferPast] = field(default_factory=dict)
    spot_refused_since: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPast:
    """How far the work of a pool with a deadline is. Seconds are those in which all of its nodes work.

    `done_seconds` is without what the `losses` (nodes that worked and are gone) may have taken back. `line_seconds` is
    the work that was left when half of the slack was spent; None: it is not spent, or nobody knows. `start_seconds` of
    what the losses took back are for a start that is still to come: of the nodes that have worked none is there.
    """

    done_seconds: float = 0.0
    losses: int = 0
    line_seconds: float | None = None
    start_seconds: float = 0.0
