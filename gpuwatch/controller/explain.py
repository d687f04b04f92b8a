"""`explain`: one node in one round, of this moment or of the past, judged again from what the round saw."""

from dataclasses import dataclass

from gpuwatch.controller.context import Round
from gpuwatch.controller.round import explained
from gpuwatch.guard import Rulebook
from gpuwatch.ledger import Entry, Ledger, PastRound
from gpuwatch.model.decision import Review, Step
from gpuwatch.model.fleet import Node
from gpuwatch.runtime.printable import legible


class UnknownNodeError(Exception):
    """The round has no node of that id or unique name; the sentence names some that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A node in a round: its step, every guard rule's answer had it been a removal, its past, what its pool says."""

    node: Node
    step: Step
    review: Review
    history: tuple[Entry, ...]
    pool_says: tuple[str, ...]


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
