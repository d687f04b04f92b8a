"""The command line: every room of commands, and the way in."""

from gpuwatch.commands import backtest, config, demo, fleet, host, records
from gpuwatch.commands.base import commands

__all__ = ["backtest", "commands", "config", "demo", "fleet", "host", "main", "records"]


def main() -> int:
    """Run a command; the result is the exit status."""
    try:
        commands(prog_name="gpuwatch")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
