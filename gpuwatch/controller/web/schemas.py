"""Queries, bodies and answers of the API besides the fleet itself. Its OpenAPI description is made from them."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec import Meta

from gpuwatch.controller.web.fleet_view import PoolRow
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Review
from gpuwatch.model.orders import Pause
from gpuwatch.money.accounting.scope import CostScope
from gpuwatch.money.report.progress import ProgressDocument

RoundId = Annotated[int, Meta(ge=1, le=2**53)]
_YEAR_SECONDS = 366 * 86_400
_END = r"(?![\s\S])"  # `$` would let a line end before it in Python, and `\Z` is no end elsewhere
_PLAIN = rf"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*{_END}"
_Text = Annotated[str, Meta(max_length=200)]


class Nothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query without parameters."""


class NodesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes. `text` is looked for in id, name, owner and type."""

    pool: _Text | None = None
    activity: State | None = None
    text: _Text | None = None
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    offset: Annotated[int, Meta(ge=0, le=10_000_000)] = 0


class NodeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In which round; without one, in the last."""

    round: RoundId | None = None


class BlockedQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of one pool, or of all."""

    pool: _Text | None = None


class RoundsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many of the newest."""

    limit: Annotated[int, Meta(ge=1, le=500)] = 20


class CostQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`period` is today, month (this one), a day or a month; `by` as in `gpuwatch cost --by`."""

    period: Annotated[str, Meta(pattern=r"^(today|month|[0-9]{4}-[0-9]{2}(-[0-9]{2})?)" + _END)] = "month"
    by: Annotated[
        str,
        Meta(
            pattern=r"^(pool|cloud|provider|owner|account|node|type|region|capacity|day|tag:.+)" + _END, max_length=200
        ),
    ] = "pool"


class TimelineQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many hours back."""

    hours: Annotated[int, Meta(ge=1, le=24)] = 24


class _Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody asks for; the reason is on record, and read by others on pages, in mails and on terminals."""

    reason: Annotated[str, Meta(max_length=500, pattern=_PLAIN)] = ""

    def __post_init__(self) -> None:
        """Nothing that cannot be seen, such as marks that turn the direction of what follows."""
        if not self.reason.isprintable():
            raise ValueError("`reason` holds a character that cannot be seen")


class PauseOrder(_Order, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pool: null for all. Seconds: null until somebody resumes it."""

    pool: _Text | None = None
    seconds: Annotated[float, Meta(gt=0, le=_YEAR_SECONDS)] | None = None


class AcknowledgeOrder(_Order, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Pool: null for all."""

    pool: _Text | None = None


class SnoozeOrder(_Order, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """For how long; the pool's max_snooze at most."""

    seconds: Annotated[float, Meta(gt=0, le=_YEAR_SECONDS)]


class ApproveOrder(_Order, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Notice: the key of the one that was looked at; without it, whichever is in force."""

    notice: _Text | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What went wrong, as a sentence."""

    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Who asks. `why_not` is why this user may not pause and resume."""

    user: str | None
    may_act: bool
    why_not: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsPage:
    """The answer on all pools."""

    at: datetime
    pools: tuple[PoolRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPool:
    """What a round decided for a pool: `held` are counts by reason, `reviews` what was to change, with all answers."""

    pool: str
    target: int | None
    clamps: tuple[str, ...]
    held: dict[str, int]
    reviews: tuple[Review, ...]
    unit: str = "nodes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPage:
    """The answer on a past round."""

    id: int
    at: datetime
    nodes: int
    enforce: bool
    pools: tuple[PastPool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostSum:
    """Billed, what of it was seen and of no use (wasted), and of what nobody knows the use (unproven).

    Money is null where no price is known. `foreign_…` is of machines that are not ours, and in no other figure; numbers
    of machines are null by the day.
    """

    gpu_hours: float
    machine_hours: float
    usd: Decimal | None
    usd_wasted: Decimal | None
    usd_unproven: Decimal | None
    usd_waste_ratio: float | None
    waste_ratio: float | None
    unproven_ratio: float | None
    unpriced_machine_hours: float
    unpriced_machines: int | None
    usd_foreign: Decimal | None
    foreign_machine_hours: float
    foreign_gpu_hours: float
    foreign_unpriced_machine_hours: float
    foreign_machines: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostGroup(CostSum):
    """One part of it."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPage:
    """What was billed in [since, until), as far as it was metered. `scope` is which machines count (`cost.scope`)."""

    since: datetime
    until: datetime
    timezone: str
    scope: CostScope
    metered_since: datetime | None
    by: str
    groups: tuple[CostGroup, ...]
    total: CostSum


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressPage:
    """The first weeks of metering against the last ones; null while less than two weeks are metered."""

    progress: ProgressDocument | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PausesPage:
    """The pauses in force at this moment."""

    pauses: tuple[Pause, ...]
