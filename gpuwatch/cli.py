"""The command line: every room of commands, and the way in."""

from gpuwatch.commands import (
    approve,
    backtest,
    budget,
    choice,
    commitments,
    config,
    demo,
    doctor,
    fleet,
    forecast,
    host,
    money,
    notify,
    prices,
    records,
    report,
    rightsize,
)
from gpuwatch.commands.base import commands

__all__ = [
    "approve",
    "backtest",
    "budget",
    "choice",
    "commands",
    "commitments",
    "config",
    "demo",
    "doctor",
    "fleet",
    "forecast",
    "host",
    "main",
    "money",
    "notify",
    "prices",
    "records",
    "report",
    "rightsize",
]


def main() -> int:
    """Run a command; the result is the exit status."""
    try:
        commands(prog_name="gpuwatch")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
