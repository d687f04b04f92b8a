"""PURE: how likely an idle node is to be needed soon: one hazard, and a factor for each fact.

Rules, all of them:

1. Idle time is counted in restarts' costs and cut into eleven bins up to four of them. Of each bin the hazard knows how
   many gaps reached its end or ended in it, older ones fading: about the last 1,000 count.
2. A fact about a node moves the odds of each coming bin by a factor. The factor depends on the fact's class, on how far
   ahead the bin is (this one, the next three, later) and on the bin. Between two classes it changes gradually.
3. Of some numbers, `NUMBERS` and hints, the odds besides rise or fall evenly over the scale: that is learned from few
   gaps, where each class by itself needs many.
4. Every bin that a gap passes or ends in teaches all earlier decisions of that gap, with the facts as they were then.
   Older lessons fade: of each factor about the last 1,000 count.
5. Of so many classes, whatever facts come and go, the factors are kept: those that were taught last.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

EDGES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0)
BINS = len(EDGES) - 1
CLASSES = 12
HINT = "hint "  # begins the names of the facts that users and schedulers give
NUMBERS = frozenset({"pace"})
MOST_ROWS = 400
_SLOTS = BINS + 1  # one for all bins, one for each
_AHEAD = (0, *(_SLOTS,) * 3, *(2 * _SLOTS,) * (BINS - 4))
_ROW = 3 * _SLOTS
_EMPTY = (0.0,) * 2 * _ROW
_KEEP = 1 - 1 / 1000
_ROUNDING = 1e-6  # in restarts
_STRENGTH = 8.0  # gaps' worth of a hazard of one over the age, under which break-even's wait is the best
_RATE, _STEADY, _SHRINK = (
    0.15,
    5.0,
    0.002,
)  # of diagonal Newton steps: their size, what damps the first ones, and the ridge
_MIDDLE, _STEEPEST = 2.0, 0.5  # of rule 3: the place on the scale that it leaves alone, and a class's weight in it
_PRIOR = (0.5, *(1 - begin / end for begin, end in list(pairwise(EDGES))[1:]))

Facts = Mapping[str, float]  # where each fact lies on its scale of classes, by its name


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One decision about a gap: in which bin, and with which facts."""

    bin: int
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """Counts of each bin, faded, and for each class of a fact the logarithms of its factors.

    A row has those first, then how much was learned about each. The row taught last is the last one.
    """

    reached: tuple[float, ...] = (0.0,) * BINS
    ended: tuple[float, ...] = (0.0,) * BINS
    rows: dict[str, list[float]] = field(default_factory=dict)


def bin_of(restarts: float) -> int:
    """The bin of an age in restarts; BINS: past all of them."""
    return bisect_right(EDGES, restarts + _ROUNDING) - 1


def taught(hazard: Hazard, asked: Sequence[Asked], first: int, last: int, *, ended: bool) -> Hazard:
    """The hazard after a gap passed the bins from `first` up to, not with, `last`, and ended in `last` if it ended."""
    stop = min(BINS, last + 1 if ended else last)
    if stop <= first:
        return hazard
    reached, ends, rows = list(hazard.reached), list(hazard.ended), dict(hazard.rows)
    terms = [(each.bin, _terms_of(each.facts)) for each in asked]
    touched = dict.fromkeys(row for _, each in terms for row, _ in each)
    rows |= {row: list(rows.pop(row, _EMPTY)) for row in touched}
    decisions = [(begin, [(rows[row], part) for row, part in each]) for begin, each in terms]
    for number in range(first, stop):
        end = ended and number == last
        base = _base(reached, ends, number)
        for begin, facts in decisions:
            if begin <= number:
                _teach(facts, _AHEAD[number - begin], number, base, end)
        reached[number] = reached[number] * _KEEP + 1
        ends[number] = ends[number] * _KEEP + end
    for row in list(rows)[: max(0, len(rows) - MOST_ROWS)]:
        del rows[row]
    return Hazard(reached=tuple(reached), ended=tuple(ends), rows=rows)


def chances(hazard: Hazard, asked: Asked) -> list[float]:
    """For each bin from that of the decision on, the chance that a gap that reached it ends in it."""
    known = [(row, part) for name, part in _terms_of(asked.facts) if (row := hazard.rows.get(name)) is not None]
    found = []
    for number in range(asked.bin, BINS):
        odds, slot = _base(hazard.reached, hazard.ended, number), _AHEAD[number - asked.bin]
        own = slot + 1 + number
        for row, part in known:
            odds += part * (row[slot] + row[own])
        found.append(1 / (1 + math.exp(-odds)))
    return found


def factors(hazard: Hazard, asked: Asked) -> dict[str, float]:
    """By what each fact multiplies the odds of a return in the bin after the decision's."""
    ahead = min(1, BINS - 1 - asked.bin)
    slot = _AHEAD[ahead]
    own = slot + 1 + asked.bin + ahead
    rows, found = hazard.rows, {}
    for name, at in asked.facts.items():
        odds = [part * (rows[row][slot] + rows[row][own]) for row, part in _terms(name, at) if row in rows]
        found[name] = math.exp(sum(odds))
    return found


def _terms_of(known: Facts) -> list[tuple[str, float]]:
    """The rows of all facts, and the part of each."""
    return [term for name, at in known.items() for term in _terms(name, at)]


@lru_cache(maxsize=16384)
def _terms(name: str, at: float) -> tuple[tuple[str, float], ...]:
    """The rows that a fact uses: those of the classes next to it, and that of rule 3."""
    lower, upper = int(at), at % 1
    terms = [(f"{lower} {name}", 1 - upper)]
    if upper:
        terms.append((f"{lower + 1} {name}", upper))
    if name in NUMBERS or name.startswith(HINT):
        terms.append((f"- {name}", _STEEPEST * (at - _MIDDLE)))
    return tuple(terms)


def _base(reached: Sequence[float], ended: Sequence[float], number: int) -> float:
    """The log odds that a gap ends in a bin, whatever the facts."""
    chance = (ended[number] + _STRENGTH * _PRIOR[number]) / (reached[number] + _STRENGTH)
    chance = min(max(chance, 1e-4), 1 - 1e-4)
    return math.log(chance / (1 - chance))


def _teach(facts: Sequence[tuple[list[float], float]], slot: int, number: int, base: float, ended: bool) -> None:
    """One bin's outcome into the factors of one decision: a diagonal Newton step of logistic regression."""
    own = slot + 1 + number
    for row, part in facts:
        base += part * (row[slot] + row[own])
    chance = 1 / (1 + math.exp(-base))
    missed, spread, learned, learned_own = chance - ended, chance * (1 - chance), _ROW + slot, _ROW + own
    for row, part in facts:  # written out for both places: nothing else runs as often
        slope, more = part * missed, part * part * spread
        row[learned] = steady = row[learned] * _KEEP + more
        row[slot] -= _RATE * (slope + _SHRINK * row[slot]) / (_STEADY + steady)
        row[learned_own] = steady = row[learned_own] * _KEEP + more
        row[own] -= _RATE * (slope + _SHRINK * row[own]) / (_STEADY + steady)


def best_stop(chances: Sequence[float], age: float, margin: float, *, waiting: float = 0.0, soon: float = 0.0) -> float:
    """The age in restarts, from `age` on, at which to stop is expected to cost least; `chances` from its bin on.

    It is break-even's, or `age` past it, unless another saves at least `margin` of a restart. Ends are spread evenly
    over a bin. A stop costs `waiting` restarts more if the gap ends within `soon` restarts after it.
    """
    ages, left = [age], [1.0]
    for number, chance in enumerate(chances, start=BINS - len(chances)):
        end = EDGES[number + 1]
        ages.append(end)
        left.append(left[-1] * (1 - chance * (end - ages[-2]) / (end - EDGES[number])))
    stops = (
        left if not waiting else [each + waiting * _ends_within(ages, left, at, soon) for at, each in enumerate(left)]
    )
    paid, best, least = 0.0, age, stops[0]
    even = least if age >= 1 else math.inf
    for number, (begin, end) in enumerate(pairwise(ages), start=1):
        paid += (end - begin) * (left[number - 1] + left[number]) / 2
        if end == 1:
            even = paid + stops[number]
        if paid + stops[number] < least:
            best, least = end, paid + stops[number]
    return best if least < even - margin else max(age, 1.0)


def _ends_within(ages: Sequence[float], left: Sequence[float], at: int, soon: float) -> float:
    """The chance that a gap is open at that age and ends so soon after it; past the bins it fades as in the last."""
    until = ages[at] + soon
    if until >= ages[-1]:
        fade = math.log(left[-2] / left[-1]) / math.log(ages[-1] / ages[-2]) if len(left) > 1 and ages[-2] else 1.0
        return left[at] - left[-1] * math.pow(ages[-1] / until, fade)
    number = bisect_right(ages, until)
    part = (until - ages[number - 1]) / (ages[number] - ages[number - 1])
    return left[at] - left[number - 1] - part * (left[number] - left[number - 1])
