"""Plays spot recordings under the mixed policy and jobs with deadlines, and prints each figure beside its goal.

`python -m benchmarks.spot [DIRECTORY] [--starts N] [--live-days N] [--batch-starts N] [--batch-from SHARE]`. Six
tables: the policy's rules alone, minute by minute; the same on every choice of two or more zones of a recording with
more, the worst of each; the controller itself (its rounds, guard and ledger over a cloud that is played) on the first
days of each recording; eight policies for comparison; jobs; the controller with a pool that has such a job. The
recordings are not part of the repository; DIRECTORY is $GPUWATCH_TRACES, else ../shared/traces, and
spot_availability.csv.gz in it is read (`trace, zone, t_s, nodes_up`: how many of the nodes wanted there were up).
Boot 4 minutes, notice 2, spot at 0.40 of on demand; a move of a job takes 10 minutes. The bound is every spot node
that exists, used at once, with free moves; the omniscient job is a dynamic programme that knows the recording. `even`
places nodes where the pool has fewest.
"""

import argparse
import csv
import gzip
import os
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations
from math import ceil, inf
from pathlib import Path
from statistics import fmean

from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.runtime.table import align_rows
from gpuwatch.simulate.spot import job
from gpuwatch.simulate.spot.fleet import Played, Terms, lower_bound, play
from gpuwatch.simulate.spot.live import play_live
from gpuwatch.simulate.spot.live_batch import play_batch
from gpuwatch.simulate.spot.recording import STEP_SECONDS, Recording

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "traces"
_FILE = "spot_availability.csv.gz"
_NODES = {1: (2, 4), 4: (4,), 16: (4, 16)}  # by the nodes wanted when it was recorded
_WORK_MINUTES = 720
_DEAREST, _ALL_WORK, _MEAN = 1.10, 0.98, 0.99  # the goals: cost of the bound, shares of the time
_POOL_TITLES = (
    *("recording", "zones", "nodes", "bound", "cost/bound", "all work", "mean"),
    *("lost/day", "even", "failed/day", "goals"),
)
_LIVE_TITLES = ("controller", "days", "nodes", "cost/bound", "rules alone", *_POOL_TITLES[5:8], "failed/day", "goals")
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
    for name, recording, nodes in _fleets(found):
        least = lower_bound(recording, nodes, terms)
        mixed = play(recording, nodes, MixRules(), terms, name)
        even = play(recording, nodes, MixRules(spread="zones"), terms, name)
        yield (
            name,
            str(len(recording.nodes)),
            str(nodes),
            f"{least:.3f}",
            f"{mixed.cost_ratio / least:.3f}",
            f"{mixed.full_ratio:.1%}",
            f"{mixed.working_ratio:.1%}",
            f"{mixed.interruptions_per_node_day:.2f}",
            f"{even.interruptions_per_node_day:.2f}",
            f"{mixed.failed_launches_per_day:.0f}",
            _missed(mixed, even, least, len(recording.nodes)),
        )


def _choices(found: dict[str, Recording]) -> Iterator[tuple[str, ...]]:
    """Zones left out: the worst of all fleets that have so many zones."""
    yield ("zones left", "nodes", "fleets", "cost/bound", "all work", "mean", "lost/even", "failed/day", "goals")
    terms = Terms()
    for _, recording, nodes in _fleets(found):
        for count in range(2, len(recording.nodes)):
            chosen = [recording.only(each) for each in combinations(sorted(recording.nodes), count)]
            # Where every zone has one node a fleet has no more nodes than zones: the rest would be on demand for ever.
            if nodes > count and max(map(max, recording.nodes.values())) == 1:
                continue
            least = [lower_bound(each, nodes, terms) for each in chosen]
            mixed = [play(each, nodes, MixRules(), terms, "") for each in chosen]
            even = [play(each, nodes, MixRules(spread="zones"), terms, "") for each in chosen]
            missed = {
                goal
                for own, other, each in zip(mixed, even, least, strict=True)
                for goal in _missed(own, other, each, count).split(", ")
            } - {"met"}
            yield (
                str(count),
                str(nodes),
                str(len(chosen)),
                f"{max(own.cost_ratio / each for own, each in zip(mixed, least, strict=True)):.3f}",
                f"{min(own.full_ratio for own in mixed):.1%}",
                f"{min(own.working_ratio for own in mixed):.1%}",
                f"{max(_lost(own) / _lost(other) for own, other in zip(mixed, even, strict=True)):.3f}",
                f"{max(own.failed_launches_per_day for own in mixed):.0f}",
                ", ".join(sorted(missed)) or "met",
            )


def _lost(played: Played) -> float:
    return max(1e-9, played.interruptions_per_node_day)


def _live(found: dict[str, Recording], days: float) -> Iterator[tuple[str, ...]]:
    """The controller on the first days of each recording; its people are told a minute ahead, the least there is."""
    yield _LIVE_TITLES
    terms, rules = Terms(), MixRules(give_back_notice=60.0)
    for name, whole, nodes in _fleets(found):
        recording = whole.first(round(days * 1440))
        least = lower_bound(recording, nodes, terms)
        live, alone = play_live(recording, nodes, rules, terms, name), play(recording, nodes, rules, terms, name)
        even = play(recording, nodes, MixRules(spread="zones"), terms, name)
        yield (
            name,
            f"{recording.days:.0f}",
            str(nodes),
            f"{live.cost_ratio / least:.3f}",
            f"{alone.cost_ratio / least:.3f}",
            f"{live.full_ratio:.1%}",
            f"{live.working_ratio:.1%}",
            f"{live.interruptions_per_node_day:.2f}",
            f"{live.failed_launches_per_day:.0f}",
            _missed(live, even, least, len(recording.nodes)),
        )


def _missed(played: Played, even: Played, least: float, zones: int) -> str:
    """The goals that one play misses."""
    met = {
        "cost": played.cost_ratio / least <= _DEAREST,
        "all work": played.full_ratio >= _ALL_WORK,
        "mean": played.working_ratio >= _MEAN,
        "lost": played.interruptions_per_node_day <= even.interruptions_per_node_day * 1.05,
        "failed": played.failed_launches_per_day <= 80 * max(1.0, zones / 3),
    }
    return ", ".join(f"{goal} missed" for goal, reached in met.items() if not reached) or "met"


def _policies(found: dict[str, Recording]) -> Iterator[tuple[str, ...]]:
    """Cost of on demand, and the time with all nodes at work, of each policy."""
    titles = ("recording", "nodes", "bound", "best zone", "even, no fallback", "30 % on demand", "even", "even +1")
    yield (*titles, "gpuwatch", "gpuwatch +1")
    terms = Terms()
    for name, recording, nodes in _fleets(found):
        mixes = {
            "none": MixRules(spread="zones", fallback_after=inf),
            "fixed": MixRules(on_demand_base=ceil(0.3 * nodes), fallback_after=inf),
            "even": MixRules(spread="zones"),
            "even +1": MixRules(spread="zones", over_provision=1),
            "own": MixRules(),
            "own +1": MixRules(over_provision=1),
        }
        zones = [play(recording.only([zone]), nodes, MixRules(), terms, zone) for zone in recording.nodes]
        played = [min(zones, key=lambda each: each.cost_ratio)]
        played += [play(recording, nodes, mix, terms, each) for each, mix in mixes.items()]
        least = lower_bound(recording, nodes, terms)
        yield (name, str(nodes), f"{least:.3f}", *(f"{each.cost_ratio:.3f} {each.full_ratio:.1%}" for each in played))


def _fleets(found: dict[str, Recording]) -> Iterator[tuple[str, Recording, int]]:
    for name, recording in found.items():
        for nodes in _NODES[int(name.split("-")[1])]:
            yield name, recording, nodes


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


def _batches(found: dict[str, Recording], starts: int, first: float) -> Iterator[tuple[str, ...]]:
    """The controller with `interruptible: batch` and one node, on the same windows as the rule of one job."""
    yield ("work of the time", "controller", "rule alone", "missed", "jobs", "goal")
    rooms = [[count > 0 for count in room] for recording in found.values() for room in recording.nodes.values()]
    boot_and_lost = Terms(lost_minutes=6)
    for share, goal in _SHARES.items():
        terms = job.JobTerms(work_minutes=_WORK_MINUTES, allowed_minutes=round(_WORK_MINUTES / share))
        windows = [window for room in rooms for window in _windows(room, terms.allowed_minutes, starts, first)]
        least = [job.optimum_hours(window, terms) for window in windows]
        alone = [job.play([window], terms, job.RULES["wait for spot"]) for window in windows]
        live = [
            play_batch(
                Recording(minutes=len(window), nodes={"a": [int(each) for each in window]}),
                1,
                terms,
                boot_and_lost,
                MixRules(give_back_notice=60.0),
            )
            for window in windows
        ]
        mean, of_rule = (
            fmean(each.cost_hours / best for each, best in zip(played, least, strict=True)) for played in (live, alone)
        )
        missed = sum(each.missed for each in live)
        met = "met" if mean <= goal and not missed else "missed"
        yield (f"{share:.2f}", f"{mean:.3f}", f"{of_rule:.3f}", str(missed), str(len(windows)), f"<= {goal} {met}")


def _windows(room: list[bool], minutes: int, starts: int, first: float = 0.0) -> Iterator[list[bool]]:
    last = len(room) - minutes
    skipped = int(last * first)
    for number in range(starts if last > 0 else 0):
        begin = skipped + (last - skipped) * number // max(1, starts - 1)
        yield room[begin : begin + minutes]


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spot", description="Spot on recordings.")
    parser.add_argument("directory", nargs="?", type=Path, default=Path(os.environ.get("GPUWATCH_TRACES", _DEFAULT)))
    parser.add_argument("--live-days", type=float, default=1.0, help="days that the controller itself plays (1)")
    parser.add_argument("--starts", type=int, default=8, help="of jobs, in each zone (8)")
    parser.add_argument(
        "--batch-starts", type=int, default=1, help="of jobs that the controller plays, in each zone (1)"
    )
    parser.add_argument(
        "--batch-from", type=float, default=0.0, help="where in each recording the first of those begins, 0 to 1 (0)"
    )
    arguments = parser.parse_args()
    if not (arguments.directory / _FILE).is_file():
        print(f"{arguments.directory / _FILE} is not there; set GPUWATCH_TRACES")
        return 0
    found = recordings(arguments.directory)
    print("\n".join(align_rows(list(_pools(found)))))
    print("\n".join(["", *align_rows(list(_choices(found)))]))
    print("\n".join(["", *align_rows(list(_live(found, arguments.live_days)))]))
    print("\n".join(["", *align_rows(list(_policies(found)))]))
    print("\n".join(["", *align_rows(list(_jobs(found, arguments.starts)), left=(1,))]))
    print("\n".join(["", *align_rows(list(_batches(found, arguments.batch_starts, arguments.batch_from)))]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
