"""What a report is compared with: the same days, as far as they are over."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from gpuwatch.ledger import Ledger
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.report.gather import gather_report
from gpuwatch.money.report.period import period_of
from gpuwatch.money.report.sections import against
from tests.support.builders.money import a_busy_node, a_round

ZONE = ZoneInfo("UTC")


@pytest.mark.parametrize(
    ("now", "month", "days", "before"),
    [
        ((2026, 11, 20, 12), "2026-11", 19, ("2026-10-01", "2026-10-20")),
        ((2026, 11, 1, 12), "2026-11", 0, ("2026-10-01", "2026-10-01")),
        ((2026, 3, 31, 12), "2026-03", 28, ("2026-02-01", "2026-03-01")),  # February has no 30th
        ((2026, 12, 3, 12), "2026-11", 30, ("2026-10-01", "2026-11-01")),  # it is over: whole against whole
    ],
)
def test_as_many_days_as_are_over_are_compared(
    now: tuple[int, int, int, int], month: str, days: int, before: tuple[str, str]
) -> None:
    """A month to date against the same days of the month before."""
    at = datetime(*now, tzinfo=UTC)
    period = period_of(ZONE, at, month=month)
    alike, earlier = period.part_that_is_over(at).same_part(period)

    assert (alike.days, str(earlier.first), str(earlier.after)) == (days, *before)


def test_a_steady_fleet_has_no_change_in_the_middle_of_a_month() -> None:
    """One machine at $10 an hour, on 10 March at noon: nine days against nine, and not against the whole February."""
    ledger, now = Ledger.in_memory(), datetime(2026, 3, 10, 12, tzinfo=UTC)
    at = began = datetime(2026, 1, 30, tzinfo=UTC)
    while at <= now:
        node = replace(a_busy_node("i-1", at), launched_at=began)
        SpendBook(ledger).meter(a_round(at, node), Metering(zone=ZONE, silent_after_seconds=1e6))
        at += timedelta(hours=12)
    report = gather_report(ledger, period_of(ZONE, now), now, CostSettings(), 43_200.0)
    first = gather_report(ledger, period_of(ZONE, now, month="2026-02"), now, CostSettings(), 43_200.0)
    ledger.close()

    assert against(report) == "+0.0% against 2026-02-01 to 2026-02-09"
    assert against(first).endswith("against 2026-01-01 to 2026-01-31, 28 days against 31")
