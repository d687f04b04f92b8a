"""What a backtest says: for tools, for people, and the run that both come from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.backtest.checked import Bounds, Checked, check
from gpuwatch.backtest.compare import Figures, Policy, Terms, figures_of, optimum_saved_ratio
from gpuwatch.backtest.gaps import history_of
from gpuwatch.clock import Clock
from gpuwatch.model.knobs import format_duration
from gpuwatch.simulation.options import Options

_COLUMNS = ("policy", "cost/optimum", "bill saved", "USD saved", "restarts/node-day", "people waited", "regretted")
_CHECKS = ("wrong stops", "violations", "of checked stops")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One policy: its figures, and what the check of a part saw; None where nothing was played."""

    figures: Figures
    checked: Checked | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """One recording under several policies. `replayed_per_second` is node-hours of all policies a real second."""

    trace: Path
    nodes: int
    node_hours: float
    gaps: int
    terms: Terms
    lines: tuple[Line, ...]
    optimum_bill_saved_ratio: float | None
    replayed_per_second: float

    @property
    def sound(self) -> bool:
        """Whether no check saw a wrong stop or a violation."""
        seen = [line.checked for line in self.lines if line.checked is not None]
        return not any(checked.wrongly_stopped or checked.violations for checked in seen)


def backtest(
    options: Options, policies: Sequence[Policy], terms: Terms, bounds: Bounds | None, clock: Clock
) -> Backtest:
    """Charge every policy for the recording, and play a part of it under each; without bounds nothing is played.

    Raises:
        DemoError: the recording cannot be read, or there is no price for a machine of it.

    """
    history = history_of(options)
    if options.trace is None:
        raise ValueError("a backtest needs a recording")
    begun = clock.monotonic()
    told = [figures_of(policy, history, terms) for policy in policies]
    seconds = clock.monotonic() - begun
    played = max(1, sum(not policy.never for policy in policies))
    share = None if bounds is None else Bounds(hours=bounds.hours, real_seconds=bounds.real_seconds / played)
    lines = tuple(
        Line(
            figures=each,
            checked=None if share is None else check(each.policy, history, options, terms.restart, share, clock),
        )
        for each in told
    )
    node_hours = sum(history.node_seconds.values()) / 3600
    return Backtest(
        trace=options.trace,
        nodes=len(history.lives),
        node_hours=node_hours,
        gaps=len(history.gaps),
        terms=terms,
        lines=lines,
        optimum_bill_saved_ratio=optimum_saved_ratio(history, terms.restart),
        replayed_per_second=node_hours * len(policies) / max(seconds, 1e-9),
    )


def as_json(told: Backtest) -> dict[str, object]:
    """For tools; docs/backtest.md defines each key."""
    return {
        "trace": str(told.trace),
        "nodes": told.nodes,
        "node_hours": round(told.node_hours, 4),
        "gaps": told.gaps,
        "restart_cost_seconds": told.terms.restart,
        "boot_seconds": told.terms.boot,
        "regret_seconds": told.terms.regret,
        "policies": [_policy(line) for line in told.lines],
        "optimum": {"bill_saved_ratio": _rounded(told.optimum_bill_saved_ratio)},
        "node_hours_per_second": round(told.replayed_per_second),
    }


def _policy(line: Line) -> dict[str, object]:
    figures, checked = line.figures, line.checked
    return {
        "name": figures.policy.name,
        "idle_cost_ratio_to_optimum": _rounded(figures.idle_cost_ratio_to_optimum),
        "idle_cost_ratio_to_break_even": _rounded(figures.idle_cost_ratio_to_break_even),
        "bill_saved_ratio": _rounded(figures.bill_saved_ratio),
        "node_hours_saved": round(figures.node_hours_saved, 4),
        "saved_usd": float(figures.saved_usd),
        "stops": len(figures.stops),
        "restarts": figures.cost.restarts,
        "restarts_per_node_day": _rounded(figures.restarts_per_node_day),
        "people_waited_seconds": figures.people_waited_seconds,
        "suspected_wrong_stops": figures.suspected_wrong_stops,
        "wrongly_stopped": None if checked is None else checked.wrongly_stopped,
        "violations": None if checked is None else len(checked.violations),
        "violated": [] if checked is None else list(checked.violations[:20]),
        "checked_node_hours": 0.0 if checked is None else round(checked.node_hours, 4),
        "checked_stops": 0 if checked is None else checked.stops,
    }


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 6)


def cells(line: Line) -> tuple[str, ...]:
    """A policy's row for people, under `heads`."""
    figures, checked = line.figures, line.checked
    row = (
        figures.policy.name,
        _number(figures.idle_cost_ratio_to_optimum),
        percent(figures.bill_saved_ratio),
        f"{figures.saved_usd:,}",
        _number(figures.restarts_per_node_day),
        format_duration(figures.people_waited_seconds),
        str(figures.suspected_wrong_stops),
    )
    if checked is None:
        return (*row, "-", "-", "-")
    return (*row, str(checked.wrongly_stopped), str(len(checked.violations)), str(checked.stops))


def heads() -> tuple[str, ...]:
    """The columns of `cells`."""
    return (*_COLUMNS, *_CHECKS)


def percent(ratio: float | None) -> str:
    """A ratio for people."""
    return "-" if ratio is None else f"{ratio:.1%}"


def _number(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}"


def sentences(told: Backtest) -> Iterator[str]:
    """What the table does not say."""
    yield (
        f"{told.trace.name}: {told.nodes} nodes, {told.node_hours:,.0f} node-hours, {told.gaps} idle gaps; "
        f"a restart costs {format_duration(told.terms.restart)} of rental."
    )
    yield f"Who knew every end would have saved {percent(told.optimum_bill_saved_ratio)} of the bill."
    hours = sum(line.checked.node_hours for line in told.lines if line.checked is not None)
    if hours:
        yield f"Wrong stops and violations: in {hours:,.0f} node-hours that the real controller played, all policies."
    else:
        yield "Nothing was played through the real controller: wrong stops and violations are not known."
    yield (
        f"Regretted: needed again within {format_duration(told.terms.regret)} of the stop. "
        f"{told.replayed_per_second:,.0f} node-hours a second."
    )
    for line in told.lines:
        for violation in () if line.checked is None else line.checked.violations[:5]:
            yield f"{line.figures.policy.name}: {violation}"


def as_text(told: Backtest) -> str:
    """For people."""
    rows = [heads(), *map(cells, told.lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = (
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )
    return "\n".join([*table, "", *sentences(told)])
