"""The report as one JSON document; docs/json.md says what each key holds.

Money is a text to the cent, so that the lines of each slicing add up to the whole; times are exact in milliseconds.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

from gpuwatch.model.budget import BudgetState
from gpuwatch.model.currency import shown_in
from gpuwatch.model.usage import HOUR_MS
from gpuwatch.money.accounting.savings import Saved, Saving
from gpuwatch.money.accounting.totals import Total, TotalDocument, plain_usd, shown, total_object
from gpuwatch.money.forecast.month_end import MonthEnd
from gpuwatch.money.report import price_days, progress_section, storage_section
from gpuwatch.money.report.inventory import Inventory
from gpuwatch.money.report.json_types import (
    ActionsDocument,
    GroupSaving,
    GroupTotal,
    HealthDocument,
    MachinesDocument,
    MonthDocument,
    ReportBudget,
    ReportDocument,
    SavedDocument,
    SavingDocument,
    StepTotal,
    UnusedJobDocument,
)
from gpuwatch.money.report.report import Actions, Line, Report, Step
from gpuwatch.money.report.sections import headline, title
from gpuwatch.policies.job_use import JobUse

_CENT = Fraction(1, 100)


def as_object(report: Report) -> ReportDocument:
    """Everything that is known, also what the other forms leave out for want of room."""
    facts, period = report.facts, report.facts.period
    return {
        "title": title(report),
        "headline": headline(report),
        "since": _seconds(period.since),
        "until": _seconds(period.until),
        "timezone": period.zone.key,
        "made_at": facts.now,
        "over": report.over,
        "currency": shown_in().unless_usd,
        "total": _total(report.whole),
        "before": None
        if report.before is None
        else {
            "since": _seconds(period.before.since),
            "until": _seconds(period.before.until),
            **_total(report.before),
        },
        "by": {by: _lines(lines) for by, lines in report.slices.items()},
        "unit": report.unit,
        "steps": _steps(report.steps),
        "saved": _saved(facts.saved),
        "actions": _actions(facts.actions),
        "machines": None if facts.inventory is None else _machines(facts.inventory),
        "jobs": [] if facts.inventory is None else [_job(each) for each in facts.inventory.jobs],
        "blocked": facts.blocked,
        "storage": None if facts.storage is None else storage_section.as_object(facts.storage),
        "health": None if facts.inventory is None else _health(facts.inventory),
        "budgets": [_budget(state) for state in facts.budgets],
        "forecast": {
            "month": None if report.month is None else _month(report.month),
            "year": [_month(each) for each in report.year],
            "none_because": report.no_forecast,
        },
        "progress": None if facts.progress is None else progress_section.as_object(facts.progress),
        "energy": report.energy,
        "prices": None if report.prices is None else price_days.as_object(report.prices, facts.now.date()),
        "missing": {
            "metered_since": facts.began,
            "rounds": facts.rounds.count,
            "gap_seconds": facts.rounds.gap_seconds,
            "gaps": [(begin, end) for begin, end in facts.rounds.gaps],
            "unseen_days": sorted(facts.unseen),
            "cut": facts.cut,
        },
    }


def _total(total: Total) -> TotalDocument:
    return total_object(total, round(total.usd / _CENT), round(total.usd_wasted / _CENT))


def _lines(lines: tuple[Line, ...]) -> list[GroupTotal]:
    """In cents of dollars, which add up to the whole's."""
    _, cents = shown({line.name: line.total.usd for line in lines}, _CENT)
    _, wasted = shown({line.name: line.total.usd_wasted for line in lines}, _CENT)
    return [{"name": line.name, **total_object(line.total, cents[line.name], wasted[line.name])} for line in lines]


def _steps(steps: tuple[Step, ...]) -> list[StepTotal]:
    _, cents = shown({str(step.begin): step.total.usd for step in steps}, _CENT)
    _, wasted = shown({str(step.begin): step.total.usd_wasted for step in steps}, _CENT)
    return [
        {"at": _seconds(step.begin), **total_object(step.total, cents[str(step.begin)], wasted[str(step.begin)])}
        for step in steps
    ]


def _saved(saved: Saved) -> SavedDocument:
    return {
        **_saving(saved.whole, round(saved.whole.usd / _CENT)),
        "stops": saved.stops,
        "stops_without_a_known_end": saved.endless,
        "still_cost_known": saved.still_known,
        "by_pool": _savings(saved.by_pool),
        "by_owner": _savings(saved.by_owner),
    }


def _savings(parts: Mapping[str, Saving]) -> list[GroupSaving]:
    _, cents = shown({name: each.usd for name, each in parts.items()}, _CENT)
    return [{"name": name, **_saving(each, cents[name])} for name, each in parts.items()]


def _saving(saving: Saving, cents: int) -> SavingDocument:
    return {
        "usd": plain_usd(cents),
        "machine_hours": saving.ms / HOUR_MS,
        "unpriced_machine_hours": saving.unpriced_ms / HOUR_MS,
        "usd_of_stopped_machines": plain_usd(round(saving.still_usd / _CENT)),
    }


def _actions(actions: Actions) -> ActionsDocument:
    return {
        "counts": [
            {"verb": verb, "status": status, "count": count} for (verb, status), count in actions.counts.items()
        ],
        "newest": [
            {
                "at": each.at,
                "verb": each.verb,
                "status": each.status,
                "node_id": each.node_id,
                "pool": each.pool,
                "owner": each.owner,
                "why": each.why,
                "detail": each.detail,
            }
            for each in actions.newest
        ],
        "orders": list(actions.orders),
        "sick_machines": list(actions.sick),
    }


def _machines(seen: Inventory) -> MachinesDocument:
    return {
        "at": seen.at,
        "states": dict(seen.states),
        "uses": dict(seen.uses),
        "idle": [
            {
                "node_id": each.node.id,
                "name": each.node.name,
                "pool": each.node.pool,
                "owner": each.node.owner,
                "state": each.state,
                "held_seconds": each.held_seconds,
                "usd_per_hour": None if each.usd_per_hour is None else str(each.usd_per_hour),
                "next": each.next_verb,
                "why": each.why,
            }
            for each in seen.idle
        ],
        "stopped": [
            {
                "node_id": each.node.id,
                "name": each.node.name,
                "pool": each.node.pool,
                "owner": each.node.owner,
                "by_gpuwatch": each.by_gpuwatch,
                "since": each.since,
            }
            for each in seen.standing
        ],
    }


def _job(use: JobUse) -> UnusedJobDocument:
    return {
        "job": use.job.id,
        "user": use.job.user,
        "node_id": use.node.id,
        "pool": use.node.pool,
        "gpus": use.job.gpus,
        "unused_gpus": use.unused,
        "held_seconds": use.held_seconds,
        "usd_per_hour": None if use.usd_per_hour is None else str(use.usd_per_hour),
    }


def _health(seen: Inventory) -> HealthDocument:
    return {
        "at": seen.at,
        "gpus": dict(seen.health),
        "not_well": [
            {
                "node_id": each.node.id,
                "gpu": each.gpu,
                "health": each.health,
                "since": each.since,
                "remedy": each.remedy,
                "why": each.sentence,
            }
            for each in seen.ill
        ],
    }


def _budget(state: BudgetState) -> ReportBudget:
    return {
        "name": state.name,
        "scope": str(state.scope),
        "month": state.month,
        "usd_per_month": str(state.usd_per_month),
        "usd_spent": _decimal(state.spent_usd),
        "usd_forecast": _decimal(state.forecast_usd),
        "usd_lower": _decimal(state.lower_usd),
        "usd_upper": _decimal(state.upper_usd),
        "probability_over": state.probability_over,
        "unpriced_machine_hours": state.unpriced_hours,
        "blocked": state.blocked,
        "doubt": state.doubt,
    }


def _month(month: MonthEnd) -> MonthDocument:
    return {
        "month": f"{month.month:%Y-%m}",
        "usd_of_days_over": str(month.actual),
        "usd_expected": str(month.expected),
        "usd_lower": _decimal(month.lower),
        "usd_upper": _decimal(month.upper),
        "method": month.method,
        "warnings": list(month.warnings),
    }


def _decimal(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _seconds(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)
