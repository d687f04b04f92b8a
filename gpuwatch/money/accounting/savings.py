"""PURE: what was saved by stopping and ending machines: how long each would have gone on, and what that would cost.

Rules, all of them:

1. A machine that gpuwatch stopped saves from when its cloud showed it stopped until somebody needed it: a start by
   gpuwatch that was wanted, or, where somebody else started it, when it was next billed. Time in which its cloud had no
   place for the start is no saving.
2. Rows of billed time are hours, or longer once these are sealed, so that somebody else's start is known to the row.
   Within it the latest time is taken at which what was billed can have begun; it is earlier where the next thing that
   gpuwatch did to the machine found it started since.
3. Nobody lets a machine idle for ever. One that nobody has needed saves for as long as its pool's machines have stayed
   off until they were needed, on the mean of the 90 days before the stop, if there were five such; and no stop saves
   for more than 30 days. After that it is still off, which is shown apart.
4. A termination of an idle machine saves by the same rule, until its pool launches the next one.
5. Where a stop has no known end - the machine was terminated by somebody else - nothing is counted for it.
6. The price is the machine's own, frozen with the stop, without the share that a commitment covers: that is paid in any
   case. Hours without a price are listed apart. Disks and addresses of a stopped machine were paid while it ran, too:
   they are shown, and not taken off.
7. A stop is regretted if its machine is needed again within a quarter of an hour: somebody waits while it starts. That
   wait has the price of its pool (`waiting_usd_per_hour`), and is taken off; so is the time for which its cloud had no
   place, of a working day at most. Savings may be less than nothing.
8. A stop that its cloud does not show as ours, or that nobody can prove to be, may have been somebody else's: it is
   counted apart, and is in no sum. A stop after which its cloud went on billing saves nothing; the termination does.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import islice, zip_longest
from operator import attrgetter

from gpuwatch.model.decision import Verb
from gpuwatch.model.usage import HOUR_MS
from gpuwatch.money.accounting.totals import NONE
from gpuwatch.policies.idle_timeout.break_even import REGRET_SECONDS

LONGEST_MS = 30 * 24 * HOUR_MS
HABIT_MS = 90 * 24 * HOUR_MS
ENOUGH = 5  # returns that make a habit
REGRET_MS = int(REGRET_SECONDS * 1000)
_WORKING_DAY_MS = 8 * HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """What it costs a pool's people when a machine comes back: how long a start takes, and the price of an hour."""

    restart_ms: int = 0
    usd_per_hour: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A stop, start, launch or termination that gpuwatch asked for and that was done `at` (ms since 1970).

    `proved` is whether nothing that its cloud said stands against gpuwatch's call as its cause. `ended_bill`: a stopped
    machine was no longer billed. `wanted` is when a
    start was asked for first, of those that were not carried out before it; None: when it was done. `launched` is when
    its cloud had last started the machine, as of when this was asked for; None: not known.
    """

    key: str
    node_id: str
    verb: Verb
    at: int
    pool: str
    owner: str | None
    usd_per_hour: Decimal | None
    proved: bool = True
    ended_bill: bool = True
    wanted: int | None = None
    launched: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """So much of a machine's time was billed between two moments; all in ms."""

    begin: int
    end: int
    billed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Off:
    """A stop or termination, and when the machine was next wanted or ended; `end` None: it is still off.

    `needed`: somebody wanted it then. `refused_ms`: for so long after that its cloud had no place for it.
    """

    turn: Turn
    end: int | None
    needed: bool = False
    refused_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offs:
    """Stops with a known end, those of them that may be somebody else's, and the number of stops without one."""

    known: tuple[Off, ...] = ()
    unproved: tuple[Off, ...] = ()
    endless: int = 0


@dataclass(slots=True, kw_only=True)
class Saving:
    """Time for which machines would have run, its money exact.

    `still_usd` is what their disks and addresses cost meanwhile, as they would have anyway. `waiting_usd` is what the
    people cost who waited for a machine that was stopped too soon. `off_ms` is time for which machines were still off
    after their saving had ended.
    """

    ms: int = 0
    unpriced_ms: int = 0
    gross_usd: Fraction = Fraction(0)
    still_usd: Fraction = Fraction(0)
    waiting_usd: Fraction = Fraction(0)
    off_ms: int = 0

    @property
    def usd(self) -> Fraction:
        """Return the net savings in US dollars."""
        return self.gross_usd - self.waiting_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What stops saved in a period. `still_known`: somebody has asked what stopped machines cost.

    `unproved` stops held for `unproved_ms` in it; that is in no sum.
    """

    whole: Saving = field(default_factory=Saving)
    by_pool: Mapping[str, Saving] = field(default_factory=dict)
    by_owner: Mapping[str, Saving] = field(default_factory=dict)
    stops: int = 0  # that had an effect within the period, terminations included
    terminations: int = 0
    regretted: int = 0  # stops whose machine was needed again too soon, or got no place, within the period
    still_off: int = 0  # stops whose saving had ended before the period did
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
    launches: dict[str, list[int]] = {}
    for turn in turns:
        if turn.verb is Verb.LAUNCH:
            launches.setdefault(turn.pool, []).append(turn.at)
        else:
            by_node.setdefault(turn.node_id, []).append(turn)
    known, unproved, ended, endless = list[Off](), list[Off](), list[Turn](), 0
    for node_id, in_order in by_node.items():
        before: Turn | None = None
        for turn, later in zip_longest(in_order, in_order[1:]):
            if turn.verb is Verb.TERMINATE and (before is None or before.verb is not Verb.STOP):
                ended.append(turn)
            before = turn if turn.ended_bill else None
            if turn.verb is not Verb.STOP or not turn.ended_bill:
                continue
            again = [_ran_again(turn.at, later, ran.get(node_id, ()), slack), _started_since(turn, later)]
            found = _off(turn, later, min((at for at in again if at is not None), default=None))
            if found.end is not None or turn.key in stopped:
                (known if turn.proved else unproved).append(found)
            else:
                endless += 1
    known += _terminations_with_end(ended, launches)
    return Offs(known=tuple(known), unproved=tuple(unproved), endless=endless)


def _off(turn: Turn, later: Turn | None, ran_at: int | None) -> Off:
    """A stop with its end, by the next turn or by what was billed."""
    if ran_at is not None or later is None:
        return Off(turn=turn, end=ran_at, needed=ran_at is not None)
    wanted = later.at if later.wanted is None else max(turn.at, min(later.wanted, later.at))
    starts = later.verb is Verb.START
    return Off(turn=turn, end=wanted, needed=starts, refused_ms=later.at - wanted if starts else 0)


def _terminations_with_end(ended: Iterable[Turn], launches: Mapping[str, Sequence[int]]) -> Iterator[Off]:
    """Rule 4: each launch of a pool takes the place that has been empty for the longest."""
    left = {pool: sorted(at) for pool, at in launches.items()}
    for turn in sorted(ended, key=lambda turn: (turn.at, turn.node_id)):
        coming = left.get(turn.pool, [])
        while coming and coming[0] < turn.at:
            coming.pop(0)
        yield Off(turn=turn, end=coming.pop(0) if coming else None)


def _started_since(turn: Turn, later: Turn | None) -> int | None:
    """When somebody else started the machine, as the next turn found it; None: it did not find that."""
    at = None if later is None else later.launched
    return at if later is not None and at is not None and turn.at < at < later.at else None


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


@dataclass(frozen=True, slots=True)
class Habits:
    """How long each pool's machines stayed off until they were needed, by when they were (both in ms), in order."""

    returns: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def longest(self, pool: str, at: int) -> int:
        """For how long a stop at that time saves at most (rule 3)."""
        found = self.returns.get(pool, ())
        first, past = (bisect_left(found, (moment, 0)) for moment in (at - HABIT_MS, at))
        lately = [length for _, length in found[first:past]]
        return min(LONGEST_MS, sum(lately) // len(lately)) if len(lately) >= ENOUGH else LONGEST_MS


def habits_of(found: Iterable[Off]) -> Habits:
    """What pools' stops show; a regretted one is no habit: somebody was still there."""
    returns: dict[str, list[tuple[int, int]]] = {}
    for off in found:
        if off.needed and off.end is not None and off.end - off.turn.at > REGRET_MS:
            returns.setdefault(off.turn.pool, []).append((off.end, min(LONGEST_MS, off.end - off.turn.at)))
    return Habits({pool: sorted(each) for pool, each in returns.items()})


def saves_until(off: Off, habits: Habits) -> int:
    """When a stop ends to save at the latest; a need that is known is later than a habit only within 30 days."""
    at = off.turn.at
    if off.needed and off.end is not None:
        return min(off.end, at + LONGEST_MS)
    limit = at + habits.longest(off.turn.pool, at)
    return limit if off.end is None else min(limit, off.end)


def savings_within(
    found: Offs,
    since: int,
    until: int,
    now: int,
    still_usd_per_hour: Mapping[str, Decimal] | None = None,
    waits: Callable[[str], Waits] = lambda _: Waits(),
) -> Saved:
    """What the stops saved in [since, until), and not after now; all in ms since 1970. `waits` is of each pool."""
    made, habits, still = Saved(still_known=still_usd_per_hour is not None), habits_of(found.known), still_usd_per_hour
    by_pool, by_owner, counts = dict[str, Saving](), dict[str, Saving](), [0, 0, 0, 0]
    for off in found.known:
        ends, limit = now if off.end is None else min(off.end, now), min(saves_until(off, habits), now)
        ms = max(0, min(limit, until) - max(off.turn.at, since))
        left = max(0, min(ends, until) - max(limit, since))
        waited_ms = _waiting_ms(off, since, min(until, now), waits(off.turn.pool))
        if not ms and not left and not waited_ms:
            continue
        seen = (ms > 0, ms > 0 and off.turn.verb is Verb.TERMINATE, waited_ms > 0, left > 0)
        counts = [count + each for count, each in zip(counts, seen, strict=True)]
        price, disks = off.turn.usd_per_hour, (still or {}).get(off.turn.node_id, Decimal(0))
        for each in (
            made.whole,
            by_pool.setdefault(off.turn.pool, Saving()),
            by_owner.setdefault(off.turn.owner or NONE, Saving()),
        ):
            each.ms += ms
            each.off_ms += left
            each.still_usd += Fraction(disks) * (ms + left) / HOUR_MS
            each.waiting_usd += Fraction(waits(off.turn.pool).usd_per_hour) * waited_ms / HOUR_MS
            if price is None:
                each.unpriced_ms += ms
            else:
                each.gross_usd += Fraction(price) * ms / HOUR_MS
    left_out = [ms for off in found.unproved if (ms := _ms_within(off, since, until, now)) > 0]
    return replace(
        made,
        by_pool=dict(sorted(by_pool.items())),
        by_owner=dict(sorted(by_owner.items())),
        endless=found.endless,
        unproved=len(left_out),
        unproved_ms=sum(left_out),
        stops=counts[0],
        terminations=counts[1],
        regretted=counts[2],
        still_off=counts[3],
    )


def saves_at(found: Offs, at: int) -> dict[str, Fraction]:
    """What the stops save an hour at that moment (ms since 1970), by pool, where the price is known."""
    habits, sums = habits_of(found.known), dict[str, Fraction]()
    for off in found.known:
        price = off.turn.usd_per_hour
        if price is not None and off.turn.at <= at < min(saves_until(off, habits), off.end or at + 1):
            sums[off.turn.pool] = sums.get(off.turn.pool, Fraction(0)) + Fraction(price)
    return dict(sorted(sums.items()))


def _waiting_ms(off: Off, since: int, until: int, waits: Waits) -> int:
    """For how long somebody waited for the machine (rule 7), if that began within the time."""
    if off.end is None or not off.needed or not since <= off.end < until:
        return 0
    soon = off.end - off.turn.at <= REGRET_MS
    return (waits.restart_ms if soon else 0) + min(off.refused_ms, _WORKING_DAY_MS)


def _ms_within(off: Off, since: int, until: int, now: int) -> int:
    """For how long a stop held in [since, until), and not after now; 0 or less: not at all."""
    ends = now if off.end is None else min(off.end, now)
    return min(ends, until) - max(off.turn.at, since)
