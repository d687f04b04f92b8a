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
EVENLY = ", evenly"  # ends the names of the tables of rule 3
_SLOTS = BINS + 1  # one for all bins, one for each
_AHEAD = (0, *(_SLOTS,) * 3, *(2 * _SLOTS,) * (BINS - 4))
_CLASS = 3 * _SLOTS
_KEEP = 1 - 1 / 1000
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
    """Counts of each bin, faded; of each fact the logarithms of its factors, and how much was learned about each."""

    reached: tuple[float, ...] = (0.0,) * BINS
    ended: tuple[float, ...] = (0.0,) * BINS
    weights: dict[str, list[float]] = field(default_factory=dict)
    learned: dict[str, list[float]] = field(default_factory=dict)


def bin_of(restarts: float) -> int:
    """The bin of an age in restarts; BINS: past all of them."""
    return bisect_right(EDGES, restarts) - 1


def taught(hazard: Hazard, asked: Sequence[Asked], first: int, last: int, *, ended: bool) -> Hazard:
    """The hazard after a gap passed the bins from `first` up to, not with, `last`, and ended in `last` if it ended."""
    stop = min(BINS, last + 1 if ended else last)
    if stop <= first:
        return hazard
    reached, ends = list(hazard.reached), list(hazard.ended)
    tables = {table for each in asked for name, at in each.facts.items() for table, _, _ in _terms(name, at)}
    weights = hazard.weights | {table: list(hazard.weights.get(table) or _empty(table)) for table in tables}
    learned = hazard.learned | {table: list(hazard.learned.get(table) or _empty(table)) for table in tables}
    for number in range(first, stop):
        end = ended and number == last
        base = _base(reached, ends, number)
        for each in asked:
            if each.bin <= number:
                _teach(weights, learned, each, number, base, end)
        reached[number] = reached[number] * _KEEP + 1
        ends[number] = ends[number] * _KEEP + end
    return Hazard(reached=tuple(reached), ended=tuple(ends), weights=weights, learned=learned)


def chances(hazard: Hazard, asked: Asked) -> list[float]:
    """For each bin from that of the decision on, the chance that a gap that reached it ends in it."""
    bins = range(asked.bin, BINS)
    odds = [_base(hazard.reached, hazard.ended, number) for number in bins]
    for name, at in asked.facts.items():
        for table, place, part in _terms(name, at):
            if (known := hazard.weights.get(table)) is not None:
                for ahead, number in enumerate(bins):
                    slot = place + _AHEAD[ahead]
                    odds[ahead] += part * (known[slot] + known[slot + 1 + number])
    return [1 / (1 + math.exp(-each)) for each in odds]


def factors(hazard: Hazard, asked: Asked) -> dict[str, float]:
    """By what each fact multiplies the odds of a return in the bin after the decision's."""
    ahead = min(1, BINS - 1 - asked.bin)
    own, found = 1 + asked.bin + ahead, {}
    for name, at in asked.facts.items():
        if name in hazard.weights:
            slots = [(hazard.weights[table], place + _AHEAD[ahead], part) for table, place, part in _terms(name, at)]
            found[name] = math.exp(sum(part * (known[slot] + known[slot + own]) for known, slot, part in slots))
    return found


def _empty(table: str) -> list[float]:
    """Weights of a fact's classes, or those of rule 3."""
    return [0.0] * (_CLASS if table.endswith(EVENLY) else CLASSES * _CLASS)


@lru_cache(maxsize=8192)
def _terms(name: str, at: float) -> tuple[tuple[str, int, float], ...]:
    """The tables of weights that a fact uses, where in each its weights begin, and its part in them."""
    lower, upper = int(at), at % 1
    terms = [(name, lower * _CLASS, 1 - upper)]
    if upper:
        terms.append((name, (lower + 1) * _CLASS, upper))
    if name in NUMBERS or name.startswith(HINT):
        terms.append((name + EVENLY, 0, _STEEPEST * (at - _MIDDLE)))
    return tuple(terms)


def _base(reached: Sequence[float], ended: Sequence[float], number: int) -> float:
    """The log odds that a gap ends in a bin, whatever the facts."""
    chance = (ended[number] + _STRENGTH * _PRIOR[number]) / (reached[number] + _STRENGTH)
    chance = min(max(chance, 1e-4), 1 - 1e-4)
    return math.log(chance / (1 - chance))


def _teach(
    weights: dict[str, list[float]],
    learned: dict[str, list[float]],
    asked: Asked,
    number: int,
    base: float,
    ended: bool,
) -> None:
    """One bin's outcome into the factors of one decision: a diagonal Newton step of logistic regression."""
    ahead, own, terms = _AHEAD[number - asked.bin], 1 + number, []
    for name, at in asked.facts.items():
        for table, begin, part in _terms(name, at):
            known, place = weights[table], begin + ahead
            base += part * (known[place] + known[place + own])
            terms.append((known, learned[table], place, part))
    chance = 1 / (1 + math.exp(-base))
    missed, spread = chance - ended, chance * (1 - chance)
    for known, sure, place, part in terms:
        slope, more = part * missed, part * part * spread
        for slot in (place, place + own):
            steady = sure[slot] = sure[slot] * _KEEP + more
            known[slot] -= _RATE * (slope + _SHRINK * known[slot]) / (_STEADY + steady)


def best_stop(chances: Sequence[float], age: float, margin: float) -> float:
    """The age in restarts, from `age` on, at which to stop is expected to cost least; `chances` from its bin on.

    It is break-even's, or `age` past it, unless another saves at least `margin` of a restart. Ends are spread evenly
    over a bin.
    """
    left, paid, best, least, begin = 1.0, 0.0, age, 1.0, age
    even = 1.0 if age >= 1 else math.inf
    for number, chance in enumerate(chances, start=BINS - len(chances)):
        end = EDGES[number + 1]
        ends = chance * (end - begin) / (end - EDGES[number])
        paid += left * (end - begin) * (1 - ends / 2)
        left *= 1 - ends
        begin = end
        if end == 1:
            even = paid + left
        if paid + left < least:
            best, least = end, paid + left
    return best if least < even - margin else max(age, 1.0)
