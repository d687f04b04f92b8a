"""Plays the idle gaps of real recordings through every way of waiting and prints idle cost over the offline optimum.

`python -m benchmarks.timing [DIRECTORY] [--gaps N]`. The recordings are not part of the repository; DIRECTORY is
$GPUWATCH_TRACES, else ../shared/traces. `benchmarks.recorded` says what they are.

`prefix` is the most that learned had paid at any moment of a trace, over break-even's bill of that moment: a trace that
ends there would have cost so much. It is never above 1.05.

`live` is learned with a round a minute, no notice in the first minute, and none of grace: nobody is at these nodes.
The profile `balanced` is played the same way as it stands: fixed waits until a pool is known and in each node's first
pause, then a minute of grace. It is scored from the first minute, and from when the pool is known.

What schedulers know is played, too: five traces with the hints of `benchmarks.hints`, and earth with its queue.
"""

import argparse
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import cache
from pathlib import Path
from statistics import geometric_mean

from benchmarks.figures import Figure, put, table
from benchmarks.hints import HINTED, hints_of
from benchmarks.recorded import DAY, TRACES, gaps_of, queue
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout.gap_history import ENOUGH_DAYS, ENOUGH_PAUSES
from gpuwatch.simulate.backtest import pool_rules
from gpuwatch.simulate.backtest.replay import Recorded, cost, learned_waits, live_waits, optimum

Ratios = Mapping[str, float]

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "traces"
_MINUTES = (10, 5, 20, 40)
_GOAL_MINUTES = 10
_FIXED = {"5m": 300.0, "10m": 600.0, "30m": 1800.0, "24h": DAY}
_GOALS = {5: 1.24, 10: 1.27, 20: 1.28, 40: 1.29}  # learned, of what agents and controller know themselves
_GOAL_HINTS, _GOAL_LIVE, _GOAL_PREFIX = 1.26, 1.35, 1.05


@cache
def _gaps(source: Path, trace: str, most: int) -> Sequence[Recorded]:
    return gaps_of(TRACES[trace](source), most)


def played(source: Path, most: int, trace: str, minutes: int, knows: str = "") -> Ratios:
    """Each policy's cost over the optimum, its `restarts` a node-day, and `prefix`; `knows` is "hints" or "queue"."""
    gaps, restart = _gaps(source, trace, most), minutes * 60.0
    queued = queue(source) if knows == "queue" else None
    hints = hints_of(source, trace, TRACES[trace](source)) if knows == "hints" else None
    waited = learned_waits(gaps, restart, queued=queued, hints=hints)
    live = live_waits(gaps, waited, 0.0, learned=True)
    scored = [(gap, wait, stop) for gap, wait, stop in zip(gaps, waited, live, strict=True) if gap.needed]
    rows = [gap for gap, _, _ in scored]
    best = optimum(rows, restart)

    def of(wait: float) -> float:
        return cost(rows, [wait] * len(rows), restart).seconds / best

    learned = cost(rows, [wait for _, wait, _ in scored], restart)
    days = (max(gap.end for gap in gaps) - gaps[0].begin) / DAY * len({gap.node_id for gap in gaps})
    return {name: of(wait) for name, wait in _FIXED.items()} | {
        "even": of(restart),
        "learned": learned.seconds / best,
        "live": cost(rows, [stop for _, _, stop in scored], restart).seconds / best,
        "hindsight": min(of(wait) for wait in (0.0, *(15 * 2 ** (step / 4) for step in range(60)))),
        "prefix": worst_prefix(gaps, waited, restart),
        "restarts": learned.restarts / days,
    }


def profile(source: Path, most: int, trace: str, minutes: int) -> Ratios:
    """The profile `balanced`, live: `first`, from the first minute; `known`, once the pool is, if it ever is."""
    gaps, restart, rules = _gaps(source, trace, most), minutes * 60.0, IdleRules()
    waited = learned_waits(gaps, restart, fresh=pool_rules.fresh(rules), waiting=pool_rules.waiting(rules, {}))
    live = live_waits(gaps, waited, rules.unattended_grace_period, learned=True)
    rows = [(gap, stop) for gap, stop in zip(gaps, live, strict=True) if gap.needed]
    ends = sorted(gap.end for gap, _ in rows)
    since = max(gaps[0].begin + ENOUGH_DAYS * DAY, ends[min(ENOUGH_PAUSES, len(ends)) - 1])
    found: dict[str, float] = {}
    for name, scored in (("first", rows), ("known", [row for row in rows if row[0].begin >= since])):
        if scored:
            paid = cost([gap for gap, _ in scored], [stop for _, stop in scored], restart).seconds
            found[name] = paid / optimum([gap for gap, _ in scored], restart)
    return found


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
    parser.add_argument(
        "--minutes", type=int, nargs="*", choices=_MINUTES, default=_MINUTES, help="what a restart costs (all)"
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="also put the tables into their place in this page")
    arguments = parser.parse_args()
    if not arguments.directory.is_dir():
        print(f"no recordings in {arguments.directory}; name their directory, or set GPUWATCH_TRACES")
        return 0
    said, figures = list[str](), list[Figure]()
    with ProcessPoolExecutor() as pool:

        def play(trace: str, minutes: int, knows: str = "") -> Future[Ratios]:
            return pool.submit(played, arguments.directory, arguments.gaps, trace, minutes, knows)

        runs = {
            minutes: {
                "learned": {trace: play(trace, minutes) for trace in TRACES},
                "hints": {trace: play(trace, minutes, "hints") for trace in HINTED},
                "queue": {"earth": play("earth", minutes, "queue")},
            }
            for minutes in arguments.minutes
        }
        balanced = {
            trace: pool.submit(profile, arguments.directory, arguments.gaps, trace, _GOAL_MINUTES)
            for trace in (TRACES if _GOAL_MINUTES in arguments.minutes else ())
        }
        for minutes, asked in runs.items():
            found = {name: {trace: run.result() for trace, run in each.items()} for name, each in asked.items()}
            said.append(_table(found["learned"], minutes))
            print(f"{said[-1]}\n", flush=True)
            figures += _figures(minutes, found)
        figures += _profile({trace: run.result() for trace, run in balanced.items()}) if balanced else []
    means = [("idle cost over the optimum, geometric mean of the traces", figures)]
    print(table(means))
    if arguments.page is not None:
        put(arguments.page, "timing", "\n\n".join([*said, table(means, goals_only=True)]))
    return 0


def _table(found: Mapping[str, Ratios], minutes: int) -> str:
    """One restart's cost: a line for each trace, and the geometric means."""
    titles = next(iter(found.values()))
    means = {title: geometric_mean(max(1e-9, each[title]) for each in found.values()) for title in titles}
    return "\n".join(
        [
            f"idle cost over the optimum, a restart costs {minutes} min of rental",
            "  ".join(f"{title:>9}" for title in ("trace", *titles)),
            *(
                "  ".join([f"{name:>9}", *(f"{ratio:9.3f}" for ratio in each.values())])
                for name, each in {**found, "geo. mean": means}.items()
            ),
        ]
    )


def _figures(minutes: int, found: Mapping[str, Mapping[str, Ratios]]) -> list[Figure]:
    """Each figure of a restart's cost beside its goal."""
    usual = found["learned"]

    def mean(name: str, pick: Callable[[Ratios], float], goal: float | None, ratios: Mapping[str, Ratios]) -> Figure:
        of = {trace: pick(each) for trace, each in ratios.items()}
        return Figure(
            name=f"{name}, restart {minutes} min", unit="", runs=[geometric_mean(of.values())], at_most=goal, digits=4
        )

    at_goal = minutes == _GOAL_MINUTES
    worst = max(each["prefix"] for each in [*usual.values(), *found["hints"].values()])
    return [
        mean("learned", lambda each: each["learned"], _GOALS[minutes], usual),
        mean(
            "learned with hints",
            lambda each: each["learned"],
            _GOAL_HINTS if at_goal else None,
            {**usual, **found["hints"]},
        ),
        mean("live", lambda each: each["live"], _GOAL_LIVE if at_goal else None, usual),
        *(
            mean(f"{trace} with hints", lambda each: each["learned"], None, {trace: found["hints"][trace]})
            for trace in (HINTED if at_goal else ())
        ),
        mean("earth, its queue known", lambda each: each["learned"], None, found["queue"]),
        Figure(
            name=f"worst moment of any trace, of break-even, restart {minutes} min",
            unit="",
            runs=[worst],
            at_most=_GOAL_PREFIX,
            digits=4,
        ),
    ]


def _profile(found: Mapping[str, Ratios]) -> list[Figure]:
    """From the first minute, and once the pool is known."""
    times = {"known": "once the pool is known", "first": "from the first minute"}
    return [
        Figure(
            name=f"balanced, live, {words}, restart {_GOAL_MINUTES} min",
            unit="",
            runs=[geometric_mean(each[key] for each in found.values() if key in each)],
            at_most=_GOAL_LIVE,
            digits=4,
        )
        for key, words in times.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
