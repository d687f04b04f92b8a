"""Commands about the fleet: controller, plan, status, explain, unused. `render` makes their text."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import a_plan, commands, config_option, explained, json_option, log_to_stderr, say, settings_of

if TYPE_CHECKING:
    from gpuwatch.config.settings import Settings


@commands.command()
@config_option
def controller(path: Path | None) -> None:
    """Run rounds: observe, decide, and act where the mode is `enforce`."""
    with explained():
        from gpuwatch.cli.controller import run  # noqa: PLC0415  likewise
        from gpuwatch.config import load  # noqa: PLC0415  loaded by this command only

        def reread() -> "Settings":
            settings = load(path, os.environ)
            log_to_stderr(settings.log_format)
            return settings

        settings = settings_of(path)
        log_to_stderr(settings.log_format)
        run(settings, reread)


@commands.command()
@config_option
@json_option
def plan(path: Path | None, *, as_json: bool) -> None:
    """Show what a round would do now and what blocks it. Nothing is changed."""
    with a_plan(path) as (_, done):
        from gpuwatch.cli import render as show  # noqa: PLC0415  loaded by this command only

        say(json.dumps(show.plan_object(done)) if as_json else show.plan_text(done))
        sys.exit(1 if done.trouble else 0)


@commands.command()
@config_option
@json_option
def status(path: Path | None, *, as_json: bool) -> None:
    """List the nodes: how each is used, what happens to it next, and why.

    --json prints what GET /api/v1/nodes answers.
    """
    with a_plan(path) as (parts, done):
        from gpuwatch.cli import render as show  # noqa: PLC0415  loaded by this command only
        from gpuwatch.controller.node_row import nodes_page  # noqa: PLC0415  likewise

        if done.trouble:
            say(done.trouble, err=True)
            sys.exit(1)
        page = nodes_page(done, parts.rules)
        if as_json:
            say(show.as_json(page))
            return
        say(show.status_table(page.nodes))
        for line in (
            *show.cautions(parts.rules),
            *show.remarks(done, parts.ledger.leader()),
            *show.untried(done, parts.rules),
        ):
            say(line)


@commands.command()
@click.argument("node")
@click.option("--round", "number", type=int, help="In that past round, as `gpuwatch rounds` lists them.")
@click.option("--at", "when", metavar="TIME", help="In the newest round until then, such as 2026-01-31T18:00Z.")
@config_option
@json_option
def explain(node: str, number: int | None, when: str | None, path: Path | None, *, as_json: bool) -> None:
    """Explain NODE (id or name): verdict, evidence, every guard rule's answer, what would change it, and its history.

    Without --round or --at, the cloud and the agents are asked now. With one of them, only the ledger is read.
    --json prints what GET /api/v1/nodes/NODE answers.
    """
    if number is not None and when is not None:
        raise click.UsageError("give --round or --at, not both")
    from gpuwatch.cli import explain as explaining  # noqa: PLC0415  loaded by this command only
    from gpuwatch.cli import render as show  # noqa: PLC0415  likewise
    from gpuwatch.controller.explain import UnknownNodeError  # noqa: PLC0415  likewise

    try:
        if number is None and when is None:
            with a_plan(path) as (parts, done):
                if done.trouble:
                    say(done.trouble, err=True)
                    sys.exit(1)
                text, found = explaining.of_now(parts, done, node)
        else:
            with explained():
                text, found = explaining.of_past(settings_of(path).ledger, node, number=number, when=when)
    except UnknownNodeError as error:
        say(error, err=True)
        sys.exit(2)
    say(show.as_json(found) if as_json else text)


@commands.command()
@config_option
@json_option
def unused(path: Path | None, *, as_json: bool) -> None:
    """List volumes and addresses that cost money and serve no running machine. Nothing is changed."""
    with explained():
        from gpuwatch.cli.controller import cloud_of  # noqa: PLC0415  likewise
        from gpuwatch.money import unused as left  # noqa: PLC0415  loaded by this command only
        from gpuwatch.runtime.clock import SystemClock  # noqa: PLC0415  likewise

        found = cloud_of(settings_of(path), SystemClock()).leftovers()
        say(json.dumps(left.as_object(found)) if as_json else left.as_text(found))
