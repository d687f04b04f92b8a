"""Metric families (name, type, labels, help, and where the value comes from) and histograms since the process began.

A histogram's buckets are classic ones. Prometheus reads native ones from its binary format alone, which
prometheus-client does not write; `convert_classic_histograms_to_nhcb` of a scrape makes native ones of these.
"""

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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


INFO = "info"
HISTOGRAM = "histogram"
CERTIFICATE = "gpuwatch_tls_certificate_expires_timestamp_seconds"  # of agents and controllers alike
CERTIFICATE_HELP = (
    "Unix time at which the certificate in force of a setting ends; of a list of CAs, the first. Absent where none is."
)
LOGINS_HELP = (
    "Requests refused with a user and a password: wrong (401), limited (429, not looked at after too many wrong ones), "
    "busy (503, too many at a time)."
)
_BASE = ("seconds", "bytes", "ratio", "watts", "joules", "celsius", "hertz", "usd")
UNITS = (*_BASE, "bytes_per_second", "usd_per_hour", "usd_per_week", "seconds_per_week")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric: full name as a query writes it, its type, its labels in order, and where its value comes from.

    `group` is what it can be switched off with; empty where it is always there, as with the controller's.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()
    help: str
    source: str
    group: str = ""

    @property
    def unit(self) -> str:
        """The unit that the name ends in; empty where it counts things."""
        name = self.name.removesuffix("_total")
        return max((unit for unit in UNITS if name.endswith(f"_{unit}")), key=len, default="")

    @property
    def series(self) -> dict[str, tuple[str, ...]]:
        """The names of its samples with their labels: its own, or those of a histogram's parts."""
        if self.kind != HISTOGRAM:
            return {self.name: self.labels}
        bucket = {f"{self.name}{BUCKET}": (*self.labels, LE)}
        return bucket | {f"{self.name}{part}": self.labels for part in (COUNT, SUM)}


def table_md(families: Iterable[Family]) -> Iterator[str]:
    """The lines of a page's table."""
    yield "| name | type | labels | unit | what | from |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for family in families:
        labels = " ".join(f"`{label}`" for label in family.labels)
        cells = (f"`{family.name}`", family.kind, labels, family.unit, family.help, family.source)
        yield f"| {' | '.join(cells)} |"
