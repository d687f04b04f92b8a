"""`gpuwatch explain`: one node in one round, of this moment or of the past, as text and as JSON."""

from datetime import UTC, datetime, timedelta

from gpuwatch.cli import render
from gpuwatch.controller.context import LiveParts, Round
from gpuwatch.controller.explain import NodePage, find_node, node_page
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerError, PastRound
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.model.decision import LedgerView
from gpuwatch.model.duration import format_time
from gpuwatch.runtime.clock import SystemClock
from gpuwatch.runtime.printable import legible


def of_now(parts: LiveParts, done: Round, name: str) -> tuple[str, NodePage]:
    """A node in a round of this moment.

    Raises:
        UnknownNodeError: the node does not exist.

    """
    return _explained(done, parts.rules, parts.ledger, name, done.observation.ledger, round_id=None)


def of_past(settings: LedgerSettings, name: str, *, number: int | None, when: str | None) -> tuple[str, NodePage]:
    """A node in a past round, from the ledger alone: the rules are those that held then.

    Raises:
        UnknownNodeError: that round has no such node.
        LedgerError: the round does not exist, or compaction has dropped it, or the time is not valid.

    """
    ledger = Ledger.connect(settings, read_only=True)
    try:
        past = ledger.round_at(_time(when or "")) if number is None else ledger.round(number)
        if past.rulebook is None:
            raise LedgerError(f"round {past.id} was written by an early gpuwatch, which did not keep its rules")
        orders = ledger.view(SystemClock().now(), recent=timedelta(0))
        return _explained(past, past.rulebook, ledger, name, orders, round_id=past.id)
    finally:
        ledger.close()


def _explained(
    done: Round | PastRound, rules: Rulebook, ledger: Ledger, name: str, orders: LedgerView, *, round_id: int | None
) -> tuple[str, NodePage]:
    """A node in a round, as text and as what the API answers."""
    node = find_node(done, name)
    page = node_page(done, rules, ledger, node, orders, round_id=round_id)
    text = render.explain_text(node, page.step, page.if_stopped_now, page.history)
    if page.pool_reasons:
        text += "".join(("\n\nPool:", *(f"\n    {legible(line)}" for line in page.pool_reasons)))
    if round_id is not None:
        text = f"Round {round_id} of {format_time(page.at, seconds=True)}, under the rules of then.\n\n{text}"
    return text, page


def _time(text: str) -> datetime:
    """An aware time; one without a zone is UTC.

    Raises:
        LedgerError: it is not valid.

    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise LedgerError(f"--at {text!r} is not a time; write for example 2026-01-31T18:00Z") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
