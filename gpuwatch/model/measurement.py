"""What was measured of a pool: the numbers that scaling looks at, how long starts take, and its pauses."""

from dataclasses import dataclass
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

    `failed` is how many starts and launches failed lately.
    """

    seconds: float | None = None
    starts: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """What a pool has shown of its pauses: how many of them ended in work, and how many days it was looked at."""

    ended: int = 0
    days: int = 0
