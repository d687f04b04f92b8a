"""What a price of people's waiting changes: cost against regretted stops, on recordings and on made fleets.

`python -m benchmarks.people [DIRECTORY] [--gaps N]` plays the profile `balanced` live, from a pool's first minute: a
round a minute, notices charged, a restart costs ten minutes of rent. DIRECTORY has the recordings ($GPUWATCH_TRACES,
else ../shared/traces); without it the made fleets (`benchmarks.families`) are played alone. The price was fitted on
recordings and on the families `FITTED`; `JUDGED` are played for the record alone.

A stop is regretted if its node is needed again within 15 minutes. `cost` is what these cost, restarts and people, of
what stops saved on nodes that were needed again: the check of `limits.require_backtest`. `asked` has the first notice
of each machine as a question (ADR 53): half an hour and four hours, until ten answers on three days make the pool
known.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import geometric_mean, mean

from benchmarks.families import FITTED, JUDGED, made
from benchmarks.figures import put
from benchmarks.recorded import DAY, TRACES, gaps_of
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout import answers
from gpuwatch.policies.idle_timeout.break_even import REGRET_SECONDS, waiting_restarts
from gpuwatch.policies.idle_timeout.node_wait import ATTENDED_WAIT_SECONDS
from gpuwatch.simulate.backtest import pool_rules
from gpuwatch.simulate.backtest.replay import Recorded, cost, learned_waits, live_waits, optimum

_DEFAULT = Path(__file__).resolve().parents[2] / "shared" / "traces"
_RESTART, _HOUR = 600.0, 3600.0
_PRICES = (0.0, 30.0, 60.0, 120.0, 240.0)  # of an hour of waiting, where the machine's costs $60
_USED = 30.0
_COLUMNS = ("ratio", "possible", "restarts", "regretted", "cost")
_SETS = {"recordings": tuple(TRACES), "fitted": FITTED, "judged": JUDGED}

Row = tuple[float, ...]


def _gaps(source: Path, name: str, most: int) -> list[Recorded]:
    nodes = TRACES[name](source) if name in TRACES else made(name)
    return gaps_of(nodes, most)


def play(source: Path, name: str, most: int, usd_per_hour: float, *, asked: bool = False) -> Row:
    """One pool's figures, in the order of the columns."""
    gaps, rules, waiting = _gaps(source, name, most), IdleRules(), waiting_restarts(usd_per_hour, None)
    waited = learned_waits(gaps, _RESTART, fresh=pool_rules.fresh(rules), waiting=lambda _: waiting)
    live = live_waits(gaps, waited, rules.unattended_grace_period, learned=True)
    return score(gaps, with_questions(gaps, live, rules) if asked else live, waiting)


def score(gaps: Sequence[Recorded], waits: Sequence[float], waiting: float) -> Row:
    """What these waits cost."""
    needed = [(gap, wait) for gap, wait in zip(gaps, waits, strict=True) if gap.needed]
    rows, best = [gap for gap, _ in needed], optimum(gaps, _RESTART)
    whole, idle = cost(gaps, waits, _RESTART), sum(gap.seconds for gap in gaps)
    stops = [(gap, wait) for gap, wait in zip(gaps, waits, strict=True) if gap.seconds > wait]
    regretted = sum(gap.needed and gap.seconds - wait <= REGRET_SECONDS for gap, wait in stops)
    saved = sum(gap.seconds - wait for gap, wait in stops if gap.needed)
    days = (max(gap.end for gap in gaps) - gaps[0].begin) / DAY * len({gap.node_id for gap in gaps})
    return (
        cost(rows, [wait for _, wait in needed], _RESTART).seconds / best,
        (idle - whole.seconds) / (idle - best),
        whole.restarts / days,
        regretted / max(1, len(stops)),
        regretted * _RESTART * (1 + waiting) / saved if saved else 0.0,
    )


def with_questions(gaps: Sequence[Recorded], waits: Sequence[float], rules: IdleRules) -> list[float]:
    """The waits where the first notice of each node is a question, until answers make the pool known."""
    found, passed, question = [], dict[str, float](), ATTENDED_WAIT_SECONDS + rules.owner_grace_period
    for gap, wait in zip(gaps, waits, strict=True):
        over = sorted(at for at in passed.values() if at <= gap.begin)
        known = len(over) >= answers.ENOUGH and len({int(at // DAY) for at in over}) >= answers.ENOUGH_DAYS
        asks = not known and passed.get(gap.node_id, float("inf")) > gap.begin
        found.append(max(wait, question) if asks else wait)
        regretted = gap.needed and gap.seconds - found[-1] <= _HOUR
        if asks and gap.seconds > found[-1] and not regretted:
            passed[gap.node_id] = gap.begin + found[-1] + _HOUR
    return found


def _means(rows: Iterable[Row]) -> Row:
    """The geometric mean of the ratios, the means of all else."""
    ratios, *others = zip(*rows, strict=True)
    return (geometric_mean(ratios), *map(mean, others))


def _line(name: str, row: Row) -> str:
    ratio, possible, restarts, regretted, share = row
    return f"{name:>24} {ratio:9.3f} {possible:9.0%} {restarts:9.2f} {regretted:9.0%} {share:9.0%}"


def _curve(points: Mapping[float, Row]) -> list[str]:
    """Cost against regretted stops as a picture: a bar of each, one line a price."""
    said = ["", f"{'cost, and regretted stops':>24} {'ratio less 1':<42} regretted"]
    for usd, (ratio, _, _, regretted, _) in points.items():
        said.append(f"{f'${usd:.0f} an hour':>24} {'#' * round(50 * (ratio - 1)):<42} {'o' * round(50 * regretted)}")
    return said


def main() -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(os.environ.get("GPUWATCH_TRACES", _DEFAULT))
    parser.add_argument("directory", type=Path, nargs="?", default=default, help="where the recordings are")
    parser.add_argument("--gaps", type=int, default=1000, metavar="N", help="of each pool at most (1000)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="also put the table into its place in this page")
    asked = parser.parse_args()
    sets = {name: each for name, each in _SETS.items() if name != "recordings" or asked.directory.is_dir()}
    names = [name for each in sets.values() for name in each]
    with ProcessPoolExecutor() as pool:
        runs = {
            (usd, name): pool.submit(play, asked.directory, name, asked.gaps, usd) for usd in _PRICES for name in names
        }
        questions = {name: pool.submit(play, asked.directory, name, asked.gaps, _USED, asked=True) for name in names}
        rows = {key: run.result() for key, run in runs.items()}
        with_question = {name: run.result() for name, run in questions.items()}
    said = [f"balanced, live, from the first minute, ${_USED:.0f} an hour", f"{'':>24} " + _titles()]
    for each in sets.values():
        for name in each:
            said += [_line(name, rows[_USED, name]), _line("asked", with_question[name])]
    points = dict[float, Row]()
    by_price = [f"{'':>24} " + _titles()]
    for title, each in sets.items():
        by_price += ["", f"{title}, by what an hour of waiting costs"]
        for usd in _PRICES:
            points[usd] = _means(rows[usd, name] for name in each)
            by_price.append(_line(f"${usd:.0f} an hour", points[usd]))
        by_price.append(_line("asked", _means(with_question[name] for name in each)))
        said += _curve(points) if title == next(iter(sets)) else []
    text = "\n".join(line.rstrip() for line in by_price)
    print("\n".join([*said, "", text]))
    if asked.page is not None:
        put(asked.page, "people", text)
    return 0


def _titles() -> str:
    return " ".join(f"{title:>9}" for title in _COLUMNS)


if __name__ == "__main__":
    sys.exit(main())
