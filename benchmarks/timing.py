"""Plays the idle gaps of real recordings through every way of waiting and prints idle cost over the offline optimum.

`python -m benchmarks.timing [DIRECTORY] [--gaps N]`. The recordings are not part of the repository; DIRECTORY is
$GPUWATCH_TRACES, else ../shared/traces. A trace is one pool of nodes. A gap lies between two busy intervals of a node;
what follows the last one is learned from and not scored, as its end is not known. From the recordings:

- pods: a node is a pod, busy where its duty is above 0; after a hole of five minutes it is another node.
- endpoints: a node is a model, busy while a request of it runs.
- earth, ranks, openb: only the sum is recorded. Node k of a cluster (or virtual cluster) works while k nodes do (or
  8 k GPUs rounded up); openb's last forty days.
- pack, spread: busy intervals as they stand there.

Of earth the GPUs that jobs wait for are recorded too; it is played once more with that queue known. With more that a
scheduler knows, as `idle.hints`, three are played again: the free GPUs of busy nodes (earth, openb), and
the requests of the last hour (endpoints).

`prefix` is the most that learned had paid at any moment of a trace, over break-even's bill of that moment: a trace that
ends there would have cost so much. It is never above 1.05.

`live` is learned with a round a minute, no notice in the first minute, and none of grace: nobody is at these nodes.
The profile `balanced` is played the same way as it stands: fixed waits until a pool is known and in each node's first
pause, then a minute of grace. It is scored from the first minute, and from when the pool is known.
"""

import argparse
import csv
import gzip
import math
import os
import sys
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout import facts
from gpuwatch.policies.idle_timeout.gap_history import ENOUGH_DAYS, ENOUGH_PAUSES
from gpuwatch.simulate.backtest import pool_rules
from gpuwatch.simulate.backtest.replay import Recorded, cost, learned_waits, live_waits, optimum

Spans = list[tuple[float, float]]
Queue = Callable[[str, float], float | None]
Hints = Callable[[str, float], Mapping[str, float]]

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "traces"
_DAY = 86400.0
_MINUTES = (2, 5, 10, 20)
_FIXED = {"5m": 300.0, "10m": 600.0, "30m": 1800.0, "24h": _DAY}
_GOALS = {"learned": 1.27, "live": 1.35}
_GOAL_BALANCED = 1.35
_GOAL_HINTS = 1.26
_GOAL_PREFIX = 1.05
_GOAL_MINUTES = 10
_HOUR = 3600.0
_HINTED = ("endpoints", "earth", "openb")


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as lines:
        yield from csv.DictReader(lines)


def _merged(spans: Iterable[tuple[float, float]]) -> Spans:
    """Without overlaps and touches."""
    merged: Spans = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return [span for span in merged if span[1] > span[0]]


def _ranks(changes: Iterable[tuple[float, int]], prefix: str) -> dict[str, Spans]:
    """One node for each level that a count reaches, busy while it is that high."""
    spans: dict[str, Spans] = defaultdict(list)
    since: list[float] = []
    at = 0.0
    for at, level in changes:
        while len(since) < level:
            since.append(at)
        while len(since) > level:
            begin = since.pop()
            spans[f"{prefix}{len(since) + 1}"].append((begin, at))
    for rank, begin in enumerate(since, start=1):
        spans[f"{prefix}{rank}"].append((begin, at))
    return {name: _merged(each) for name, each in spans.items()}


def _pods(source: Path) -> dict[str, Spans]:
    samples: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in _rows(source / "genai26_pod_gpu.csv.gz"):
        samples[row["pod"]].append((float(row["t_s"]), float(row["gpu_duty_pct"])))
    spans: dict[str, Spans] = defaultdict(list)
    for pod, rows in samples.items():
        life = 0
        for (at, duty), (following, _) in pairwise([*sorted(rows), (math.inf, 0.0)]):
            hole = following - at > 300
            if duty > 0:
                spans[f"{pod}.{life}"].append((at, at + 57 if hole else following))
            life += hole
    return {name: _merged(each) for name, each in spans.items()}


def _endpoints(source: Path) -> dict[str, Spans]:
    spans: dict[str, Spans] = defaultdict(list)
    for row in _rows(source / "genai26_requests.csv.gz"):
        begin = float(row["t_s"])
        spans[row["model"]].append((begin, begin + max(1.0, float(row["exec_s"] or 1))))
    return {name: _merged(each) for name, each in spans.items()}


def _earth(source: Path) -> dict[str, Spans]:
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for row in _rows(source / "helios_earth_vc_occupancy.csv.gz"):
        changes[row["vc"]].append((float(row["t_s"]), math.ceil(int(row["running_gpus"]) / 8)))
    return {name: each for vc, rows in changes.items() for name, each in _ranks(rows, f"{vc}/").items()}


def _queue(source: Path) -> Queue:
    """For how long GPUs have been waited for in the virtual cluster of one of earth's nodes, at a time."""
    times, since = defaultdict[str, list[float]](list), defaultdict[str, list[float | None]](list)
    for row in sorted(_rows(source / "helios_earth_vc_occupancy.csv.gz"), key=lambda row: float(row["t_s"])):
        vc, at = row["vc"], float(row["t_s"])
        before = since[vc][-1] if since[vc] else None
        times[vc].append(at)
        since[vc].append(None if int(row["pending_gpus"]) == 0 else at if before is None else before)

    def queued(node: str, at: float) -> float | None:
        vc = node.partition("/")[0]
        last = bisect_right(times[vc], at) - 1
        begun = since[vc][last] if last >= 0 else None
        return None if begun is None else at - begun

    return queued


def _active(source: Path) -> dict[str, Spans]:
    rows = _rows(source / "philly_active_nodes.csv.gz")
    return _ranks([(float(row["t_s"]), level) for row in rows if (level := int(row["active_nodes"]))], "")


def _openb(source: Path) -> dict[str, Spans]:
    return _ranks([(at, math.ceil(level / 8000)) for at, level in _openb_levels(source)], "")


def _openb_levels(source: Path) -> list[tuple[float, int]]:
    """How many thousandths of GPUs are in use."""
    rows = [row for row in _rows(source / "openb23_pods.csv.gz") if row["sched_s"]]
    end = max(float(row["delete_s"]) for row in rows)
    changes: dict[float, int] = defaultdict(int)
    for row in rows:
        if float(row["delete_s"]) > end - 40 * _DAY:
            share = int(row["gpus"]) * int(row["gpu_milli"])
            changes[max(end - 40 * _DAY, float(row["sched_s"]))] += share
            changes[float(row["delete_s"])] -= share
    level, result = 0, []
    for at in sorted(changes)[:-1]:
        level += changes[at]
        result.append((at, level))
    return result


def _philly(name: str) -> Callable[[Path], dict[str, Spans]]:
    def read(source: Path) -> dict[str, Spans]:
        spans: dict[str, Spans] = defaultdict(list)
        for row in _rows(source / f"philly_node_busy_{name}.csv.gz"):
            spans[f"{row['vc']}/{row['node']}"].append((float(row["busy_from_s"]), float(row["busy_to_s"])))
        return {node: _merged(each) for node, each in spans.items()}

    return read


TRACES: Mapping[str, Callable[[Path], dict[str, Spans]]] = {
    "pods": _pods,
    "endpoints": _endpoints,
    "earth": _earth,
    "ranks": _active,
    "pack": _philly("pack"),
    "spread": _philly("spread"),
    "openb": _openb,
}


def gaps_of(nodes: Mapping[str, Spans], most: int) -> list[Recorded]:
    """The first gaps of a trace, in order of their begin; a node's last one is open to the trace's end."""
    found = [
        Recorded(node_id=name, begin=before[1], end=after[0])
        for name, spans in nodes.items()
        for before, after in pairwise(spans)
    ]
    end = max(spans[-1][1] for spans in nodes.values())
    found += [
        Recorded(node_id=name, begin=spans[-1][1], end=end, needed=False)
        for name, spans in nodes.items()
        if spans[-1][1] < end and "." not in name  # a pod that is away may be gone
    ]
    return sorted(found, key=lambda gap: (gap.begin, gap.node_id))[:most]


def _hints(source: Path, name: str) -> Hints:
    """What a scheduler or gateway knows of a trace, at a time."""
    changes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    word = "hint free GPUs"
    if name == "earth":
        for row in _rows(source / "helios_earth_vc_occupancy.csv.gz"):
            changes[row["vc"]].append((float(row["t_s"]), -int(row["running_gpus"]) % 8))
    elif name == "openb":
        changes[""] = [(at, -level % 8000 / 1000) for at, level in _openb_levels(source)]
    else:
        word = "hint requests"
        begins = sorted(float(row["t_s"]) for row in _rows(source / "genai26_requests.csv.gz"))
        count = 0
        for at, change in sorted([(at, 1) for at in begins] + [(at + _HOUR, -1) for at in begins]):
            count += change
            changes[""].append((at, count))
    times = {group: [at for at, _ in sorted(rows)] for group, rows in changes.items()}
    values = {group: [value for _, value in sorted(rows)] for group, rows in changes.items()}

    def known(node: str, when: float) -> Mapping[str, float]:
        group = node.partition("/")[0] if name == "earth" else ""
        last = bisect_right(times[group], when) - 1
        return {word: facts.count(values[group][last])} if last >= 0 else {}

    return known


def _ratios(
    gaps: Sequence[Recorded], restart: float, queued: Queue | None, hints: Hints | None = None
) -> tuple[dict[str, float], int, float]:
    """Each policy's cost over the optimum, and the restarts and the optimum's seconds of the learned one."""
    waited = learned_waits(gaps, restart, queued=queued, hints=hints)
    live = live_waits(gaps, waited, 0.0, learned=True)
    scored = [(gap, wait) for gap, wait in zip(gaps, waited, strict=True) if gap.needed]
    stopped = [stop for gap, stop in zip(gaps, live, strict=True) if gap.needed]
    rows = [gap for gap, _ in scored]
    best = optimum(rows, restart)

    def of(wait: float) -> float:
        return cost(rows, [wait] * len(rows), restart).seconds / best

    learned = cost(rows, [wait for _, wait in scored], restart)
    hindsight = min(of(wait) for wait in (0.0, *(15 * 2 ** (step / 4) for step in range(60))))
    ratios = {name: of(wait) for name, wait in _FIXED.items()}
    ratios |= {"even": of(restart), "learned": learned.seconds / best}
    ratios |= {"live": cost(rows, stopped, restart).seconds / best, "hindsight": hindsight}
    ratios |= {"prefix": worst_prefix(gaps, waited, restart)}
    return ratios, learned.restarts, best


def worst_prefix(gaps: Sequence[Recorded], waited: Sequence[float], restart: float) -> float:
    """The largest ratio of what was paid under these waits to what break-even paid, of all moments."""
    changes: dict[float, list[tuple[int, float, float]]] = defaultdict(list)  # by policy: of its rent, and at once
    for gap, wait in zip(gaps, waited, strict=True):
        for policy, seconds in enumerate((wait, restart)):
            stopped = gap.seconds > seconds
            changes[gap.begin].append((policy, 1.0, 0.0))
            changes[gap.begin + min(seconds, gap.seconds)].append((policy, -1.0, 0.0))
            changes[gap.end].append((policy, 0.0, restart * (stopped and gap.needed)))
    paid, rent, worst, before = [0.0, 0.0], [0.0, 0.0], 0.0, 0.0
    for at in sorted(changes):
        paid = [each + rate * (at - before) for each, rate in zip(paid, rent, strict=True)]
        worst, before = max(worst, paid[0] / paid[1] if paid[1] else 0.0), at
        for policy, rate, once in changes[at]:
            rent[policy] += rate
            paid[policy] += once
        worst = max(worst, paid[0] / paid[1] if paid[1] else 0.0)
    return worst


def main() -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("GPUWATCH_TRACES", _DEFAULT))
    parser.add_argument("directory", type=Path, nargs="?", default=default, help="where the recordings are")
    parser.add_argument("--gaps", type=int, default=20000, metavar="N", help="of each trace at most (20000)")
    arguments = parser.parse_args()
    if not arguments.directory.is_dir():
        print(f"no recordings in {arguments.directory}; name their directory, or set GPUWATCH_TRACES")
        return 0
    traces = {name: gaps_of(read(arguments.directory), arguments.gaps) for name, read in TRACES.items()}
    queued = _queue(arguments.directory)
    for minutes in _MINUTES:
        means = _table(traces, minutes * 60.0)
        if minutes == _GOAL_MINUTES:
            _goals(arguments.directory, traces, means, minutes * 60.0)
        ratios, _, _ = _ratios(traces["earth"], minutes * 60.0, queued)
        print(f"earth, its queue known: learned {ratios['learned']:.3f}", flush=True)
    return 0


def _goals(
    source: Path, traces: Mapping[str, Sequence[Recorded]], means: Mapping[str, Mapping[str, float]], restart: float
) -> None:
    """Each figure beside its goal."""
    for name, goal in _GOALS.items():
        mean = math.exp(sum(math.log(each[name]) for each in means.values()) / len(means))
        print(f"{name} {mean:.3f}, goal {goal:.2f}: {'reached' if mean < goal + 0.0005 else 'missed'}")
    worst = max(each["prefix"] for each in means.values())
    print(f"worst moment of any trace {worst:.3f} of break-even, goal {_GOAL_PREFIX}: ", end="")
    print("reached" if worst < _GOAL_PREFIX + 0.0005 else "missed")
    _balanced(traces, restart)
    hinted = {name: ratios["learned"] for name, ratios in means.items()}
    for name in _HINTED:
        hinted[name] = _ratios(traces[name], restart, None, _hints(source, name))[0]["learned"]
    mean = math.exp(sum(map(math.log, hinted.values())) / len(hinted))
    words = ", ".join(f"{name} {hinted[name]:.3f}" for name in _HINTED)
    print(f"learned with hints {mean:.3f} ({words}), goal {_GOAL_HINTS}: ", end="")
    print("reached" if mean < _GOAL_HINTS + 0.0005 else "missed", flush=True)


def _balanced(traces: Mapping[str, Sequence[Recorded]], restart: float) -> None:
    """The profile, from its first minute and once the pool is known."""
    rules, whole, known = IdleRules(), dict[str, float](), dict[str, float]()
    for name, gaps in traces.items():
        waited = learned_waits(gaps, restart, fresh=pool_rules.fresh(rules))
        live = live_waits(gaps, waited, rules.unattended_grace_period, learned=True)
        rows = [(gap, stop) for gap, stop in zip(gaps, live, strict=True) if gap.needed]
        ends = sorted(gap.end for gap, _ in rows)
        since = max(gaps[0].begin + ENOUGH_DAYS * _DAY, ends[min(ENOUGH_PAUSES, len(ends)) - 1])
        for scored, found in ((rows, whole), ([row for row in rows if row[0].begin >= since], known)):
            if scored:
                paid = cost([gap for gap, _ in scored], [stop for _, stop in scored], restart).seconds
                found[name] = paid / optimum([gap for gap, _ in scored], restart)
    for found, when in ((whole, "from the first minute"), (known, "once the pool is known")):
        mean = math.exp(sum(map(math.log, found.values())) / len(found))
        words = ", ".join(f"{name} {ratio:.3f}" for name, ratio in found.items())
        said = "reached" if mean < _GOAL_BALANCED + 0.0005 else "missed"
        print(f"balanced, live, {when} {mean:.3f} ({words}), goal {_GOAL_BALANCED}: {said}", flush=True)


def _table(traces: Mapping[str, Sequence[Recorded]], restart: float) -> Mapping[str, Mapping[str, float]]:
    """One restart's cost: a line for each trace, and the geometric means."""
    print(f"\nidle cost over the optimum, a restart costs {restart / 60:.0f} min of rental")
    means: dict[str, float] = defaultdict(float)
    found: dict[str, Mapping[str, float]] = {}
    begun = time.perf_counter()
    for name, gaps in traces.items():
        ratios, restarts, _ = _ratios(gaps, restart, None)
        found[name] = ratios
        days = (max(gap.end for gap in gaps) - gaps[0].begin) / _DAY * len({gap.node_id for gap in gaps})
        if not means:
            print("  ".join(f"{title:>9}" for title in ("trace", *ratios, "restarts per node-day")))
        print("  ".join([f"{name:>9}", *(f"{ratio:9.3f}" for ratio in ratios.values()), f"{restarts / days:9.2f}"]))
        for each, ratio in ratios.items():
            means[each] += math.log(ratio) / len(traces)
    print("  ".join([f"{'geo. mean':>9}", *(f"{math.exp(mean):9.3f}" for mean in means.values())]), flush=True)
    print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)
    return found


if __name__ == "__main__":
    sys.exit(main())
