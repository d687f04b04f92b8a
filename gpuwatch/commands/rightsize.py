"""The command that finds machines larger than what was measured on them."""

import json
from pathlib import Path

import click

from gpuwatch.commands.advise import advise
from gpuwatch.commands.base import above_zero, config_option, explained, json_option, say, settings_of


@advise.command()
@click.option(
    "--over", callback=above_zero, default="7d", show_default=True, help="Unused for so long; peaks of that time."
)
@config_option
@json_option
def rightsize(over: float, path: Path | None, *, as_json: bool) -> None:
    """GPUs that nobody uses beside ones that work, and work that a part of a GPU would hold."""
    with explained():
        from gpuwatch import sizing  # noqa: PLC0415  loaded by this command only
        from gpuwatch.clock import SystemClock  # noqa: PLC0415  likewise

        found = sizing.told(settings_of(path).ledger, SystemClock(), over)
        say(json.dumps(sizing.as_json(found)) if as_json else sizing.as_text(found))
