"""What accounting costs: metering a round, and asking, and reporting, what a year of a thousand machines came to."""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from benchmarks.figures import Figure
from gpuwatch.ledger import Ledger, LedgerSettings
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import NodeReport
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.settings import CostSettings, EnergySettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.report import cost, proof
from gpuwatch.money.report.gather import ends_compared, gather_report
from gpuwatch.money.report.pages import as_html
from gpuwatch.money.report.period import Period, period_of
from tests.support.builders.fleet import a_node, a_verdict, an_observation
from tests.support.builders.money import a_round

_NODES = 1_000
_FEW = 100
_GPUS = 8
_ROUNDS = 5
_END = datetime(2027, 1, 1, tzinfo=UTC)
_YEAR = timedelta(days=365)
_ZONE = ZoneInfo("UTC")
_RULES = Metering(zone=_ZONE, silent_after_seconds=2 * _YEAR.total_seconds())
_MIB = 1 << 20


def measure() -> Iterator[Figure]:
    """All figures."""
    with tempfile.TemporaryDirectory() as folder:
        yield from metering(Path(folder))
        path = Path(folder) / "year.db"
        ledger = Ledger.connect(LedgerSettings(path=str(path)))
        spend = SpendBook(ledger)
        for at in (_END - _YEAR, _END):
            spend.meter(_seen(at, _NODES), _RULES)
        rows = sum(1 for _ in spend.each(0, 2**40))
        floor = f"by pool of one day; the year has {rows:,} rows"
        day = period_of(_ZONE, _END, day="2026-12-30")
        alone = [
            _timed(lambda: cost.as_text(cost.cost_report(SpendBook(ledger), day, "pool"), EnergySettings()))
            for _ in range(3)
        ]
        for by in ("pool", "node", "day"):
            yield _figure(f"a year by {by}", lambda by=by: _year(ledger, by), floor, alone)  # type: ignore[misc]  # bound
        yield _figure("a year by pool, explained", lambda: _explained(ledger), floor, alone)
        reading = [_timed(lambda: sum(1 for _ in spend.each(0, 2**40)))]
        for name, first in (("a year", date(2026, 1, 1)), ("a day", date(2026, 12, 31))):
            period = Period(zone=_ZONE, first=first, after=date(2027, 1, 1))
            made = _timed(lambda period=period: as_html(gather_report(ledger, period, _END, CostSettings(), 60.0)))  # type: ignore[misc]  # bound
            yield Figure(name=f"the report on {name}", unit="s", runs=[made], floor="its rows read", floor_runs=reading)
        ends = [_timed(lambda: ends_compared(ledger, _ZONE, _END)) for _ in range(3)]
        yield Figure(name="its first and last weeks", unit="s", runs=ends, floor="its rows read", floor_runs=reading)
        ledger.close()
        size = path.stat().st_size / _MIB
        yield Figure(name=f"its {rows:,} rows on disk", unit="MiB", runs=[size], floor="itself", floor_runs=[size])


def metering(folder: Path) -> Iterator[Figure]:
    """A round's metering, by CPU time."""
    few, many = (_metered(folder / f"{count}.db", count) for count in (_FEW, _NODES))
    yield Figure(
        name=f"meter a round of {_NODES:,} nodes",
        unit="ms",
        runs=[run * 1e3 for run in many],
        at_most=30,
        floor=f"{_FEW} nodes",
        floor_runs=[run * 1e3 for run in few],
    )


def _figure(name: str, result: Callable[[], object], floor: str, alone: list[float]) -> Figure:
    return Figure(name=name, unit="s", runs=[_timed(result)], floor=floor, floor_runs=alone)


def _year(ledger: Ledger, by: str) -> str:
    year = period_of(_ZONE, _END, first="2026-01-01", last="2026-12-31")
    return cost.as_text(cost.cost_report(SpendBook(ledger), year, by), EnergySettings())


def _explained(ledger: Ledger) -> str:
    year = period_of(_ZONE, _END, first="2026-01-01", last="2026-12-31")
    found = proof.prove_report(SpendBook(ledger), cost.cost_report(SpendBook(ledger), year, "pool"))
    if found.wrong:
        raise RuntimeError(found.wrong[0])
    return proof.as_text(found)


def _metered(path: Path, count: int) -> list[float]:
    """Rounds a minute apart; the first one only begins."""
    ledger = Ledger.open(path)
    times = []
    for number in range(_ROUNDS + 1):
        seen = _seen(_END + timedelta(minutes=number), count)
        begin = time.process_time()
        SpendBook(ledger).meter(seen, _RULES)
        times.append(time.process_time() - begin)
    ledger.close()
    return times[1:]


def _seen(at: datetime, count: int) -> Observation:
    """Machines of twenty pools and forty owners, two of three at work."""
    verdicts = [
        a_verdict(f"i-{n:017x}", State.BUSY if n % 3 else State.IDLE, 90.0, gpus=_GPUS, at=at) for n in range(3)
    ]
    nodes = [
        replace(
            a_node(f"i-{number:017x}", gpu_count=_GPUS, pool=f"pool-{number % 20}", owner=f"owner-{number % 40}"),
            launched_at=_END - 2 * _YEAR,
            signal=NodeReport(verdict=verdicts[number % 3]),
        )
        for number in range(count)
    ]
    return replace(an_observation(*nodes, now=at), prices=a_round(at, *nodes[:1]).prices)


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin
