"""PURE: how likely an idle node is to be needed soon, estimated from gaps that ended and from gaps that are still open.

Rules, all of them:

1. Time since a node turned idle is cut into bins, each one and a half times the length of all before it.
2. A table counts, for each bin, how many gaps reached its begin and are known beyond it, and how many ended inside. A
   gap that is still open, or was lost from sight, counts in the bins that it is known to have passed and in no other.
3. Older gaps fade: a bin remembers about the last 400 that reached it.
4. What a table has not seen it takes from the more general table above it, as if that were eight gaps of its own; the
   most general takes it from a hazard of one over the age, under which break-even's wait is the best.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

_FIRST_SECONDS = 15.0
_GROWTH = 1.5
_BINS = 28  # to ten days
EDGES = (0.0, *(_FIRST_SECONDS * _GROWTH**power for power in range(_BINS)))
_KEEP = 1 - 1 / 400
_STRENGTH = 8.0
_WORTH = 0.02

# Under a hazard of one over the age, what is left after a bin is its begin over its end; of the first bin, half.
PRIOR = tuple(0.5 if begin == 0 else 1 - begin / end for begin, end in pairwise(EDGES))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Faded counts for each bin: gaps known to have ended in it or passed it, and of those the ones that ended."""

    reached: tuple[float, ...] = (0.0,) * _BINS
    ended: tuple[float, ...] = (0.0,) * _BINS


def bin_of(seconds: float) -> int:
    """The bin that an age lies in; what is longer than all lies in the last."""
    return min(bisect_right(EDGES, seconds), _BINS) - 1


def counted(table: Table, first: int, last: int, *, ended: bool) -> Table:
    """The table after a gap passed the bins from `first` up to, not with, `last`, and ended in `last` if it ended."""
    stop = last + 1 if ended else last
    if stop <= first:
        return table
    reached, ends = list(table.reached), list(table.ended)
    for number in range(first, stop):
        reached[number] = reached[number] * _KEEP + 1
        ends[number] *= _KEEP
    if ended:
        ends[last] += 1
    return Table(reached=tuple(reached), ended=tuple(ends))


def chances(tables: Sequence[Table]) -> tuple[float, ...]:
    """For each bin, the chance that a gap that reached it ends in it; the tables from the most general one down."""
    known = PRIOR
    for table in tables:
        known = tuple(
            (ended + _STRENGTH * above) / (reached + _STRENGTH)
            for ended, reached, above in zip(table.ended, table.reached, known, strict=True)
        )
    return known


def best_wait(chances: Sequence[float], restart: float, age: float, longest: float) -> float:
    """The idle seconds, from `age` to `longest`, at which reclaiming is expected to cost least.

    It is break-even's wait, or `age` past it, unless another saves at least a fiftieth of a restart.
    """
    costs = dict(_costs(chances, restart, age, longest))
    even, best = max(age, restart), min(costs, key=costs.__getitem__)
    return best if costs[best] < costs[even] - _WORTH * restart else even


def _costs(chances: Sequence[float], restart: float, age: float, longest: float) -> Iterator[tuple[float, float]]:
    """Each wait worth a thought, and the expected rental and restart from `age` on.

    Ends are spread evenly over a bin.
    """
    stops = sorted({age, max(age, longest), *(edge for edge in (*EDGES, restart) if age < edge < longest)})
    left, paid = 1.0, 0.0
    yield age, restart
    for begin, end in pairwise(stops):
        number = bin_of(begin)
        share = (end - begin) / (EDGES[number + 1] - EDGES[number]) if number + 1 < len(EDGES) else 0.0
        spent = (begin - EDGES[number]) / (EDGES[number + 1] - EDGES[number])
        ends = min(1.0, chances[number] * share / max(1e-12, 1 - chances[number] * spent))
        paid += left * (end - begin) * (1 - ends / 2)
        left *= 1 - ends
        yield end, paid + left * restart
