"""How much of something over time: amounts, windows and periods, in the notation of the lives.

An amount is a number with an optional k, M, G or T (thousands; of bytes for most). Durations are like 10s, 15m, 2h,
1d; a minus puts a moment before the beginning of the life. Examples: `0.5`, `2M from 1h to 3h`,
`6M every 15m for 10s`, `1M every 1h for 5s from 30m`. A list is the sum of its parts.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(-?)((?:\d+(?:\.\d+)?[smhd])+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_FACTORS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([kMGT]?)")
_WORDS = ("every", "for", "from", "to")


class LifeError(ValueError):
    """A life is not written as the README says; the text names the place and what is expected."""


def duration(text: object) -> float:
    """Seconds of a text like `1h30m`; a plain 0 is allowed.

    Raises:
        LifeError: it is no duration.

    """
    if text == 0:
        return 0.0
    found = _DURATION.fullmatch(str(text))
    if found is None:
        raise LifeError(f"{text!r} is no duration; expected something like 90s, 15m, 2h or -1d")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(found[2]))
    return -seconds if found[1] else seconds


def amount(text: object) -> float:
    """A number like 0.5, 900k, 2M or 20G.

    Raises:
        LifeError: it is no such number.

    """
    found = _AMOUNT.fullmatch(str(text))
    if found is None:
        raise LifeError(f"{text!r} is no amount; expected something like 0.5, 900k, 2M or 20G")
    return float(found[1]) * _FACTORS[found[2]]


def moments(text: object, until: float) -> tuple[float, ...]:
    """Moments in a list like `[-2m, 1h, every 20m from 2h to 5h]`.

    Raises:
        LifeError: an entry is neither a moment nor a period.

    """
    found: list[float] = []
    for entry in text if isinstance(text, list) else [text]:
        words = str(entry).split()
        if words[0] != "every":
            found.append(duration(entry))
            continue
        terms = _terms(words, entry)
        period, end = terms["every"], min(until, terms.get("to", until))
        begin = terms.get("from", 0.0)
        found += [begin + period * number for number in range(int(max(0.0, end - begin) / period) + 1)]
    return tuple(sorted(found))


def _terms(words: Sequence[str], whole: object) -> dict[str, float]:
    """The pairs of a word and a duration."""
    if len(words) % 2 or any(word not in _WORDS for word in words[::2]):
        raise LifeError(f"{whole!r}: expected pairs of {', '.join(_WORDS)} and a duration")
    return dict(zip(words[::2], map(duration, words[1::2]), strict=True))


@dataclass(frozen=True, slots=True)
class Part:
    """A constant rate in a window, all the time or `length` seconds of each `period`."""

    rate: float
    begin: float = -math.inf
    end: float = math.inf
    period: float = math.inf
    length: float = math.inf

    def at(self, moment: float) -> float:
        """The rate at a moment."""
        if not self.begin <= moment < self.end:
            return 0.0
        if math.isinf(self.period):
            return self.rate
        return self.rate if (moment - self.begin) % self.period < self.length else 0.0

    def on_seconds(self, first: float, last: float) -> float:
        """For how long it was on between two moments."""
        first, last = max(first, self.begin), min(last, self.end)
        if last <= first:
            return 0.0
        if math.isinf(self.period):
            return last - first
        return self._since_begin(last - self.begin) - self._since_begin(first - self.begin)

    def _since_begin(self, seconds: float) -> float:
        turns, rest = divmod(seconds, self.period)
        return turns * self.length + min(rest, self.length)

    def changes(self, first: float, last: float) -> Iterator[float]:
        """When it goes on or off between two moments."""
        for each in (self.begin, self.end):
            if first <= each <= last:
                yield each
        if math.isfinite(self.period):
            number = max(0, math.floor((first - self.begin) / self.period))
            while (on := self.begin + number * self.period) <= min(last, self.end):
                yield on
                yield on + self.length
                number += 1


@dataclass(frozen=True, slots=True)
class Rate:
    """A sum of parts."""

    parts: tuple[Part, ...] = ()

    def __bool__(self) -> bool:
        """Whether there ever is any."""
        return bool(self.parts)

    def at(self, moment: float) -> float:
        """The rate at a moment."""
        return sum(part.at(moment) for part in self.parts)

    def total(self, first: float, last: float) -> float:
        """The integral between two moments."""
        return sum(part.rate * part.on_seconds(first, last) for part in self.parts)

    def peak(self, first: float, last: float) -> float:
        """The highest rate between two moments, of any of its parts."""
        return max((part.rate for part in self.parts if part.on_seconds(first, last) > 0.0), default=0.0)

    def changes(self, first: float, last: float) -> Iterator[float]:
        """When it changes between two moments."""
        for part in self.parts:
            yield from part.changes(first, last)

    def shifted(self, seconds: float) -> "Rate":
        """The same, later."""
        return Rate(
            tuple(
                Part(each.rate, each.begin + seconds, each.end + seconds, each.period, each.length)
                for each in self.parts
            )
        )


def rate(text: object) -> Rate:
    """A rate in the notation of the lives.

    Raises:
        LifeError: it is none.

    """
    if text is None:
        return Rate()
    entries = text if isinstance(text, list) else [text]
    return Rate(tuple(part for part in map(_part, entries) if part.rate > 0.0))


def _part(entry: object) -> Part:
    first, *words = str(entry).split()
    terms = _terms(words, entry)
    if ("every" in terms) is not ("for" in terms):
        raise LifeError(f"{entry!r}: `every` and `for` come together")
    period = terms.get("every", math.inf)
    begin = terms.get("from", 0.0 if math.isfinite(period) else -math.inf)
    return Part(amount(first), begin, terms.get("to", math.inf), period, terms.get("for", math.inf))
