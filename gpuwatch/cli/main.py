"""The command line: every room of commands, and the way in."""

import os

from gpuwatch.cli import (
    agent,
    backtest,
    cloud,
    completion,
    config,
    cost,
    demo,
    export,
    export_alerts,
    export_focus,
    export_join,
    fleet,
    forecast,
    join,
    operations,
    prices,
    recommend,
    recommend_commitments,
    recommend_ownership,
    recommend_restarts,
    recommend_spot,
    recommend_vendors,
    report,
    scan,
    version,
)
from gpuwatch.cli.base import commands
from gpuwatch.cli.doctor import command as doctor
from gpuwatch.cli.top import command as top

__all__ = [
    "agent",
    "backtest",
    "cloud",
    "commands",
    "completion",
    "config",
    "cost",
    "demo",
    "doctor",
    "export",
    "export_alerts",
    "export_focus",
    "export_join",
    "fleet",
    "forecast",
    "join",
    "main",
    "operations",
    "prices",
    "recommend",
    "recommend_commitments",
    "recommend_ownership",
    "recommend_restarts",
    "recommend_spot",
    "recommend_vendors",
    "report",
    "scan",
    "top",
    "version",
]


def main() -> int:
    """Run a command; the result is the exit status."""
    try:
        if completion.VARIABLE in os.environ:
            completion.attach()
        commands(prog_name="gpuwatch")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
