"""The report as one document for programs; docs/json.md is made from its types.

What the report's facts hold in the same form is in it as it is. Money is to the cent, so that the lines of each slicing
add up to the whole; times are exact in milliseconds.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

from gpuwatch.model.budget import BudgetState
from gpuwatch.model.currency import Currency, display_currency
from gpuwatch.model.money import usd_of_cents, usd_to_the_cent
from gpuwatch.model.usage import HOUR_MS
from gpuwatch.money.accounting.savings import Saved, Saving
from gpuwatch.money.accounting.totals import (
    Document,
    Energy,
    Named,
    TotalDocument,
    round_parts,
    total_document,
    total_documents,
)
from gpuwatch.money.blocked.blocked import Blocked
from gpuwatch.money.forecast.month_end import MonthEnd
from gpuwatch.money.report.anomalies import Anomaly
from gpuwatch.money.report.health_share import HealthShare
from gpuwatch.money.report.inventory import FleetHealth, Machines, UnusedJob
from gpuwatch.money.report.progress import ProgressDocument, progress_document
from gpuwatch.money.report.report import Actions, Facts, PriceDays, Report
from gpuwatch.money.report.sections import headline, title
from gpuwatch.money.storage import STORAGE_AS_OF, STORAGE_SOURCE, StorageRow
from gpuwatch.runtime.json_document import fill_document

_CENT = Fraction(1, 100)


@dataclass(frozen=True, kw_only=True)
class _Days:
    """From when to when."""

    __slots__ = ()
    since: datetime
    until: datetime


@dataclass(frozen=True, kw_only=True)
class _Moment:
    """A moment at which something began."""

    __slots__ = ()
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTotal(TotalDocument, _Days):
    """The same days of the stretch before: of a period that is not over, as many whole days as are over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTotal(TotalDocument, Named):
    """One group of a slicing; the groups add up to the total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTotal(TotalDocument, _Moment):
    """One hour, day or month, which begins then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingDocument:
    """What stopped machines did not cost, as long as they save, less what people cost who waited for them.

    `usd_of_stopped_machines` is what their disks and addresses cost meanwhile, as they did before: it is not taken off.
    `still_off_machine_hours` came after machines had ceased to save.
    """

    usd: Decimal
    machine_hours: float
    unpriced_machine_hours: float
    usd_waiting: Decimal
    still_off_machine_hours: float
    usd_of_stopped_machines: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSaving(SavingDocument, Named):
    """The part of one pool or owner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDocument(SavingDocument):
    """All that was saved. `still_cost_known`: the cloud was asked what stopped machines cost.

    `stops_not_proved_ours` and their hours are in no sum: somebody else may have stopped these machines.
    """

    stops: int
    terminations: int
    regretted_stops: int
    still_off_machines: int
    stops_without_a_known_end: int
    stops_not_proved_ours: int
    machine_hours_not_proved_ours: float
    still_cost_known: bool
    by_pool: tuple[GroupSaving, ...]
    by_owner: tuple[GroupSaving, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportBudget:
    """A budget as the last round of the period saw it; `blocked` is why no machine is added."""

    name: str
    scope: str
    month: str
    usd_per_month: Decimal
    usd_spent: Decimal | None
    usd_forecast: Decimal | None
    usd_lower: Decimal | None
    usd_upper: Decimal | None
    probability_over: float | None
    usd_at_present_rate: Decimal | None
    change: str | None
    unpriced_machine_hours: float
    blocked: str | None
    doubt: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthDocument:
    """Where a month ends: what is spent already, what is expected, and the 80 % interval."""

    month: str
    usd_of_days_over: Decimal
    usd_expected: Decimal
    usd_lower: Decimal | None
    usd_upper: Decimal | None
    method: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastDocument:
    """The month of the last day and the year after it, or why there is no forecast."""

    month: MonthDocument | None
    year: tuple[MonthDocument, ...]
    none_because: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageDocument:
    """Disks, snapshots, images and addresses when the report was made; `usd_per_month` is the sum of known prices."""

    by: tuple[StorageRow, ...]
    usd_per_month: Decimal
    prices_as_of: date
    prices_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingDocument:
    """What is not known: time before the metering and without rounds; `cut`: a row lies across an end."""

    metered_since: datetime | None
    rounds: int
    gap_seconds: float
    gaps: tuple[tuple[datetime, datetime], ...]
    unseen_days: tuple[date, ...]
    cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """A report on the days from `since` to before `until`; `over`: they have ended.

    `by` has the slicings. `steps` are hours, days or months, as `unit` says. `blocked` is of the last round, and so are
    `jobs`, those of Slurm. `health` is of the newest round, `health_share` of the days. `anomalies` are of the last day
    that is over. `progress` is null while less than two weeks are metered, `prices` if no machine has a known price,
    `storage` without `--unused`.
    """

    title: str
    headline: str
    since: datetime
    until: datetime
    timezone: str
    made_at: datetime
    over: bool
    currency: Currency | None
    total: TotalDocument
    before: EarlierTotal | None
    by: Mapping[str, tuple[GroupTotal, ...]]
    unit: str
    steps: tuple[StepTotal, ...]
    saved: SavedDocument
    actions: Actions
    machines: Machines | None
    jobs: tuple[UnusedJob, ...]
    blocked: Blocked | None
    storage: StorageDocument | None
    health: FleetHealth | None
    health_share: HealthShare | None
    budgets: tuple[ReportBudget, ...]
    anomalies: tuple[Anomaly, ...]
    forecast: ForecastDocument
    progress: ProgressDocument | None
    energy: Energy
    prices: PriceDays | None
    missing: MissingDocument


def report_document(report: Report) -> ReportDocument:
    """Everything that is known, also what the other forms leave out for want of room."""
    facts, period, seen = report.facts, report.facts.period, report.facts.inventory
    earlier = {"since": _seconds(report.before_days.since), "until": _seconds(report.before_days.until)}
    steps = {str(step.begin): step.total for step in report.steps}
    return ReportDocument(
        title=title(report),
        headline=headline(report),
        since=_seconds(period.since),
        until=_seconds(period.until),
        timezone=period.zone.key,
        made_at=facts.now,
        over=report.over,
        currency=display_currency().unless_usd,
        total=total_document(TotalDocument, report.whole),
        before=None if report.before is None else total_document(EarlierTotal, report.before, **earlier),
        by={
            by: total_documents(GroupTotal, {line.name: line.total for line in lines}, lambda name: {"name": name})
            for by, lines in report.slices.items()
        },
        unit=report.unit,
        steps=total_documents(StepTotal, steps, lambda begin: {"at": _seconds(int(begin))}),
        saved=_saved_document(facts.saved),
        actions=facts.actions,
        machines=None if seen is None else seen.machines,
        jobs=() if seen is None else seen.jobs,
        blocked=facts.blocked,
        storage=None if facts.storage is None else _storage(facts.storage),
        health=None if seen is None else seen.health,
        health_share=facts.health,
        budgets=tuple(map(_budget, facts.budgets)),
        anomalies=facts.anomalies,
        forecast=ForecastDocument(
            month=None if report.month is None else _month(report.month),
            year=tuple(map(_month, report.year)),
            none_because=report.no_forecast,
        ),
        progress=None if facts.progress is None else progress_document(facts.progress),
        energy=report.energy,
        prices=report.prices,
        missing=_missing(facts),
    )


def _saved_document(saved: Saved) -> SavedDocument:
    return _saving(
        SavedDocument,
        saved.whole,
        saved.whole.usd,
        stops=saved.stops,
        terminations=saved.terminations,
        regretted_stops=saved.regretted,
        still_off_machines=saved.still_off,
        stops_without_a_known_end=saved.endless,
        stops_not_proved_ours=saved.unproved,
        machine_hours_not_proved_ours=saved.unproved_ms / HOUR_MS,
        still_cost_known=saved.still_known,
        by_pool=_savings(saved.by_pool),
        by_owner=_savings(saved.by_owner),
    )


def _savings(parts: Mapping[str, Saving]) -> tuple[GroupSaving, ...]:
    """In cents that add up to the whole's."""
    _, cents = round_parts({name: each.usd for name, each in parts.items()}, _CENT)
    return tuple(_saving(GroupSaving, each, cents[name] * _CENT, name=name) for name, each in parts.items())


def _saving(kind: Callable[..., Document], saving: Saving, usd: Fraction, **more: object) -> Document:
    return kind(
        usd=usd_to_the_cent(usd),
        machine_hours=saving.ms / HOUR_MS,
        unpriced_machine_hours=saving.unpriced_ms / HOUR_MS,
        usd_waiting=usd_to_the_cent(saving.waiting_usd),
        still_off_machine_hours=saving.off_ms / HOUR_MS,
        usd_of_stopped_machines=usd_to_the_cent(saving.still_usd),
        **more,
    )


def _storage(rows: tuple[StorageRow, ...]) -> StorageDocument:
    total, cents = round_parts({each.kind: Fraction(each.usd_per_month) for each in rows}, _CENT)
    return StorageDocument(
        by=tuple(replace(each, usd_per_month=usd_of_cents(cents[each.kind])) for each in rows),
        usd_per_month=usd_of_cents(total),
        prices_as_of=STORAGE_AS_OF,
        prices_source=STORAGE_SOURCE,
    )


def _budget(state: BudgetState) -> ReportBudget:
    return fill_document(
        ReportBudget,
        state,
        scope=str(state.scope),
        usd_spent=state.spent_usd,
        usd_forecast=state.forecast_usd,
        usd_lower=state.lower_usd,
        usd_upper=state.upper_usd,
        usd_at_present_rate=state.present_rate_usd,
        unpriced_machine_hours=state.unpriced_hours,
    )


def _month(month: MonthEnd) -> MonthDocument:
    return MonthDocument(
        month=f"{month.month:%Y-%m}",
        usd_of_days_over=month.actual,
        usd_expected=month.expected,
        usd_lower=month.lower,
        usd_upper=month.upper,
        method=month.method,
        warnings=month.warnings,
    )


def _missing(facts: Facts) -> MissingDocument:
    return MissingDocument(
        metered_since=facts.began,
        rounds=facts.rounds.count,
        gap_seconds=facts.rounds.gap_seconds,
        gaps=facts.rounds.gaps,
        unseen_days=tuple(sorted(facts.unseen)),
        cut=facts.cut,
    )


def _seconds(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)
