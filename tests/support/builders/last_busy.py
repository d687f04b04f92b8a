"""Verdicts that say what was busy last."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from gpuwatch.model.activity import Evidence, LastBusy, State, Tally, WorkOwner
from gpuwatch.model.fleet import NodeVerdict
from tests.support.builders.fleet import NOW

FLUENT_BIT = WorkOwner(unit="fluent-bit.service", process="fluent-bit")


def cpu_evidence(**more: Any) -> Evidence:  # noqa: ANN401  any field of Evidence
    """CPU above its limit, of a log shipper."""
    given: dict[str, Any] = {
        "name": "cpu",
        "says": State.BUSY,
        "observed": 1.4,
        "limit": 0.8,
        "unit": "cores",
        "source": "/proc/stat",
        "owner": FLUENT_BIT,
        "setting": "agent.evidence.cpu.busy_cores",
    }
    return Evidence(**{**given, **more})


def busy_last(verdict: NodeVerdict, *found: tuple[Evidence, float]) -> NodeVerdict:
    """The verdict with entries of so long ago, by an agent that started a day ago."""
    entries = tuple(LastBusy(evidence=each, at=NOW - timedelta(seconds=ago), ago_seconds=ago) for each, ago in found)
    tally = Tally(since=NOW - timedelta(days=1), node_seconds={}, gpu_seconds={})
    return replace(verdict, last_busy=entries, tally=tally)
