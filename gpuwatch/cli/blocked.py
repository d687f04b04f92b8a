"""`gpuwatch blocked`: the money a day of machines without use that no rule lets gpuwatch save."""

import shutil
import sys
from pathlib import Path

import click

from gpuwatch.cli.base import a_plan, commands, config_option, json_option, refuse_unknown_pools, say


@commands.command()
@click.option("--pool", "only", metavar="NAME", help="One pool only.")
@config_option
@json_option
def blocked(only: str | None, path: Path | None, *, as_json: bool) -> None:
    """Show the idle money a day that no rule lets gpuwatch save: what holds it, what would free it, and the risk.

    A machine that several rules hold counts once, under the one to deal with first; `frees` says what else it takes.
    A busy machine is never in it. Machines of unknown use may be busy: their money is shown apart. --json prints what
    GET /api/v1/blocked answers.
    """
    with a_plan(path) as (parts, done):
        import msgspec  # noqa: PLC0415  loaded by this command only

        from gpuwatch.money.blocked.blocked import blocked as blocked_of  # noqa: PLC0415  likewise
        from gpuwatch.money.blocked.text import as_text  # noqa: PLC0415  likewise
        from gpuwatch.runtime.json_document import json_text  # noqa: PLC0415  loaded by this command only

        if done.trouble:
            say(done.trouble, err=True)
            sys.exit(1)
        refuse_unknown_pools(() if only is None else (only,), parts, done)
        found = blocked_of(done.observation, done.decisions, done.reviews, parts.rules, pool=only)
        if as_json:
            say(json_text("blocked", msgspec.to_builtins(found)))
        else:
            say(as_text(found, shutil.get_terminal_size().columns))
