"""The command line: every room of commands, and the way in."""

from gpuwatch.cli import (
    agent,
    backtest,
    budget,
    config,
    cost,
    demo,
    fleet,
    forecast,
    notify,
    operations,
    prices,
    recommend,
    recommend_commitments,
    report,
)
from gpuwatch.cli.base import commands
from gpuwatch.cli.doctor import command as doctor
from gpuwatch.cli.top import command as top

__all__ = [
    "agent",
    "backtest",
    "budget",
    "commands",
    "config",
    "cost",
    "demo",
    "doctor",
    "fleet",
    "forecast",
    "main",
    "notify",
    "operations",
    "prices",
    "recommend",
    "recommend_commitments",
    "report",
    "top",
]


def main() -> int:
    """Run a command; the result is the exit status."""
    try:
        commands(prog_name="gpuwatch")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
