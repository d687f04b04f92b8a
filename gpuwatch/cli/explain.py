"""`gpuwatch explain`: one node in one round, of this moment or of the past, as text and as JSON."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpuwatch.cli import render
from gpuwatch.controller.context import LiveParts, Round
from gpuwatch.controller.explain import judged
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Ledger, LedgerError, PastRound
from gpuwatch.ledger.settings import LedgerSettings
from gpuwatch.runtime.printable import legible


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """An explanation, for people and for programs."""

    as_text: str
    as_object: dict[str, Any]


def of_now(parts: LiveParts, done: Round, name: str) -> Explanation:
    """A node in a round of this moment.

    Raises:
        UnknownNodeError: there is no such node.

    """
    return _told(done, parts.rules, parts.ledger, name, round_id=None)


def of_past(settings: LedgerSettings, name: str, *, number: int | None, when: str | None) -> Explanation:
    """A node in a past round, from the ledger alone: the rules are those that held then.

    Raises:
        UnknownNodeError: that round has no such node.
        LedgerError: there is no such round, or compaction has dropped it, or the time is none.

    """
    ledger = Ledger.connect(settings, read_only=True)
    try:
        past = ledger.round_at(_time(when or "")) if number is None else ledger.round(number)
        if past.rulebook is None:
            raise LedgerError(f"round {past.id} was written by an early gpuwatch, which did not keep its rules")
        return _told(past, past.rulebook, ledger, name, round_id=past.id)
    finally:
        ledger.close()


def _told(done: Round | PastRound, rules: Rulebook, ledger: Ledger, name: str, *, round_id: int | None) -> Explanation:
    """A node in a round, rendered."""
    found, now = judged(done, rules, ledger, name, round_id=round_id), done.observation.now
    parts = (found.node, found.step, found.review, found.history)
    text, lines = render.explain_text(*parts), list(found.pool_says)
    text += "".join(("\n\nPool:", *(f"\n    {legible(line)}" for line in lines))) if lines else ""
    if round_id is not None:
        text = f"Round {round_id} of {now:%Y-%m-%d %H:%M:%S} UTC, under the rules of then.\n\n{text}"
    extra = {"round": round_id, "at": now.isoformat(), "pool_says": lines}
    return Explanation(as_text=text, as_object={**render.explain_object(*parts), **extra})


def _time(text: str) -> datetime:
    """An aware time; one without a zone is UTC.

    Raises:
        LedgerError: it is none.

    """
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise LedgerError(f"--at {text!r} is no time; write for example 2026-01-31T18:00Z") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
