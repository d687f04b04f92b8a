"""`gpuwatch join`: who may join, who has, and taking either back; where the controller runs."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.base import above_zero, commands, config_option, json_option, print_text, settings_of

if TYPE_CHECKING:
    from gpuwatch.controller.join.register import Register
    from gpuwatch.controller.join.settings import JoinSettings

AGENTS_KEY = "/var/lib/gpuwatch-agent/join/agent.key"
_LONGEST_DAYS = 90
_MOST_HOSTS = 10_000


@commands.group()
def join() -> None:
    """Let hosts join: each gets a certificate of its own from the controller (docs/join.md)."""


@join.command()
@click.option("--hosts", type=click.IntRange(1, _MOST_HOSTS), default=1, show_default=True, help="How many may use it.")
@click.option(
    "--for",
    "seconds",
    callback=above_zero,
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="How long it holds.",
)
@click.option("--node", metavar="ID", help="For this node alone, also if it has joined before: it was installed again.")
@config_option
def token(*, hosts: int, seconds: float, node: str | None, path: Path | None) -> None:
    """Make a token, with which a host joins, and print it alone. Only its hash is kept."""
    longest = timedelta(days=_LONGEST_DAYS)
    if timedelta(seconds=seconds) > longest:
        raise click.BadParameter(f"a token holds for {_LONGEST_DAYS}d at most", param_hint="--for")
    if node is not None and hosts != 1:
        raise click.UsageError("--node is for one host; leave --hosts out")
    with _open_settings(path) as (settings, register):
        from gpuwatch.controller.join.authority import Authority
        from gpuwatch.controller.join.register import WRONG_NODE_ID, is_node_id
        from gpuwatch.runtime.clock import SystemClock

        if node is not None and not is_node_id(node):
            raise click.BadParameter(WRONG_NODE_ID, param_hint="--node")
        now = SystemClock().now()
        authority, asked = Authority(settings, now), now + timedelta(seconds=seconds)
        pin, until = authority.fingerprint, min(asked, authority.changes_at)
        with register.change(now, authority) as book:
            made = book.make_token(now, until=until, hosts=hosts, node_id=node, pin=pin)
        print_text(made.text())
        whom = f"the node {node}" if node is not None else "1 host" if hosts == 1 else f"{hosts} hosts"
        why = ", when the controller's next authority takes over: make a new token then" if until < asked else ""
        print_text(f"For {whom}, until {until:%Y-%m-%d %H:%M} UTC{why}.", err=True)


@join.command(name="list")
@config_option
@json_option
def listing(*, path: Path | None, as_json: bool) -> None:
    """List tokens and the hosts that have joined."""
    with _open_settings(path) as (_, register):
        from gpuwatch.controller.join.listing import list_joined
        from gpuwatch.runtime.clock import SystemClock
        from gpuwatch.runtime.json_document import json_text

        found = list_joined(register, SystemClock().now())
        print_text(json_text("join.list", found) if as_json else found.text)


@join.command()
@click.argument("what", metavar="NODE|TOKEN")
@config_option
def revoke(*, what: str, path: Path | None) -> None:
    """Take back a node's certificates, or a token by its id: the first part of it, as `gpuwatch join list` shows it.

    The controller does not believe that node's agent any more, from its next round on, and renews nothing for it.
    """
    with _open_settings(path) as (settings, register):
        from gpuwatch.controller.join.authority import Authority
        from gpuwatch.runtime.clock import SystemClock

        now = SystemClock().now()
        with register.change(now, Authority(settings, now)) as book:
            kinds = book.revoke(what, now)
        if not kinds:
            print_text(f"{what} is neither a node that has joined nor a token; see `gpuwatch join list`.", err=True)
            sys.exit(2)
        if "token" in kinds:
            print_text(f"The token {what} is revoked; hosts that have joined by it stay.")
        if "host" in kinds:
            print_text(
                f"Certificates and key of {what} are revoked. To let it join again, move {AGENTS_KEY} away on it, and: "
                f"gpuwatch join token --node {shlex.quote(what)}"
            )


@contextmanager
def _open_settings(path: Path | None) -> "Iterator[tuple[JoinSettings, Register]]":
    """The settings and the register of a controller that lets hosts join; else why not, and exit status 2."""
    from gpuwatch.controller.join.register import Register

    settings = settings_of(path).controller.join
    if settings.host is None:
        print_text(
            "No host can join: controller.join.host is not set. Set it to an address of this machine, such as 0.0.0.0, "
            "and reload the controller.",
            err=True,
        )
        sys.exit(2)
    register = Register(Path(settings.folder))
    try:
        register.check_authority()
        yield settings, register
    except (OSError, ValueError) as error:
        why = f"{error.filename or settings.folder}: {error.strerror}" if isinstance(error, OSError) else str(error)
        if isinstance(error, PermissionError):
            why += ". Run this as root or as the controller's user"
        elif isinstance(error, FileNotFoundError) and not settings.file("ca.pem").exists():
            why = f"{settings.folder} holds no authority yet; start `gpuwatch controller`, which makes it"
        print_text(f"{why}.", err=True)
        sys.exit(2)
