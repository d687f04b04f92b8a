"""`explain`: one node in one round, of this moment or of the past, judged again from what the round saw."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gpuwatch import show
from gpuwatch.controller import explained
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Entry, Ledger, LedgerError, PastRound
from gpuwatch.legible import legible
from gpuwatch.model.decision import Review, Step
from gpuwatch.model.fleet import Node
from gpuwatch.parts import Parts, Round
from gpuwatch.settings import Settings


class UnknownNodeError(Exception):
    """The round has no node of that id or unique name; the sentence names some that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An explanation, for people and for programs."""

    as_text: str
    as_object: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A node in a round: its step, every guard rule's answer had it been a removal, its past, what its pool says."""

    node: Node
    step: Step
    review: Review
    history: tuple[Entry, ...]
    pool_says: tuple[str, ...]


def of_now(parts: Parts, done: Round, name: str) -> Told:
    """A node in a round of this moment.

    Raises:
        UnknownNodeError: there is no such node.

    """
    return _told(done, parts.rules, parts.ledger, name, round_id=None)


def of_past(settings: Settings, name: str, *, number: int | None, when: str | None) -> Told:
    """A node in a past round, from the ledger alone: the rules are those that held then.

    Raises:
        UnknownNodeError: that round has no such node.
        LedgerError: there is no such round, or compaction has dropped it, or the time is none.

    """
    ledger = Ledger.connect(settings.ledger, read_only=True)
    try:
        past = ledger.round_at(_time(when or "")) if number is None else ledger.round(number)
        if past.rulebook is None:
            raise LedgerError(f"round {past.id} was written by an early gpuwatch, which did not keep its rules")
        return _told(past, past.rulebook, ledger, name, round_id=past.id)
    finally:
        ledger.close()


def judged(done: Round | PastRound, rules: Rulebook, ledger: Ledger, name: str, *, round_id: int | None) -> Judged:
    """A node in a round; in a past one, which has an id, its past ends with that round.

    Raises:
        UnknownNodeError: the round has no such node.

    """
    observation = done.observation
    node = observation.fleet.node(name)
    if node is None:
        known = ", ".join(legible(each.name) for each in observation.fleet.nodes[:10]) or "none"
        raise UnknownNodeError(f"No GPU node has the id or the unique name {name!r}. There are: {known}.")
    step, review = explained(observation, done.decisions, node, rules)
    history: tuple[Entry, ...] = ledger.history(node.id)
    if round_id is not None:
        history = tuple(entry for entry in history if entry.intent.at <= observation.now)
    pool = [each for each in done.proposals if each.pool == node.pool and each.policy != "idle"]
    decided = next(each for each in done.decisions if each.pool == node.pool)
    advice = [each for each in decided.advice if each.target in {node.id, node.pool}]
    lines = [f"{each.policy}: {each.reason.sentence}" for each in pool] + list(decided.clamps)
    lines += [f"advice: {each.reason.sentence}" for each in advice]
    return Judged(node=node, step=step, review=review, history=history, pool_says=tuple(lines))


def _told(done: Round | PastRound, rules: Rulebook, ledger: Ledger, name: str, *, round_id: int | None) -> Told:
    """A node in a round, rendered."""
    found, now = judged(done, rules, ledger, name, round_id=round_id), done.observation.now
    parts = (found.node, found.step, found.review, found.history)
    text, lines = show.explain_text(*parts), list(found.pool_says)
    text += "".join(("\n\nPool:", *(f"\n    {legible(line)}" for line in lines))) if lines else ""
    if round_id is not None:
        text = f"Round {round_id} of {now:%Y-%m-%d %H:%M:%S} UTC, under the rules of then.\n\n{text}"
    extra = {"round": round_id, "at": now.isoformat(), "pool_says": lines}
    return Told(as_text=text, as_object={**show.explain_object(*parts), **extra})


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
