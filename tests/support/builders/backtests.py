"""A backtest on record, and histories of nodes whose busy intervals a test names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from gpuwatch.model.orders import BacktestRecord
from gpuwatch.policies.fingerprint import fingerprint
from gpuwatch.simulate.backtest.gaps import History, history_of
from gpuwatch.simulate.fleet.options import Options
from tests.support.builders.fleet import NOW, RULES


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


def busy_spans(turns: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where a node works that idles for the first of each pair and works for the second."""
    spans, at = [], 0
    for idle, busy in turns:
        spans.append((at + idle, at + idle + busy))
        at += idle + busy
    return spans


def of_intervals(
    nodes: Mapping[str, Sequence[tuple[float, float]]], hours: float | None = None, gpus: int = 1
) -> History:
    """The history of busy intervals in a file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        rows = [f"{name},{begin},{end}" for name, spans in nodes.items() for begin, end in spans]
        path.write_text("\n".join(["node,busy_from_s,busy_to_s", *rows]))
        return history_of(Options(trace=path, hours=hours, gpus_per_node=gpus))
