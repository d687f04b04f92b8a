"""The idle gaps of real recordings: which nodes were at work when, and for how long work waited.

A trace is one pool of nodes. A gap lies between two busy intervals of a node; what follows the last one is learned from
and not scored, as its end is not known. From the recordings:

- pods: a node is a pod, busy where its duty is above 0; after a hole of five minutes it is another node.
- endpoints: a node is a model, busy while a request of it runs.
- earth, ranks, openb: only the sum is recorded. Node k of a cluster (or virtual cluster) works while k nodes do (or
  8 k GPUs rounded up); openb's last forty days.
- pack, spread: busy intervals as they stand there.
"""

import csv
import gzip
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from gpuwatch.simulate.backtest.replay import Recorded

Spans = list[tuple[float, float]]
Queue = Callable[[str, float], float | None]

DAY = 86400.0


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Of a packed CSV file."""
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
    for row in read_rows(source / "genai26_pod_gpu.csv.gz"):
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
    for row in read_rows(source / "genai26_requests.csv.gz"):
        begin = float(row["t_s"])
        spans[row["model"]].append((begin, begin + max(1.0, float(row["exec_s"] or 1))))
    return {name: _merged(each) for name, each in spans.items()}


def _earth(source: Path) -> dict[str, Spans]:
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for row in read_rows(source / "helios_earth_vc_occupancy.csv.gz"):
        changes[row["vc"]].append((float(row["t_s"]), math.ceil(int(row["running_gpus"]) / 8)))
    return {name: each for vc, rows in changes.items() for name, each in _ranks(rows, f"{vc}/").items()}


def queue(source: Path) -> Queue:
    """For how long GPUs have been waited for in the virtual cluster of one of earth's nodes, at a time."""
    times, since = defaultdict[str, list[float]](list), defaultdict[str, list[float | None]](list)
    for row in sorted(read_rows(source / "helios_earth_vc_occupancy.csv.gz"), key=lambda row: float(row["t_s"])):
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
    rows = read_rows(source / "philly_active_nodes.csv.gz")
    return _ranks([(float(row["t_s"]), level) for row in rows if (level := int(row["active_nodes"]))], "")


def _openb(source: Path) -> dict[str, Spans]:
    return _ranks([(at, math.ceil(level / 8000)) for at, level in _openb_levels(source)], "")


def _openb_levels(source: Path) -> list[tuple[float, int]]:
    """How many thousandths of GPUs are in use."""
    rows = [row for row in read_rows(source / "openb23_pods.csv.gz") if row["sched_s"]]
    end = max(float(row["delete_s"]) for row in rows)
    changes: dict[float, int] = defaultdict(int)
    for row in rows:
        if float(row["delete_s"]) > end - 40 * DAY:
            share = int(row["gpus"]) * int(row["gpu_milli"])
            changes[max(end - 40 * DAY, float(row["sched_s"]))] += share
            changes[float(row["delete_s"])] -= share
    level, result = 0, []
    for at in sorted(changes)[:-1]:
        level += changes[at]
        result.append((at, level))
    return result


def _philly(name: str) -> Callable[[Path], dict[str, Spans]]:
    def read(source: Path) -> dict[str, Spans]:
        spans: dict[str, Spans] = defaultdict(list)
        for row in read_rows(source / f"philly_node_busy_{name}.csv.gz"):
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
