"""A backtest on record."""

from dataclasses import replace
from datetime import timedelta

from gpuwatch.model.orders import BacktestRecord
from gpuwatch.policies.fingerprint import fingerprint
from tests.fleets import NOW, RULES


def a_backtest(**changes: object) -> BacktestRecord:
    """A passing backtest of the default pool's RULES, of yesterday."""
    base = BacktestRecord(
        pool="default",
        at=NOW - timedelta(days=1),
        who="ann@host",
        rules=fingerprint(RULES),
        source="load.csv",
        node_hours=720.5,
        stops=40,
        suspected_wrong_stops=1,
        checked_node_hours=24.0,
        checked_stops=9,
        wrongly_stopped=0,
        violations=0,
        saved_ratio=0.25,
    )
    return replace(base, **changes)  # type: ignore[arg-type]
