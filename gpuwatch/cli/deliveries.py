"""What a controller sends to people, made from the settings: notices, messages about budgets, reports."""

from collections.abc import Callable, Sequence
from zoneinfo import ZoneInfo

from gpuwatch.clouds import Leftover
from gpuwatch.clouds.named import start_command
from gpuwatch.config.settings import Settings
from gpuwatch.model.budget import BudgetState
from gpuwatch.model.fleet import Fleet
from gpuwatch.notify.budget_notices import BudgetNotices
from gpuwatch.notify.notifier import Notifier
from gpuwatch.notify.reports import Reports
from gpuwatch.runtime.clock import Clock


def make_reports(settings: Settings, clock: Clock, unused: Callable[[], Sequence[Leftover]]) -> Reports:
    """The daily report of these settings."""
    return Reports(
        report=settings.report, cost=settings.cost, interval_seconds=settings.interval, clock=clock, unused=unused
    )


def make_budget_notices(
    settings: Settings,
    clock: Clock,
    states: Callable[[], Sequence[BudgetState]],
    count: Callable[[str, str, str], None],
) -> BudgetNotices:
    """The messages about budgets of these settings."""
    return BudgetNotices(
        notify=settings.notify,
        budgets=settings.budgets,
        fleet_name=settings.fleet,
        zone=ZoneInfo(settings.cost.timezone),
        clock=clock,
        states=states,
        count=count,
    )


def make_notifier(
    settings: Settings, clock: Clock, fleet: Callable[[], Fleet | None], count: Callable[[str, str, str], None]
) -> Notifier:
    """The notifications of these settings."""
    return Notifier(
        notify=settings.notify,
        signals=settings.signals,
        fleet_name=settings.fleet,
        rules=settings.rulebook,
        start_command=start_command(settings.named_clouds),
        zone=ZoneInfo(settings.cost.timezone),
        clock=clock,
        fleet=fleet,
        count=count,
    )
