"""Histograms: how often something took how long, since the process began.

Their buckets are classic ones. Prometheus reads native ones from its binary format alone, which prometheus-client does
not write; `convert_classic_histograms_to_nhcb` of a scrape makes native ones of these.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise

from gpuwatch.runtime.clock import Clock

LE = "le"
BUCKET, COUNT, SUM = "_bucket", "_count", "_sum"  # what the parts of a histogram add to its name


class Histogram:
    """Counts of observations by upper bound, for each set of labels. Any thread may observe and read."""

    def __init__(self, bounds: Sequence[float], series: Iterable[tuple[str, ...]] = ((),)) -> None:
        """Upper bounds in rising order, each below a million, without the infinite one. `series` begin at zero.

        Raises:
            ValueError: the bounds do not rise.

        """
        if not bounds or any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"the bounds of a histogram must rise: {tuple(bounds)}")
        self._bounds = tuple(bounds)
        self._texts = (*(repr(float(bound)) for bound in bounds), "+Inf")
        self._lock = threading.Lock()
        self._counts = {labels: [0] * len(self._texts) for labels in series}
        self._sums = dict.fromkeys(self._counts, 0.0)

    def observe(self, value: float, labels: tuple[str, ...] = ()) -> None:
        """Count one value; a bound counts it where it is at most that."""
        place = bisect_left(self._bounds, value)
        with self._lock:
            if labels not in self._counts:
                self._counts[labels], self._sums[labels] = [0] * len(self._texts), 0.0
            self._counts[labels][place] += 1
            self._sums[labels] += value

    @contextmanager
    def time_body(self, clock: Clock, labels: tuple[str, ...] = ()) -> Iterator[None]:
        """Count the seconds that the body takes, also where it raises an error."""
        begun = clock.monotonic()
        try:
            yield
        finally:
            self.observe(clock.monotonic() - begun, labels)

    def samples(self, name: str) -> Iterator[tuple[str, tuple[str, ...], float]]:
        """Every sample of a family of this name: buckets with `le` as their last label, the count, the sum."""
        with self._lock:
            held = [(labels, tuple(counts), self._sums[labels]) for labels, counts in self._counts.items()]
        for labels, counts, total in held:
            for text, so_far in zip(self._texts, accumulate(counts), strict=True):
                yield f"{name}{BUCKET}", (*labels, text), so_far
            yield f"{name}{COUNT}", labels, sum(counts)
            yield f"{name}{SUM}", labels, total
