"""What a scheduler or gateway knew at each moment of a recording, as the hints that a pool would have of it.

A hint is one number of a whole pool, so each is summed over the recording's virtual clusters.

- openb: GPUs that are free on nodes at work, and GPUs that pods wait for: both are known of every pool in Kubernetes.
- earth: the same, of jobs.
- pack, spread: GPUs that are free on nodes at work, and jobs at work that began within ten minutes.
- endpoints: the requests of the last hour.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from benchmarks.recorded import Spans, read_rows
from gpuwatch.policies.idle_timeout import facts
from gpuwatch.policies.idle_timeout.hazard import HINT

Hints = Callable[[str, float], Mapping[str, float]]
HINTED = ("endpoints", "earth", "pack", "spread", "openb")

_FREE, _PENDING = f"{HINT}free_gpus", f"{HINT}kubernetes_pending"
_HOUR, _LATELY = 3600.0, 600.0
_GPUS = 8  # of a node


class _Level:
    """A number that changes at known moments."""

    def __init__(self, changes: Iterable[tuple[float, float]]) -> None:
        """Of (time, by how much)."""
        sums: dict[float, float] = defaultdict(float)
        for at, change in changes:
            sums[at] += change
        self._times, self._levels, level = sorted(sums), list[float](), 0.0
        for at in self._times:
            level += sums[at]
            self._levels.append(round(level, 6))

    def at(self, when: float) -> float:
        last = bisect_right(self._times, when) - 1
        return self._levels[last] if last >= 0 else 0.0


def hints_of(source: Path, trace: str, nodes: Mapping[str, Spans]) -> Hints:
    """The hints of a trace, by node (all have the same) and time."""
    if trace == "endpoints":
        begins = [float(row["t_s"]) for row in read_rows(source / "genai26_requests.csv.gz")]
        levels = {f"{HINT}requests": _spans((at, at + _HOUR, 1.0) for at in begins)}
        return _told({name: level.at for name, level in levels.items()})
    if trace in {"pack", "spread"}:
        return _told(_philly(source, nodes))
    return _told(_openb(source) if trace == "openb" else _earth(source))


def _told(numbers: Mapping[str, Callable[[float], float]]) -> Hints:
    return lambda _node, at: {name: facts.count(number(at)) for name, number in numbers.items()}


def _spans(spans: Iterable[tuple[float, float, float]]) -> _Level:
    """How much is there, of (begin, end, amount)."""
    return _Level(change for begin, end, much in spans for change in ((begin, much), (end, -much)))


def _openb(source: Path) -> Mapping[str, Callable[[float], float]]:
    pods = [
        (float(row["create_s"]), float(row["sched_s"] or row["delete_s"]), float(row["delete_s"]), _share(row))
        for row in read_rows(source / "openb23_pods.csv.gz")
    ]
    used = _spans((placed, end, gpus) for _, placed, end, gpus in pods)
    waiting = _spans((made, placed, gpus) for made, placed, _, gpus in pods)
    return {_FREE: lambda at: -used.at(at) % _GPUS, _PENDING: waiting.at}


def _share(row: Mapping[str, str]) -> float:
    return int(row["gpus"]) * int(row["gpu_milli"]) / 1000


def _earth(source: Path) -> Mapping[str, Callable[[float], float]]:
    free, pending, last = list[tuple[float, float]](), list[tuple[float, float]](), dict[str, tuple[int, int]]()
    for row in sorted(read_rows(source / "helios_earth_vc_occupancy.csv.gz"), key=lambda row: float(row["t_s"])):
        now = (-int(row["running_gpus"]) % _GPUS, int(row["pending_gpus"]))
        before = last.get(row["vc"], (0, 0))
        free.append((float(row["t_s"]), now[0] - before[0]))
        pending.append((float(row["t_s"]), now[1] - before[1]))
        last[row["vc"]] = now
    return {_FREE: _Level(free).at, f"{HINT}jobs_pending": _Level(pending).at}


def _philly(source: Path, nodes: Mapping[str, Spans]) -> Mapping[str, Callable[[float], float]]:
    jobs = [
        (begin, begin + float(row["duration_s"]), float(row["gpus"]))
        for row in read_rows(source / "philly_jobs.csv.gz")
        if (begin := float(row["arrive_s"])) >= 0
    ]
    used, lately = _spans(jobs), _spans((begin, min(end, begin + _LATELY), 1.0) for begin, end, _ in jobs)
    at_work = _spans((begin, end, float(_GPUS)) for spans in nodes.values() for begin, end in spans)
    return {_FREE: lambda at: max(0.0, at_work.at(at) - used.at(at)), f"{HINT}jobs_begun": lately.at}
