"""The document of `gpuwatch backtest --json`; docs/json/try.md shows each key."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from gpuwatch.simulate.backtest.compare import Figures
from gpuwatch.simulate.backtest.gaps import prices_of
from gpuwatch.simulate.backtest.report import LISTED, MEASURES, Backtest, Line
from gpuwatch.simulate.backtest.stops import StopRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceDocument:
    """What machines of a type cost; null where no list price is known."""

    instance_type: str
    usd_per_hour: float | None = None
    as_of: date | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopDocument:
    """One stop. `idle_since`, `stopped_at` and `needed_at` are null where the recording does not know the time of day.

    `suspect`: it was needed again so soon that the stop may have been wrong; `evidence` is what was seen then.
    """

    node_id: str
    pool: str | None
    idle_since_seconds: float
    stopped_at_seconds: float
    needed_at_seconds: float | None
    idle_since: datetime | None
    stopped_at: datetime | None
    needed_at: datetime | None
    node_hours_saved: float
    saved_usd: float | None
    suspect: bool
    evidence: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FiguresDocument:
    """What a policy comes to. Ratios are null where there is nothing to divide by, money without a list price."""

    name: str
    idle_cost_ratio_to_optimum: float | None
    live_cost_ratio_to_optimum: float | None
    idle_cost_ratio_to_break_even: float | None
    bill_saved_ratio: float | None
    node_hours_billed: float
    node_hours_saved: float
    gpu_hours_billed: float
    gpu_hours_saved: float
    billed_usd: float | None
    saved_usd: float | None
    stops: int
    stops_per_node_day: float | None
    nodes_stopped_again: int
    most_stops_in_a_day: int
    restarts: int
    restarts_per_node_day: float | None
    people_waited_seconds: float
    people_waited_seconds_per_node_day: float | None
    suspected_wrong_stops: int
    suspected_wrong_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDocument(FiguresDocument):
    """One policy. `wrongly_stopped` and `violations` are of the part that the real controller played, else null."""

    to_optimum: dict[str, float | None]
    wrongly_stopped: int | None
    violations: int | None
    violated: list[str]
    checked_hours: float
    checked_whole: bool
    checked_node_hours: float
    checked_stops: int
    would_have_stopped: list[StopDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestDocument:
    """One history under several policies; `optimum` knew the future."""

    trace: str
    begins_at: datetime | None
    nodes: int
    node_hours: float
    gaps: int
    restart_cost_seconds: float
    boot_seconds: float
    regret_seconds: float
    prices: list[PriceDocument]
    policies: list[PolicyDocument]
    optimum: FiguresDocument
    node_hours_per_second: int


def backtest_document(result: Backtest, most: int = LISTED) -> BacktestDocument:
    """For programs; docs/json/try.md shows each key. `most` bounds each list of stops."""
    return BacktestDocument(
        trace=result.source,
        begins_at=result.history.begins_at,
        nodes=len(result.history.lives),
        node_hours=round(result.node_hours, 4),
        gaps=len(result.history.gaps),
        restart_cost_seconds=result.terms.restart,
        boot_seconds=result.terms.boot,
        regret_seconds=result.terms.regret,
        prices=[
            PriceDocument(instance_type=kind)
            if price is None
            else PriceDocument(
                instance_type=kind, usd_per_hour=float(price.usd_per_hour), as_of=price.as_of, source=price.source
            )
            for kind, price in prices_of(result.history).items()
        ],
        policies=[_policy(result, line, most) for line in result.lines],
        optimum=FiguresDocument(**_figures(result.optimum)),
        node_hours_per_second=round(result.replayed_per_second),
    )


def _policy(result: Backtest, line: Line, most: int) -> PolicyDocument:
    figures, checked = line.figures, line.checked
    return PolicyDocument(
        **_figures(figures),
        to_optimum={
            measure.key: _plain(measure.ratio(figures, result.optimum)) for measure in MEASURES if measure.compared
        },
        wrongly_stopped=None if checked is None else checked.wrongly_stopped,
        violations=None if checked is None else len(checked.violations),
        violated=[] if checked is None else list(checked.violations[:20]),
        checked_hours=0.0 if checked is None else round(checked.hours, 4),
        checked_whole=checked is not None and checked.whole,
        checked_node_hours=0.0 if checked is None else round(checked.node_hours, 4),
        checked_stops=0 if checked is None else checked.stops,
        would_have_stopped=[_stop(result, each) for each in result.list_stops(figures, most)],
    )


def _figures(figures: Figures) -> dict[str, Any]:
    """The fields of `FiguresDocument`."""
    return {"name": figures.policy.name} | {each.key: _plain(getattr(figures, each.key)) for each in MEASURES}


def _plain(value: float | Decimal | None) -> float | None:
    """A number for JSON: counts as they are, money to the cent, the rest to six places."""
    if isinstance(value, Decimal):
        return float(value)
    return round(value, 6) if isinstance(value, float) else value


def _stop(result: Backtest, each: StopRecord) -> StopDocument:
    gap, begins_at = each.stop.gap, result.history.begins_at
    needed = gap.end if gap.needed else None

    def moment(seconds: float | None) -> datetime | None:
        return None if seconds is None or begins_at is None else begins_at + timedelta(seconds=seconds)

    return StopDocument(
        node_id=gap.node_id,
        pool=each.pool,
        idle_since_seconds=round(gap.begin, 6),
        stopped_at_seconds=round(each.stop.at, 6),
        needed_at_seconds=_plain(needed),
        idle_since=moment(gap.begin),
        stopped_at=moment(each.stop.at),
        needed_at=moment(needed),
        node_hours_saved=round(each.stop.saved_seconds / 3600, 6),
        saved_usd=_plain(each.saved_usd),
        suspect=each.suspect,
        evidence=each.evidence,
    )
