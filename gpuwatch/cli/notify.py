"""The command `notify test`."""

import sys
from pathlib import Path

import click

from gpuwatch.cli.base import commands, config_option, explained, json_option, say, settings_of
from gpuwatch.runtime.json_document import json_text


@commands.group()
def notify() -> None:
    """Check that notifications reach people."""


@notify.command()
@click.argument("name", required=False)
@click.option("--owner", metavar="OWNER", help="Send as for this owner's nodes, where mail goes to owners.")
@config_option
@json_option
def test(name: str | None, owner: str | None, path: Path | None, *, as_json: bool) -> None:
    """Send a test message to NAME of notify.receivers, or to all of them."""
    with explained():
        from zoneinfo import ZoneInfo  # noqa: PLC0415  loaded by this command only

        from gpuwatch.controller.operations import operator_name  # noqa: PLC0415  likewise
        from gpuwatch.notify.send_test import Sender, SentDocument, send_test  # noqa: PLC0415  likewise
        from gpuwatch.runtime.clock import SystemClock  # noqa: PLC0415  loaded by this command only
        from gpuwatch.runtime.printable import legible  # noqa: PLC0415  likewise

        settings = settings_of(path)
        there = settings.notify.receivers
        if name is not None and name not in there:
            raise click.BadParameter(f"{name!r} is not a receiver; notify.receivers has {', '.join(there) or 'none'}")
        if not there:
            raise click.UsageError("notify.receivers has no receiver: nothing is sent")
        sender = Sender(
            notify=settings.notify,
            fleet=settings.fleet,
            zone=ZoneInfo(settings.cost.timezone),
            clock=SystemClock(),
            who=operator_name(),
        )
        results = []
        for each in send_test(sender, [name] if name is not None else list(there), owner):
            results.append(each)
            if not as_json:
                say(legible(f"{each.name}: {each.text}"), err=not each.arrived)
        if as_json:
            say(json_text("notify.test", SentDocument(deliveries=results)))
    if not all(each.arrived for each in results):
        sys.exit(1)
