"""PURE: what was saved by stopping machines: how long each would have gone on, and what that would have cost.

Rules, all of them:

1. A machine that gpuwatch stopped saves from when its cloud showed it stopped until it next ran: a start or a
   termination by gpuwatch, or, where somebody else started it, when it was next billed. One that is still stopped
   saves until now.
2. Rows of billed time are hours, and days once these are sealed, so that somebody else's start is known to the row.
   Within it the latest time is taken at which what was billed can have begun.
3. Where a stop has no known end - the machine was terminated by somebody else - nothing is counted for it.
4. The price is the one frozen with the stop; hours without one are listed apart. What a stopped machine still costs by
   the hour, where it is known, is taken off.
5. A termination counts nothing here: how long the machine would have run is not known.
6. A stop that its cloud does not show as ours, or that nobody can prove to be, may have been somebody else's: it is
   counted apart, and is in no sum.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import islice, zip_longest
from operator import attrgetter

from gpuwatch.model.decision import Verb
from gpuwatch.model.usage import HOUR_MS
from gpuwatch.money.accounting.totals import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A stop, start or termination that gpuwatch asked for and that its cloud showed done `at` (ms since 1970).

    `proved` is whether nothing that its cloud said stands against gpuwatch's call as its cause.
    """

    key: str
    node_id: str
    verb: Verb
    at: int
    pool: str
    owner: str | None
    usd_per_hour: Decimal | None
    proved: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """So much of a machine's time was billed between two moments; all in ms."""

    begin: int
    end: int
    billed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
    """A stop and when the machine next ran; `end` None: still stopped."""

    turn: Turn
    end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offs:
    """Stops with a known end, those of them that may be somebody else's, and the number of stops without one."""

    known: tuple[Off, ...] = ()
    unproved: tuple[Off, ...] = ()
    endless: int = 0


@dataclass(slots=True, kw_only=True)
class Saving:
    """Time for which machines were stopped, its money exact; `still_usd` is what they cost meanwhile."""

    ms: int = 0
    unpriced_ms: int = 0
    gross_usd: Fraction = Fraction(0)
    still_usd: Fraction = Fraction(0)

    @property
    def usd(self) -> Fraction:
        """Return the net savings in US dollars."""
        return self.gross_usd - self.still_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What stops saved in a period. `still_known`: somebody has asked what stopped machines cost.

    `unproved` stops held for `unproved_ms` in it; that is in no sum.
    """

    whole: Saving = field(default_factory=Saving)
    by_pool: Mapping[str, Saving] = field(default_factory=dict)
    by_owner: Mapping[str, Saving] = field(default_factory=dict)
    stops: int = 0  # that had an effect within the period
    endless: int = 0
    unproved: int = 0
    unproved_ms: int = 0
    still_known: bool = False


def offs(turns: Iterable[Turn], ran: Mapping[str, Sequence[Ran]], stopped: frozenset[str], slack: int) -> Offs:
    """Every stop among the turns, with its end.

    Args:
        turns: in the order of time.
        ran: what was billed of each node that was stopped, in the order of time.
        stopped: the keys of stops that hold until now.
        slack: ms of billed time that say nothing: half of what lies between two rounds, which a stop may be billed on.

    """
    by_node: dict[str, list[Turn]] = {}
    for turn in turns:
        by_node.setdefault(turn.node_id, []).append(turn)
    known, unproved, endless = list[Off](), list[Off](), 0
    for node_id, in_order in by_node.items():
        for turn, later in zip_longest(in_order, in_order[1:]):
            if turn.verb is not Verb.STOP:
                continue
            end = _ran_again(turn.at, later, ran.get(node_id, ()), slack)
            if end is None and later is not None:
                end = later.at
            if end is not None or turn.key in stopped:
                (known if turn.proved else unproved).append(Off(turn=turn, end=end))
            else:
                endless += 1
    return Offs(known=tuple(known), unproved=tuple(unproved), endless=endless)


def _ran_again(stop: int, later: Turn | None, ran: Sequence[Ran], slack: int) -> int | None:
    """Rule 2: when somebody else started the machine before the next turn; None: no such start."""
    for row in islice(ran, bisect_right(ran, stop, key=attrgetter("end")), None):
        if later is not None and row.begin >= later.at:
            return None
        limit = row.end if later is None else min(row.end, later.at)
        # What was billed outside of the time between the two turns says nothing: before the stop, and after a start.
        outside = max(0, stop - row.begin)
        if later is not None and later.verb is Verb.START:
            outside += max(0, row.end - later.at)
        within = row.billed - outside
        if within > slack:
            return max(stop, limit - within)
    return None


def savings_within(
    found: Offs, since: int, until: int, now: int, still_usd_per_hour: Mapping[str, Decimal] | None = None
) -> Saved:
    """What the stops saved in [since, until), and not after now; all in ms since 1970."""
    whole, by_pool, by_owner, stops = Saving(), dict[str, Saving](), dict[str, Saving](), 0
    for off in found.known:
        ms = _ms_within(off, since, until, now)
        if ms <= 0:
            continue
        stops += 1
        price, still = off.turn.usd_per_hour, (still_usd_per_hour or {}).get(off.turn.node_id, Decimal(0))
        for each in (
            whole,
            by_pool.setdefault(off.turn.pool, Saving()),
            by_owner.setdefault(off.turn.owner or NONE, Saving()),
        ):
            each.ms += ms
            each.still_usd += Fraction(still) * ms / HOUR_MS
            if price is None:
                each.unpriced_ms += ms
            else:
                each.gross_usd += Fraction(price) * ms / HOUR_MS
    left_out = [ms for off in found.unproved if (ms := _ms_within(off, since, until, now)) > 0]
    return Saved(
        whole=whole,
        by_pool=dict(sorted(by_pool.items())),
        by_owner=dict(sorted(by_owner.items())),
        stops=stops,
        endless=found.endless,
        unproved=len(left_out),
        unproved_ms=sum(left_out),
        still_known=still_usd_per_hour is not None,
    )


def _ms_within(off: Off, since: int, until: int, now: int) -> int:
    """For how long a stop held in [since, until), and not after now; 0 or less: not at all."""
    ends = now if off.end is None else min(off.end, now)
    return min(ends, until) - max(off.turn.at, since)
