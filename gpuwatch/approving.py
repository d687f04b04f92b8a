"""Operators' approvals, given beside whichever controller runs: which nodes wait for one, and the word itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.clock import Clock
from gpuwatch.guard import Rulebook
from gpuwatch.guard.consent import wants_approval
from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.ledger.knobs import LedgerKnobs
from gpuwatch.model.decision import LedgerView
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.orders import Approval
from gpuwatch.orders import whoever


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A node that goes only once somebody approves: noticed when, why, and from when on it may go.

    `key` is the notice's.
    """

    node: Node
    key: str
    noticed: datetime
    due: datetime
    why: str


def waiting(fleet: Fleet, ledger: LedgerView, rules: Rulebook) -> tuple[Node, ...]:
    """The nodes that have had a notice which takes an approval, and have none."""
    noticed = [(node, each) for each in ledger.notices if (node := fleet.find(each.node_id)) is not None]
    return tuple(
        node
        for node, notice in noticed
        if wants_approval(rules.pool(node.pool), notice) and ledger.approval(node.id) is None
    )


def listed(knobs: LedgerKnobs, clock: Clock, rules: Rulebook) -> tuple[Waiting, ...]:
    """Those of the newest round, oldest notice first.

    Raises:
        LedgerError: the ledger cannot be read.

    """
    ledger = Ledger.connect(knobs, read_only=True)
    try:
        return _listed(ledger, clock.now(), rules)
    finally:
        ledger.close()


def approve(knobs: LedgerKnobs, clock: Clock, rules: Rulebook, names: Sequence[str], reason: str) -> list[Approval]:
    """Approve the notices of these nodes (ids or unique names); all of them, or none where one is a mistake.

    Raises:
        LedgerError: one of them waits for no approval, or the ledger cannot be written.

    """
    ledger = Ledger.connect(knobs, controls_only=True)
    try:
        now = clock.now()
        there = _listed(ledger, now, rules)
        keys = {each.node.id: each.key for each in there}
        found = dict.fromkeys([_named(name, [each.node for each in there]).id for name in names])
        return [ledger.approve(node_id, whoever(), reason, now, key=keys[node_id]) for node_id in found]
    finally:
        ledger.close()


def _listed(ledger: Ledger, now: datetime, rules: Rulebook) -> tuple[Waiting, ...]:
    newest = ledger.rounds(1)
    if not newest:
        return ()
    fleet, view = ledger.round(newest[0].id).observation.fleet, ledger.view(now)
    found = []
    for node in waiting(fleet, view, rules):
        notice = view.notice(node.id)
        if notice is None:
            continue
        given = next((each.intent for each in ledger.history(node.id) if each.intent.key == notice.key), None)
        grace = timedelta(seconds=rules.pool(node.pool).idle.notice)
        due = notice.at + grace if notice.promise is None else notice.promise.due(notice.at)
        why = "" if given is None else given.reason.sentence
        found.append(Waiting(node=node, key=notice.key, noticed=notice.at, due=due, why=why))
    return tuple(sorted(found, key=lambda each: (each.noticed, each.node.id)))


def _named(name: str, there: Sequence[Node]) -> Node:
    """The node that is meant."""
    named = [node for node in there if node.name == name]
    found = next((node for node in there if node.id == name), named[0] if len(named) == 1 else None)
    if found is None:
        known = ", ".join(node.id for node in there[:10]) or "none"
        raise LedgerError(f"No node of the id or the unique name {name!r} waits for an approval. There are: {known}.")
    return found
