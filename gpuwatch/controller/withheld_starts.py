"""Stopped machines that their pool wants, and that are not started: their owners get a message, once.

Rules, all of them:

1. A start is withheld if it was decided and the guard refuses it, or its cloud did not carry it out, or no turn came to
   it. So it is if its cloud does not show the machine now, and showed it stopped before, while its pool has too few
   without it. Such a machine counts towards its pool's size: it may have been started.
2. After ten minutes the newest reason is written down. A quarter of an hour without a wish ends the wait.
3. It is said once, and again after three days, or once the machine has run since. An owner who got the message that its
   starts do not last (launched.py) gets no second one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from gpuwatch.controller.context import ControllerContext, Withheld
from gpuwatch.controller.interruptions import Record, write_record
from gpuwatch.controller.launched import told_of_starts
from gpuwatch.model.decision import (
    GIVEN_UP,
    NOT_DONE,
    SETTLE_TIMEOUT,
    Decision,
    Intent,
    Observation,
    Reason,
    Review,
    Status,
    Verb,
)
from gpuwatch.model.duration import format_time
from gpuwatch.policies import machines
from gpuwatch.policies.lasting import STARTS
from gpuwatch.policies.lives import THERE
from gpuwatch.policies.starts import WITHHELD, unseen_startable

_FORGOTTEN = timedelta(minutes=15)
_NO_NEWS = ""  # it is not done, and what its cloud said before that is the better reason
_UNDONE = NOT_DONE | {Status.UNAVAILABLE}


def record_withheld_starts(
    parts: ControllerContext,
    observation: Observation,
    decisions: Sequence[Decision],
    reviews: Sequence[Review],
    round_id: int,
) -> tuple[Intent, ...]:
    """Write down once of each machine that its start is withheld: its owner gets a message."""
    now, known = observation.now, parts.memory.withheld
    found = dict(_withheld_starts(parts, observation, decisions, reviews))
    for node_id, why in found.items():
        before = known.get(node_id, Withheld(since=now, last=now, why=why))
        known[node_id] = replace(before, last=now, why=why or before.why)
    for node_id, each in list(known.items()):
        node = observation.fleet.find(node_id)
        if now - each.last > _FORGOTTEN or (node is not None and node.id not in found and node.state in THERE):
            del known[node_id]
    late = [node_id for node_id, each in known.items() if each.last == now and now - each.since >= SETTLE_TIMEOUT]
    told = told_of_starts(parts, frozenset({WITHHELD, STARTS})) if late else frozenset()
    news = [node_id for node_id in late if node_id not in told]
    return tuple(_record(parts, observation, node_id, known[node_id], round_id) for node_id in news)


def _withheld_starts(
    parts: ControllerContext, observation: Observation, decisions: Sequence[Decision], reviews: Sequence[Review]
) -> Iterator[tuple[str, str]]:
    """Yield each machine that is withheld from its pool now, and why, as a clause (rule 1)."""
    judged = {review.step.node_id: review for review in reviews if review.step.verb is Verb.START}
    unreached = {
        target: each.why for each in observation.ledger.unreached if each.verb is Verb.START for target in each.targets
    }
    for decision in decisions:
        starts = [step.node_id for step in decision.steps if step.verb is Verb.START]
        for node_id in starts:
            review = judged.get(node_id)
            why = None if review is None else _why(observation, review, unreached)
            if why is not None:
                yield node_id, why
        if decision.target is not None:
            yield from _unseen(parts, observation, decision, starts)


def _why(observation: Observation, review: Review, unreached: Mapping[str, str]) -> str | None:
    """Why a start that was decided has not come about; None: it may do so in this round."""
    node_id = review.step.node_id
    entry = observation.ledger.open_step(node_id, Verb.START)
    if entry is not None and entry.last is not None and entry.last.status in _UNDONE:
        return entry.last.detail if entry.last.status is not Status.INTERRUPTED else _NO_NEWS
    if not review.allowed:
        return review.refusals[0].sentence.rstrip(".")
    mine = [each for each in observation.ledger.recent if (each.node_id, each.verb) == (node_id, Verb.START)]
    last = max(mine, key=lambda each: each.at, default=None)
    if last is not None and last.status is Status.FAILED:
        return last.detail.removeprefix(GIVEN_UP)
    return unreached.get(node_id)


def _unseen(
    parts: ControllerContext, observation: Observation, decision: Decision, starts: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the machines that their cloud does not show, as many as their pool lacks without them."""
    pool, rules = decision.pool, parts.rules.pool(decision.pool)
    unseen, sizes = unseen_startable(observation, pool, rules.start), rules.sizes(observation.fleet)
    if not unseen:
        return
    has = machines.now(observation, pool, sizes) - sizes.of_nodes(unseen)
    missing = (decision.target or 0) - has - len(starts)
    for node in unseen:
        if missing <= 0:
            return
        missing -= sizes.node(node) or 0
        yield node.id, f"its cloud does not show it: {node.unseen}"


def _record(parts: ControllerContext, observation: Observation, node_id: str, found: Withheld, round_id: int) -> Intent:
    """Write down one start that is withheld."""
    node = observation.fleet.find(node_id)
    pool = "" if node is None else node.pool
    why = found.why or "its cloud did not answer the start, and shows it stopped"
    sentence = f"Pool {pool} has wanted it to run since {format_time(found.since)}, and it is not started: {why}."
    made = Record(
        verb=Verb.LEFT_ALONE,
        node_id=node_id,
        pool=pool,
        reason=Reason(code=WITHHELD, sentence=sentence),
        arguments={},
        owner=None if node is None else node.owner,
    )
    return write_record(parts, made, round_id)
