"""What a simulated GPU is asked to do over time, as tables that are cheap to ask: a bisection each."""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate


class Intervals:
    """Times at which something holds: half-open intervals in seconds, merged and in order."""

    __slots__ = ("_sums", "begins", "ends")

    def __init__(self, intervals: Iterable[tuple[float, float]] = ()) -> None:
        """Merge what overlaps or touches; empty intervals vanish."""
        begins: list[float] = []
        ends: list[float] = []
        for begin, end in sorted(intervals):
            if end <= begin:
                continue
            if ends and begin <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                begins.append(begin)
                ends.append(end)
        self.begins, self.ends = begins, ends
        self._sums = [0.0, *accumulate(end - begin for begin, end in zip(begins, ends, strict=True))]

    def __iter__(self) -> Iterator[tuple[float, float]]:
        """Each interval in order."""
        return zip(self.begins, self.ends, strict=True)

    def end_of_interval(self, seconds: float) -> float | None:
        """The end of the interval that holds this moment; None if none does."""
        index = bisect_right(self.begins, seconds) - 1
        return self.ends[index] if index >= 0 and seconds < self.ends[index] else None

    def next(self, seconds: float) -> float | None:
        """The first moment from this one on at which it holds; None if it never does again."""
        if self.end_of_interval(seconds) is not None:
            return seconds
        index = bisect_left(self.begins, seconds)
        return self.begins[index] if index < len(self.begins) else None

    def overlap(self, begin: float, end: float) -> float:
        """How many of the seconds from `begin` to `end` it holds."""
        return self._start_of_cycle(end) - self._start_of_cycle(begin) if end > begin else 0.0

    def _start_of_cycle(self, seconds: float) -> float:
        index = bisect_right(self.begins, seconds) - 1
        if index < 0:
            return 0.0
        return self._sums[index] + min(seconds, self.ends[index]) - self.begins[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What a GPU does from `at` on, until its next phase."""

    at: float  # seconds from the start
    utilization_ratio: float = 0.0
    memory_bytes: int = 0
    processes: int | None = None  # None: one wherever there is load or memory held
    stalled: bool = False  # utilization at idle power and without memory traffic: a deadlock

    @property
    def process_count(self) -> int:
        """How many processes the driver would list."""
        if self.processes is not None:
            return self.processes
        return int(self.utilization_ratio > 0 or self.memory_bytes > 0)


class LoadProfile:
    """Phases in order; before the first the GPU rests. With a `period` they begin again after so many seconds."""

    __slots__ = ("_loads", "_period", "_phases", "_times", "_works")

    def __init__(self, phases: Sequence[Phase], period: float | None = None) -> None:
        """Take phases in the order of their times.

        Raises:
            ValueError: a phase does not begin after the one before it, or not within the period.

        """
        if not phases or phases[0].at > 0:
            phases = (Phase(at=0.0), *phases)
        self._phases = tuple(phases)
        self._times = [phase.at for phase in phases]
        self._period = period
        for before, after in zip(self._times, self._times[1:], strict=False):
            if after <= before:
                raise ValueError(f"a phase at {after:g} s follows one at {before:g} s; put them in order of time")
        if period is not None and period <= self._times[-1]:
            raise ValueError(f"it begins again after {period:g} s, before its last phase at {self._times[-1]:g} s")
        lengths = [after - before for before, after in zip(self._times, self._times[1:], strict=False)]
        self._loads = _sums(lengths, [phase.utilization_ratio for phase in phases])
        self._works = _sums(lengths, [0.0 if phase.stalled else phase.utilization_ratio for phase in phases])

    def phase_at(self, seconds: float) -> tuple[Phase, float]:
        """The phase in force, and until when it is."""
        offset = 0.0
        if self._period is not None:
            rounds, seconds = divmod(seconds, self._period)
            offset = rounds * self._period
        index = self._index(seconds)
        last = index + 1 == len(self._times)
        until = (math.inf if self._period is None else self._period) if last else self._times[index + 1]
        return self._phases[index], offset + until

    def load_seconds(self, begin: float, end: float) -> float:
        """Utilization summed over time."""
        return self._sum(self._loads, end, stalled=True) - self._sum(self._loads, begin, stalled=True)

    def work_seconds(self, begin: float, end: float) -> float:
        """Utilization that draws power, summed over time; a stalled phase draws none."""
        return self._sum(self._works, end, stalled=False) - self._sum(self._works, begin, stalled=False)

    def peak(self, begin: float, end: float) -> float:
        """The highest utilization from `begin` to `end`, both included."""
        if self._period is not None:
            if end - begin >= self._period:
                return max(phase.utilization_ratio for phase in self._phases)
            begin, end = begin % self._period, end % self._period
            if end < begin:
                return max(self._peak(begin, self._period), self._peak(0.0, end))
        return self._peak(begin, end)

    def phases(self, horizon: float) -> Iterator[tuple[float, Phase]]:
        """Each phase that begins before `horizon`, and when."""
        for number in itertools.count() if self._period is not None else (0,):
            offset = number * (self._period or 0.0)
            if offset >= horizon:
                return
            yield from ((offset + phase.at, phase) for phase in self._phases if offset + phase.at < horizon)

    def busy(self, horizon: float) -> Intervals:
        """When it computes, up to `horizon`."""
        period = horizon if self._period is None else self._period
        ends = [*self._times[1:], period]
        once = [(phase.at, end) for phase, end in zip(self._phases, ends, strict=True) if phase.utilization_ratio > 0]
        rounds = 1 if self._period is None else int(horizon // period) + 1
        moved = ((begin + i * period, min(end + i * period, horizon)) for i in range(rounds) for begin, end in once)
        return Intervals(moved)

    def _index(self, seconds: float) -> int:
        return max(0, bisect_right(self._times, seconds) - 1)

    def _peak(self, begin: float, end: float) -> float:
        first, last = self._index(begin), self._index(end)
        if first == last:
            return self._phases[first].utilization_ratio
        return max(phase.utilization_ratio for phase in self._phases[first : last + 1])

    def _sum(self, sums: Sequence[float], seconds: float, *, stalled: bool) -> float:
        """The sum from 0 on, of what counts."""
        whole = 0.0
        if self._period is not None:
            rounds, seconds = divmod(seconds, self._period)
            whole = rounds * self._sum_once(sums, self._period, stalled=stalled)
        return whole + self._sum_once(sums, seconds, stalled=stalled)

    def _sum_once(self, sums: Sequence[float], seconds: float, *, stalled: bool) -> float:
        index = self._index(seconds)
        phase = self._phases[index]
        ratio = phase.utilization_ratio if stalled or not phase.stalled else 0.0
        return sums[index] + ratio * (seconds - self._times[index])


def _sums(lengths: Sequence[float], ratios: Sequence[float]) -> list[float]:
    """What is summed up at the beginning of each phase."""
    return [0.0, *accumulate(length * ratio for length, ratio in zip(lengths, ratios, strict=False))]
