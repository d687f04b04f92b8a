"""Commands on the ledger: pause, resume, rounds, audit."""

import json
import sys
from pathlib import Path

import click

from gpuwatch.commands.base import commands, config_option, duration_or_none, explained, json_option, settings_of

_pool_option = click.option("--pool", help="This pool alone; without it, all of them.")


@commands.command()
@_pool_option
@click.option(
    "--for", "seconds", callback=duration_or_none, metavar="DURATION", help="Such as 2h; else until `resume`."
)
@click.option("--reason", required=True, help="Why; everybody sees it.")
@config_option
def pause(pool: str | None, seconds: float | None, reason: str, path: Path | None) -> None:
    """Let every controller do nothing from its next round on; it goes on looking and telling."""
    with explained():
        from gpuwatch import orders  # noqa: PLC0415  loaded by this command only
        from gpuwatch.clock import SystemClock  # noqa: PLC0415  likewise

        click.echo(orders.pause(settings_of(path).ledger, SystemClock(), pool, seconds, reason))


@commands.command()
@_pool_option
@config_option
def resume(pool: str | None, path: Path | None) -> None:
    """Take pauses back."""
    with explained():
        from gpuwatch import orders  # noqa: PLC0415  loaded by this command only
        from gpuwatch.clock import SystemClock  # noqa: PLC0415  likewise

        click.echo(orders.resume(settings_of(path).ledger, SystemClock(), pool))


@commands.command()
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many.")
@config_option
@json_option
def rounds(limit: int, path: Path | None, *, as_json: bool) -> None:
    """List the newest rounds on record."""
    with explained():
        from gpuwatch import orders  # noqa: PLC0415  loaded by this command only

        lines = orders.rounds(settings_of(path).ledger, limit)
        click.echo(json.dumps(orders.rounds_object(lines)) if as_json else orders.rounds_text(lines))


@commands.group()
def audit() -> None:
    """Check the ledger."""


@audit.command()
@click.option("--anchor", metavar="LINK:HASH", help="A head that an earlier run printed.")
@config_option
def verify(anchor: str | None, path: Path | None) -> None:
    """Say whether the records are as they were written; exit status 1 where one is not, and which is the first."""
    with explained():
        from gpuwatch import orders  # noqa: PLC0415  loaded by this command only

        told, well = orders.audit(settings_of(path).ledger, anchor)
        click.echo(told, err=not well)
        sys.exit(0 if well else 1)
