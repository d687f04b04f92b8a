"""The run that all reports come from."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from gpuwatch.model.duration import format_duration
from gpuwatch.model.progress import Advance, no_advance
from gpuwatch.runtime.clock import Clock
from gpuwatch.simulate.backtest import plays
from gpuwatch.simulate.backtest.compare import Figures, Policy, Terms, optimum_of
from gpuwatch.simulate.backtest.gaps import History
from gpuwatch.simulate.backtest.safety_check import Bounds, Checked
from gpuwatch.simulate.backtest.stops import StopRecord, foremost, stops_of
from gpuwatch.simulate.fleet.options import Options

LISTED = 20  # stops of each policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One policy: its figures, and what the check of a part saw; None where nothing was played."""

    figures: Figures
    checked: Checked | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """One history under several policies. `replayed_per_second` is node-hours of all policies a real second."""

    source: str
    history: History
    terms: Terms
    lines: tuple[Line, ...]
    optimum: Figures
    replayed_per_second: float

    @property
    def node_hours(self) -> float:
        """How long its nodes existed together."""
        return sum(self.history.node_seconds.values()) / 3600

    @property
    def sound(self) -> bool:
        """Whether no check saw a wrong stop or a violation."""
        seen = [line.checked for line in self.lines if line.checked is not None]
        return not any(checked.wrongly_stopped or checked.violations for checked in seen)

    def list_stops(self, figures: Figures, most: int) -> list[StopRecord]:
        """The stops of a policy for a list: suspected wrong ones first, then the largest savings."""
        stops = stops_of(self.history.gaps, figures.waits, self.terms.restart)
        return foremost(self.history, stops, self.terms.regret, most)

    def when(self, seconds: float) -> str:
        """A moment for people: UTC where the source knows it, else days and time of day from its begin."""
        if self.history.begins_at is not None:
            return f"{self.history.begins_at + timedelta(seconds=int(seconds)):%Y-%m-%d %H:%M:%S}"
        days, rest = divmod(int(seconds), 86400)
        return f"{days}d {rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"


def backtest(  # noqa: PLR0913  what a run is made of
    source: str,
    history: History,
    options: Options,
    policies: Sequence[Policy],
    terms: Terms,
    bounds: Bounds | None,
    clock: Clock,
    *,
    jobs: int | None = 1,
    advance: Advance = no_advance,
) -> Backtest:
    """Charge every policy for the history, and play a part of it under each; without bounds nothing is played.

    `jobs` processes work at once; None: as many as there are processors, if the history is worth it. `advance` gets how
    many of all charges and plays are done.

    Raises:
        DemoError: one of those processes ended early.

    """
    node_hours = sum(history.node_seconds.values()) / 3600
    tasks = len(policies) * (1 if bounds is None else 2)
    at_once = plays.workers(os.cpu_count() or 1, node_hours, tasks) if jobs is None else min(jobs, tasks)
    work = plays.Plays(
        history=history,
        options=options,
        policies=tuple(policies),
        terms=terms,
        bounds=plays.shared_out(bounds, policies, at_once),
        clock=clock,
    )
    done = plays.one_by_one(work, advance) if at_once <= 1 else plays.at_once(work, at_once, advance)
    checks = done.checks or (None,) * len(policies)
    return Backtest(
        source=source,
        history=history,
        terms=terms,
        lines=tuple(Line(figures=each, checked=seen) for each, seen in zip(done.figures, checks, strict=True)),
        optimum=optimum_of(history, terms),
        replayed_per_second=node_hours * len(policies) / max(done.charging_seconds, 1e-9),
    )


# How figures are written for people.


def _percent(ratio: float) -> str:
    return f"{ratio:.1%}"


def _ratio(ratio: float) -> str:
    return f"{ratio:.3f}"


def _hours(hours: float) -> str:
    return f"{hours:,.1f}" if abs(hours) < 10_000 else f"{hours:,.0f}"  # noqa: PLR2004  a tenth says nothing there


def _money(usd: Decimal) -> str:
    return f"{usd:,.2f}" if abs(usd) < 10_000 else f"{usd:,.0f}"  # noqa: PLR2004  cents say nothing there


def _count(count: int) -> str:
    return f"{count:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure: its key in JSON and name in `Figures`, its words, how it is written, whether to the optimum's, too."""

    key: str
    words: str
    write: Callable[..., str]
    compared: bool = False

    def measure_text(self, figures: Figures) -> str:
        """For people; a dash where it is not known."""
        value = getattr(figures, self.key)
        return "-" if value is None else self.write(value)

    def ratio(self, figures: Figures, optimum: Figures) -> float | None:
        """A policy's over the optimum's; None where there is nothing to divide by."""
        part, whole = getattr(figures, self.key), getattr(optimum, self.key)
        return None if part is None or not whole else float(part / whole)


MEASURES = (
    Measure(key="idle_cost_ratio_to_optimum", words="idle cost ÷ optimum", write=_ratio),
    Measure(key="live_cost_ratio_to_optimum", words="live: rounds and notice charged", write=_ratio),
    Measure(key="idle_cost_ratio_to_break_even", words="idle cost ÷ break-even", write=_ratio),
    Measure(key="bill_saved_ratio", words="part of the bill saved", write=_percent, compared=True),
    Measure(key="node_hours_billed", words="node-hours billed", write=_hours, compared=True),
    Measure(key="node_hours_saved", words="node-hours saved", write=_hours, compared=True),
    Measure(key="gpu_hours_billed", words="GPU-hours billed", write=_hours, compared=True),
    Measure(key="gpu_hours_saved", words="GPU-hours saved", write=_hours, compared=True),
    Measure(key="billed_usd", words="USD billed", write=_money, compared=True),
    Measure(key="saved_usd", words="USD saved", write=_money, compared=True),
    Measure(key="stops", words="stops", write=_count, compared=True),
    Measure(key="stops_per_node_day", words="stops per node-day", write=_ratio),
    Measure(key="nodes_stopped_again", words="nodes stopped again within a day", write=_count, compared=True),
    Measure(key="most_stops_in_a_day", words="most stops of a node in a day", write=_count, compared=True),
    Measure(key="restarts", words="restarts", write=_count, compared=True),
    Measure(key="restarts_per_node_day", words="restarts per node-day", write=_ratio),
    Measure(key="people_waited_seconds", words="people waited", write=format_duration, compared=True),
    Measure(key="people_waited_seconds_per_node_day", words="people waited per node-day", write=format_duration),
    Measure(key="suspected_wrong_stops", words="suspected wrong stops", write=_count),
    Measure(key="suspected_wrong_ratio", words="part of the stops suspected wrong", write=_percent),
)
