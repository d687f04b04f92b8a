"""Commands about the fleet: controller, plan, status, explain, unused. `render` makes their text."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import (
    a_plan,
    above_zero,
    commands,
    config_option,
    explain_errors,
    json_option,
    log_to_stderr,
    print_text,
    refuse_unknown_pools,
    say_if_unconfigured,
    settings_of,
)
from gpuwatch.runtime.json_document import fill_document, json_text

if TYPE_CHECKING:
    from gpuwatch.cli.last_round import Looked
    from gpuwatch.cli.status import Choice
    from gpuwatch.config.settings import Settings
    from gpuwatch.model.nodes_page import NodesPage

# Lines of `plan` by their beginnings.
_PLANNED = {
    "would stop": "state.stalled",
    "would terminate": "state.stalled",
    "would ": "tint.idle",
    "Warning": "tint.idle",
}
# Likewise of `explain`.
EXPLAINED = {"    refuses": "tint.idle", "Remedy:": "bold", "What would change it:": "bold"}


@commands.command()
@config_option
def controller(path: Path | None) -> None:
    """Run rounds: observe, decide, and act where the mode is `enforce`."""
    with explain_errors():
        from gpuwatch.cli.controller import Chosen, run
        from gpuwatch.config import load
        from gpuwatch.config.chosen_file import fingerprint

        def chosen(read: "Callable[[], Settings]") -> Chosen:
            known = fingerprint(path, os.environ)
            settings = read()
            log_to_stderr(settings.log_format)
            return Chosen(settings=settings, fingerprint=known)

        run(chosen(lambda: settings_of(path)), lambda: chosen(lambda: load(path, os.environ)))


@commands.command()
@config_option
@json_option
def plan(path: Path | None, *, as_json: bool) -> None:
    """Show what a round would do now and what blocks it. Nothing is changed."""
    with a_plan(path) as (parts, done):
        from gpuwatch.cli import render as show
        from gpuwatch.controller.plan_page import plan_page

        if as_json:
            print_text(json_text("plan", plan_page(done, parts.rules)))
        else:
            from gpuwatch.cli.console import show_lines as print_lines
            from gpuwatch.cli.console import style_line

            print_lines(style_line(line, _PLANNED) for line in show.plan_text(done).split("\n"))
        sys.exit(1 if done.trouble else 0)


def _watch_seconds(context: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Seconds from one look to the next; None: one look only."""
    return None if value is None else above_zero(context, param, value)


def _states(_: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Words that are a state of a node or of its use."""
    from gpuwatch.model.activity import State
    from gpuwatch.model.fleet import NodeState

    known = tuple(dict.fromkeys(each.value for each in (*State, *NodeState)))
    wrong = next((each for each in value if each not in known), None)
    if wrong is not None:
        raise click.BadParameter(f"{wrong!r} is not one of {', '.join(known)}", param=param)
    return value


@commands.command()
@click.option("--pool", "pools", multiple=True, metavar="POOL", help="Only this pool; may be repeated.")
@click.option(
    "--owner", "owners", multiple=True, metavar="OWNER", help="Only this owner; `none` lists nodes without one."
)
@click.option(
    "--state", "states", multiple=True, callback=_states, help="In this state only: idle, busy, stopped, unknown ..."
)
@click.option(
    "--sort",
    type=click.Choice(["use", "name", "cost", "for", "owner", "pool"]),
    default="use",
    show_default=True,
    help="What comes first: the busy, the dearest, the longest in its state ...",
)
@click.option(
    "--watch",
    "seconds",
    callback=_watch_seconds,
    is_flag=False,
    flag_value="30s",
    metavar="[TIME]",
    help="Draw it again and again, until Ctrl-C [every 30s]. Each time the cloud and the agents are asked.",
)
@config_option
@json_option
def status(
    *,
    pools: tuple[str, ...],
    owners: tuple[str, ...],
    states: tuple[str, ...],
    sort: str,
    seconds: float | None,
    path: Path | None,
    as_json: bool,
) -> None:
    """List the nodes: owner, cost, how each is used, what happens to it next, and why.

    If a controller with the same settings runs on this machine, its last round is shown, and how old it is. Else the
    cloud and the agents are asked.

    In a narrow terminal columns shrink or go; the reason stays. --json prints what GET /api/v1/nodes answers, with its
    schema and the account's quotas. The exit status is 1 if machines run and the use of none is known, or if all
    machines with a fleet are of other fleets.
    """
    if seconds is not None:
        _watch(path, (pools, owners, states, sort), seconds, as_json=as_json)
        return
    from gpuwatch.cli import status as listing

    looked = _look_at_fleet(path)
    refuse_unknown_pools(pools, looked.pools)
    choice = listing.Choice(pools=pools, owners=owners, states=states, sort=sort)
    page = choice.chosen_nodes(looked.page)
    if as_json:
        from gpuwatch.model.nodes_page import StatusPage

        for trouble in looked.limits.troubles:
            print_text(trouble, err=True)
        print_text(json_text("status", fill_document(StatusPage, page, quotas=looked.limits.rows)))
    else:
        _print_status(looked, page, choice)
    sys.exit(1 if listing.all_unknown(page) or looked.wrong_fleet else 0)


def _look_at_fleet(path: Path | None) -> "Looked":
    """The last round of the controller of these settings, if it runs here; else what a look of our own shows."""
    from gpuwatch.cli.last_round import UnusedError, last_round

    note = None
    try:
        if (found := last_round(path, os.environ)) is not None:
            from gpuwatch.model.currency import show_in

            show_in(found.currency)
            say_if_unconfigured(path)
            return found
    except UnusedError as error:
        note = f"Asked now, and not taken from the controller here: {str(error).rstrip('.')}."
    with a_plan(path) as (parts, done):
        from gpuwatch.cli.quotas import ask_clouds
        from gpuwatch.cli.render import show_round
        from gpuwatch.runtime.translation import translate_text

        if done.trouble:
            print_text(translate_text(done.trouble), err=True)
            sys.exit(1)
        return replace(show_round(parts, done), limits=ask_clouds(parts.cloud), note=note)


def _print_status(looked: "Looked", page: "NodesPage", choice: "Choice") -> None:
    """The table of the chosen nodes, and everything beneath it."""
    from gpuwatch.cli import status as listing
    from gpuwatch.cli import status_pods as pods
    from gpuwatch.cli.console import console, width_of
    from gpuwatch.cli.console import show_lines as print_lines
    from gpuwatch.runtime.translation import translate_text

    out = console()
    print_lines(
        [
            *listing.table(page, choice, width_of(out)),
            *map(translate_text, (listing.totals(page), *listing.hints(page))),
            *map(translate_text, pods.cluster_lines(page)),
            *pods.pods_table(page, width_of(out)),
            *pods.workloads_table(page, width_of(out)),
            *map(translate_text, (*looked.beneath, *looked.limits.lines)),
            *map(translate_text, () if looked.note is None else (looked.note,)),
        ],
        out,
    )


def _watch(
    path: Path | None,
    choose: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str],
    seconds: float,
    *,
    as_json: bool,
) -> None:
    """`status --watch`: one set of parts, a round at each look, nothing recorded."""
    from gpuwatch.cli.console import console, is_interactive

    if as_json or not is_interactive():
        raise click.UsageError("--watch needs a terminal, and text: leave --json and pipes away")
    with explain_errors():
        from gpuwatch.cli.console import watch
        from gpuwatch.cli.parts import assemble_parts
        from gpuwatch.cli.status import Choice, screen
        from gpuwatch.controller.round import step
        from gpuwatch.runtime.clock import SystemClock

        pools, owners, states, sort = choose
        choice = Choice(pools=pools, owners=owners, states=states, sort=sort)
        with assemble_parts(settings_of(path), read_only=True) as parts:
            watch(
                lambda *size: screen(step(parts, act=False), parts.rules, choice, *size),
                console(),
                SystemClock(),
                seconds,
            )


@commands.command()
@click.argument("node")
@click.option(
    "--round", "number", type=click.IntRange(1, 2**63 - 1), help="In that past round, as `gpuwatch rounds` lists them."
)
@click.option("--at", "when", metavar="TIME", help="In the newest round until then, such as 2026-01-31T18:00Z.")
@click.option("-v", "--verbose", is_flag=True, help="Every signal, every rule's answer, and the whole history.")
@config_option
@json_option
def explain(
    node: str, number: int | None, when: str | None, path: Path | None, *, verbose: bool, as_json: bool
) -> None:
    """Explain NODE (id or name): what happens to it next and why, what would change it, then the evidence.

    A workload of a Kubernetes cluster that holds GPUs is named NAMESPACE/KIND/NAME, such as team-a/notebook/alice.

    Without --round or --at, the cloud and the agents are asked now. With one of them, only the ledger is read.
    --json prints what GET /api/v1/nodes/NODE answers, with its schema.
    """
    if number is not None and when is not None:
        raise click.UsageError("give --round or --at, not both")
    from gpuwatch.cli import explain as explaining
    from gpuwatch.controller.explain import UnknownNodeError
    from gpuwatch.runtime.translation import translate_text

    try:
        if number is None and when is None:
            with a_plan(path) as (parts, done):
                if done.trouble:
                    print_text(translate_text(done.trouble), err=True)
                    sys.exit(1)
                text, found = explaining.found_now(parts, done, node, verbose=verbose)
        else:
            with explain_errors():
                text, found = explaining.found_past(
                    settings_of(path).ledger, node, number=number, when=when, verbose=verbose
                )
    except UnknownNodeError as error:
        print_text(error, err=True)
        sys.exit(2)
    if as_json:
        if found is None:
            raise click.UsageError("--json explains machines; `gpuwatch status --json` has all workloads")
        print_text(json_text("explain", found))
        return
    from gpuwatch.cli.console import show_lines as print_lines
    from gpuwatch.cli.console import style_line

    styles = {
        f"{begin[: -len(begin.lstrip())]}{translate_text(begin.strip())}": style for begin, style in EXPLAINED.items()
    }
    print_lines(style_line(line, styles) for line in text.split("\n"))


@commands.command()
@config_option
@json_option
def unused(path: Path | None, *, as_json: bool) -> None:
    """List disks, snapshots, images and addresses that serve no running machine, and sum up disks in use.

    Each has its list price a month, or "?" where that is not known. Nothing is changed.

    The exit status is 1 where a cloud or a region gave no answer.
    """
    with explain_errors():
        from gpuwatch.cli.parts import cloud_of
        from gpuwatch.money import unused as left
        from gpuwatch.runtime.clock import SystemClock

        clock = SystemClock()
        found, silent = left.list_leftovers(cloud_of(settings_of(path), clock))
        today = clock.now().date()
        if as_json:
            print_text(json_text("unused", left.unused_document(found, silent, today=today)))
        else:
            print_text(left.as_text(found, silent, today=today))
        sys.exit(1 if silent else 0)
