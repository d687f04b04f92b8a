"""Commands on the ledger: pause, resume, acknowledge, rounds, audit log, audit verify."""

import sys
from pathlib import Path

import click

from gpuwatch.cli.base import (
    commands,
    config_option,
    duration_or_none,
    explain_errors,
    json_option,
    print_text,
    settings_of,
)
from gpuwatch.runtime.json_document import json_text

_pool_option = click.option("--pool", help="Only this pool; without it, all pools.")


@commands.command()
@_pool_option
@click.option(
    "--for", "seconds", callback=duration_or_none, metavar="DURATION", help="Such as 2h; else until `resume`."
)
@click.option("--reason", required=True, help="Why; everybody sees it.")
@config_option
@json_option
def pause(pool: str | None, seconds: float | None, reason: str, path: Path | None, *, as_json: bool) -> None:
    """Pause all actions: no call leaves after it. Observation, metrics and notifications continue."""
    with explain_errors():
        from gpuwatch.controller import operations
        from gpuwatch.runtime.clock import SystemClock

        settings = settings_of(path)
        operations.check_pool(pool, settings.rulebook.known)
        given = operations.pause(settings.ledger, SystemClock(), pool, seconds, reason)
        print_text(json_text("pause", given) if as_json else operations.pause_text(given))


@commands.command()
@_pool_option
@config_option
@json_option
def resume(pool: str | None, path: Path | None, *, as_json: bool) -> None:
    """Resume after a pause. Earlier notices are withdrawn; idle nodes get new ones."""
    with explain_errors():
        from gpuwatch.controller import operations
        from gpuwatch.controller.order_documents import ResumeDocument
        from gpuwatch.runtime.clock import SystemClock

        settings, clock = settings_of(path), SystemClock()
        before = operations.pauses(settings.ledger, clock)
        operations.check_pool(pool, (*settings.rulebook.known, *(each.pool for each in before if each.pool)))
        held = operations.resume(settings.ledger, clock, pool)
        document = ResumeDocument(pool=pool, still_paused=held)
        print_text(json_text("resume", document) if as_json else operations.resume_text(pool, held, before))


@commands.command()
@_pool_option
@click.option("--reason", default="", help="How you know; it is recorded with your name.")
@config_option
@json_option
def acknowledge(pool: str | None, reason: str, path: Path | None, *, as_json: bool) -> None:
    """Unfreeze a pool after many of its nodes became idle at once, because they are really idle."""
    with explain_errors():
        from gpuwatch.controller import operations
        from gpuwatch.runtime.clock import SystemClock

        settings = settings_of(path)
        operations.check_pool(pool, settings.rulebook.known)
        given = operations.acknowledge(settings.ledger, SystemClock(), pool, reason)
        frozen = () if as_json else operations.frozen_pools(settings.ledger)
        print_text(json_text("acknowledge", given) if as_json else operations.acknowledge_text(pool, frozen))


@commands.command()
@click.option("--limit", type=click.IntRange(1, 100_000), default=20, show_default=True, help="How many.")
@config_option
@json_option
def rounds(limit: int, path: Path | None, *, as_json: bool) -> None:
    """List the newest rounds on record."""
    with explain_errors():
        from gpuwatch.controller import operations
        from gpuwatch.controller.order_documents import RoundsPage

        lines = operations.rounds(settings_of(path).ledger, limit)
        document = RoundsPage(rounds=lines)
        print_text(json_text("rounds", document) if as_json else operations.rounds_text(lines))


@commands.group()
def audit() -> None:
    """Show who did what, and verify that no record was changed."""


@audit.command()
@click.option("--node", "node_id", metavar="NODE", help="Only this machine: its id or name.")
@click.option("--pool", help="Only this pool, with what applies to all pools.")
@click.option("--since", metavar="TIME", help="Only since then: 7d, or 2026-01-31T18:00Z.")
@click.option("--only", "whats", multiple=True, metavar="WHAT", help="Such as pause or stop; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many, newest first.")
@config_option
@json_option
def log(
    node_id: str | None,
    pool: str | None,
    since: str | None,
    whats: tuple[str, ...],
    limit: int,
    path: Path | None,
    *,
    as_json: bool,
) -> None:
    """List orders, actions and messages, newest first: who, when, what, why, and the result."""
    with explain_errors():
        from gpuwatch.controller import operations
        from gpuwatch.controller.order_documents import AuditLogDocument
        from gpuwatch.ledger.audit_log import DEEDS, Asked
        from gpuwatch.runtime.clock import SystemClock
        from gpuwatch.simulate.backtest.sources.window import past_moment

        for each in whats:
            if each not in DEEDS:
                raise click.BadParameter(f"{each!r} is not one of {', '.join(DEEDS)}", param_hint="--only")
        try:
            begin = None if since is None else past_moment(since, SystemClock().now())
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--since") from error
        settings = settings_of(path)
        asked = Asked(limit=limit, whats=whats, node_id=node_id, pool=pool, since=begin)
        found = operations.trail(settings.ledger, asked, settings.rulebook.known)
        document = AuditLogDocument(records=found)
        print_text(json_text("audit.log", document) if as_json else operations.trail_text(found))


@audit.command()
@click.option("--anchor", metavar="LINK:HASH", help="A head that an earlier run printed.")
@config_option
@json_option
def verify(anchor: str | None, path: Path | None, *, as_json: bool) -> None:
    """Verify that the records are as they were written. If not, exit status 1, and the first bad record is named."""
    with explain_errors():
        from gpuwatch.controller import operations
        from gpuwatch.controller.order_documents import audit_document

        found = operations.audit(settings_of(path).ledger, anchor)
        well = found.broken is None
        if as_json:
            print_text(json_text("audit.verify", audit_document(found)))
        else:
            print_text(operations.audit_text(found), err=not well)
        sys.exit(0 if well else 1)


@commands.command()
@click.argument("nodes", metavar="[NODE]...", nargs=-1)
@click.option("--reason", default="", help="Why; everybody sees it.")
@config_option
@json_option
def approve(nodes: tuple[str, ...], reason: str, path: Path | None, *, as_json: bool) -> None:
    """Approve the notices of nodes in pools with `pools.NAME.approval`. Without NODE, list the nodes that wait."""
    with explain_errors():
        from gpuwatch.controller import operations as approvals
        from gpuwatch.controller.order_documents import ApproveDocument, waiting_document
        from gpuwatch.runtime.clock import SystemClock
        from gpuwatch.runtime.printable import legible

        settings = settings_of(path)
        if nodes:
            given = approvals.approve(settings.ledger, SystemClock(), settings.rulebook, nodes, reason)
            document = ApproveDocument(approved=given)
            text = "\n".join(f"Approved: {each.node_id}; it goes if it still has no use then." for each in given)
        else:
            found = approvals.list_waiting(settings.ledger, SystemClock(), settings.rulebook)
            document = waiting_document(found)
            text = "\n".join(
                legible(
                    f"{each.node.id}  {each.node.name}  pool {each.node.pool}, noticed {each.noticed:%Y-%m-%d %H:%M}Z, "
                    f"may go from {each.due:%H:%M}Z on. {each.why}"
                )
                for each in found
            )
        print_text(json_text("approve", document) if as_json else text or "No node waits for an approval.")
