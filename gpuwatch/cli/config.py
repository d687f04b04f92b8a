"""`gpuwatch config`: check the configuration, or print its schema."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.cli.base import commands, config_option, say, settings_of

if TYPE_CHECKING:
    from gpuwatch.config.settings import Settings


@commands.group()
def config() -> None:
    """Check the configuration, or print its schema."""


@config.command()
@config_option
def check(path: Path | None) -> None:
    """Show the settings in force, or every mistake with its remedy (exit status 2)."""
    from gpuwatch.config import default_path  # noqa: PLC0415  loaded by this command only
    from gpuwatch.policies.validation import warnings  # noqa: PLC0415  likewise

    settings = settings_of(path)
    source = path or default_path(os.environ) or "no file, all defaults"
    say(f"OK: {source}: {settings.summary}")
    for each in warnings(settings.pools):
        say(f"Warning: {each.wrong}\n    better: {each.right}")
    for line in settings.cautions:
        say(f"Warning: {line}")
    for line in _untried(settings):
        say(f"Warning: {line}")


def _untried(settings: "Settings") -> list[str]:
    """The pools that wait for a backtest, where one is required and the ledger can be asked."""
    if settings.limits.require_backtest is None:
        return []
    from gpuwatch.controller import operations  # noqa: PLC0415  loaded where a backtest is required
    from gpuwatch.ledger import LedgerError  # noqa: PLC0415  likewise
    from gpuwatch.runtime.clock import SystemClock  # noqa: PLC0415  likewise

    try:
        found = list(operations.untried(settings.ledger, SystemClock(), settings.rulebook))
    except LedgerError as error:
        return [f"limits.require_backtest is set, and the recorded backtests cannot be read: {error}"]
    return [f"pool {pool} removes no node: {sentence}\n    {remedy}" for pool, (_, sentence, remedy) in found]


@config.command()
def schema() -> None:
    """Print the JSON Schema of the file, for editors."""
    from gpuwatch import config as configuration  # noqa: PLC0415  loaded by this command only

    say(json.dumps(configuration.schema(), indent=2))
