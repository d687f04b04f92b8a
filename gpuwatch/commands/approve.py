"""Commands on removals that wait for an operator's approval."""

import json
from pathlib import Path

import click

from gpuwatch.commands.base import commands, config_option, explained, json_option, say, settings_of


@commands.command()
@click.argument("nodes", metavar="[NODE]...", nargs=-1)
@click.option("--reason", default="", help="Why; everybody sees it.")
@config_option
@json_option
def approve(nodes: tuple[str, ...], reason: str, path: Path | None, *, as_json: bool) -> None:
    """Let nodes go as their notices say, where `pools.NAME.approval` asks for it; without NODE, list who waits."""
    with explained():
        from gpuwatch import approving  # noqa: PLC0415  loaded by this command only
        from gpuwatch.clock import SystemClock  # noqa: PLC0415  likewise
        from gpuwatch.legible import legible  # noqa: PLC0415  likewise

        settings = settings_of(path)
        if nodes:
            given = approving.approve(settings.ledger, SystemClock(), settings.rulebook, nodes, reason)
            told = [{"node": each.node_id, "notice": each.key, "at": each.at.isoformat()} for each in given]
            text = "\n".join(f"Approved: {each.node_id}; it goes if it still has no use then." for each in given)
        else:
            found = approving.listed(settings.ledger, SystemClock(), settings.rulebook)
            told = [
                {
                    "node": each.node.id,
                    "name": each.node.name,
                    "pool": each.node.pool,
                    "noticed": each.noticed.isoformat(),
                    "due": each.due.isoformat(),
                    "why": each.why,
                }
                for each in found
            ]
            text = "\n".join(
                legible(
                    f"{each.node.id}  {each.node.name}  pool {each.node.pool}, noticed {each.noticed:%Y-%m-%d %H:%M}Z, "
                    f"may go from {each.due:%H:%M}Z on. {each.why}"
                )
                for each in found
            )
        say(json.dumps(told) if as_json else text or "No node waits for an approval.")
