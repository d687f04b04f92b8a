"""Plays spot recordings under the mixed policy and jobs with deadlines, and prints each figure beside its goal.

`python -m benchmarks.spot [DIRECTORY] [--starts N]`. The recordings are not part of the repository; DIRECTORY is
$GPUWATCH_TRACES, else ../shared/traces, and spot_availability.csv.gz in it is read (`trace, zone, t_s, nodes_up`: how
many of the nodes wanted there were up). Boot 4 minutes, notice 2, spot at 0.40 of on demand; a move of a job takes 10
minutes. The bound is every spot node that exists, used at once, with free moves; the omniscient job is a dynamic
programme that knows the recording. `even` places nodes where the pool has fewest.
"""

import argparse
import csv
import gzip
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.runtime.table import aligned
from gpuwatch.simulate.spot import job
from gpuwatch.simulate.spot.fleet import Terms, bound, play
from gpuwatch.simulate.spot.recording import STEP_SECONDS, Recording

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "traces"
_FILE = "spot_availability.csv.gz"
_NODES = {1: (2, 4), 4: (4,), 16: (4, 16)}  # by the nodes wanted when it was recorded
_WORK_MINUTES = 720
_POOL_TITLES = (
    *("recording", "zones", "nodes", "bound", "cost/bound", "all work", "mean"),
    *("lost/day", "even", "failed/day", "goals"),
)
_SHARES = {0.5: 1.07, 0.65: 1.07, 0.8: 1.07, 0.9: 1.10}  # work of the time allowed, and the goal


def recordings(source: Path) -> dict[str, Recording]:
    """The recordings, by name; zones are offers."""
    points: dict[str, dict[str, list[tuple[float, int]]]] = defaultdict(lambda: defaultdict(list))
    with gzip.open(source / _FILE, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            points[row["trace"]][row["zone"]].append((float(row["t_s"]), int(row["nodes_up"])))
    return {name: _recording(zones) for name, zones in sorted(points.items())}


def _recording(zones: dict[str, list[tuple[float, int]]]) -> Recording:
    minutes = int(max(each[-1][0] for each in zones.values()) // STEP_SECONDS)
    return Recording(minutes=minutes, nodes={zone: list(_counts(each, minutes)) for zone, each in zones.items()})


def _counts(points: list[tuple[float, int]], minutes: int) -> Iterator[int]:
    index, count = 0, 0
    for minute in range(minutes):
        while index < len(points) and points[index][0] <= minute * STEP_SECONDS:
            count, index = points[index][1], index + 1
        yield count


def _pools(found: dict[str, Recording]) -> Iterator[tuple[str, ...]]:
    yield _POOL_TITLES
    terms = Terms()
    for name, recording in found.items():
        for nodes in _NODES[int(name.split("-")[1])]:
            least = bound(recording, nodes, terms)
            mixed = play(recording, nodes, MixRules(), terms, name)
            even = play(recording, nodes, MixRules(spread="zones"), terms, name)
            ratio, lost = mixed.cost_ratio / least, mixed.interruptions_per_node_day
            met = {
                "cost": ratio <= 1.10,
                "all work": mixed.full_ratio >= 0.98,
                "mean": mixed.working_ratio >= 0.99,
                "lost": lost <= even.interruptions_per_node_day * 1.05,
                "failed": mixed.failed_launches_per_day <= 80 * max(1.0, len(recording.nodes) / 3),
            }
            yield (
                name,
                str(len(recording.nodes)),
                str(nodes),
                f"{least:.3f}",
                f"{ratio:.3f}",
                f"{mixed.full_ratio:.1%}",
                f"{mixed.working_ratio:.1%}",
                f"{lost:.2f}",
                f"{even.interruptions_per_node_day:.2f}",
                f"{mixed.failed_launches_per_day:.0f}",
                ", ".join(f"{goal} missed" for goal, reached in met.items() if not reached) or "met",
            )


def _jobs(found: dict[str, Recording], starts: int) -> Iterator[tuple[str, ...]]:
    yield ("work of the time", "rule", "cost/omniscient", "9 of 10 below", "missed", "jobs", "goal")
    rooms = [[count > 0 for count in room] for recording in found.values() for room in recording.nodes.values()]
    for share, goal in _SHARES.items():
        terms = job.JobTerms(work_minutes=_WORK_MINUTES, allowed_minutes=int(_WORK_MINUTES / share))
        windows = [window for room in rooms for window in _windows(room, terms.allowed_minutes, starts)]
        least = [job.optimum_hours(window, terms) for window in windows]
        for name, rule in job.RULES.items():
            played = [job.play([window], terms, rule) for window in windows]
            ratios = sorted(each.cost_hours / best for each, best in zip(played, least, strict=True))
            mean, missed = fmean(ratios), sum(each.missed for each in played)
            met = "met" if mean <= goal and not missed else "missed"
            yield (
                f"{share:.2f}",
                name,
                f"{mean:.3f}",
                f"{ratios[int(0.9 * len(ratios))]:.2f}",
                str(missed),
                str(len(ratios)),
                f"<= {goal} {met}" if rule is job.RULES["wait for spot"] else "",
            )


def _windows(room: list[bool], minutes: int, starts: int) -> Iterator[list[bool]]:
    last = len(room) - minutes
    for number in range(starts if last > 0 else 0):
        begin = last * number // max(1, starts - 1)
        yield room[begin : begin + minutes]


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spot", description="Spot on recordings.")
    parser.add_argument("directory", nargs="?", type=Path, default=Path(os.environ.get("GPUWATCH_TRACES", _DEFAULT)))
    parser.add_argument("--starts", type=int, default=8, help="of jobs, in each zone (8)")
    arguments = parser.parse_args()
    if not (arguments.directory / _FILE).is_file():
        print(f"{arguments.directory / _FILE} is not there; set GPUWATCH_TRACES")
        return 0
    found = recordings(arguments.directory)
    print("\n".join(aligned(list(_pools(found)))))
    print("\n".join(["", *aligned(list(_jobs(found, arguments.starts)), left=(1,))]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
