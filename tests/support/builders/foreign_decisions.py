"""Decisions of another ledger on the machines of a fleet: what the guard's rule on them objects to, and what not."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from gpuwatch.guard import Case
from gpuwatch.model.decision import DECISION_TAG, NOTIFIED_TAG
from tests.support.builders.fleet import NOW

FOREIGN = "gpuwatch-other-7-0a1b2c3d"


def elsewhere(case: Case, *, told: str | None = "2026-03-02T11:00:00Z", **changes: object) -> Case:
    """The case after another ledger's decision about its node, written on it at that time."""
    tags = {DECISION_TAG: FOREIGN} | ({} if told is None else {NOTIFIED_TAG: told})
    node = replace(case.machine, tags=tags, **changes)  # type: ignore[arg-type]
    seen = case.observation
    nodes = tuple(node if each.id == node.id else each for each in seen.fleet.nodes)
    ledger = replace(seen.ledger, foreign=(FOREIGN,))
    return replace(case, node=node, observation=replace(seen, fleet=replace(seen.fleet, nodes=nodes), ledger=ledger))


def known(case: Case) -> Case:
    """The case where the decision is on record, and another is not."""
    case = elsewhere(case)
    ledger = replace(case.observation.ledger, foreign=("gpuwatch-other-8-0a1b2c3d",))
    return replace(case, observation=replace(case.observation, ledger=ledger))


def soon_after_its_launch(case: Case) -> Case:
    """A launch writes no other time."""
    return elsewhere(case, told=None, launched_at=NOW - timedelta(hours=3))


SPOILED: list[tuple[str, str, Callable[[Case], Case], str]] = [
    ("another's notice", "other_ledger", elsewhere, FOREIGN),
    ("another's withdrawal", "other_ledger", lambda c: elsewhere(c, told="withdrawn 2026-03-01T12:00:01Z"), FOREIGN),
    ("at no time", "other_ledger", lambda c: elsewhere(c, told="an hour ago"), FOREIGN),
    ("at a later time", "other_ledger", lambda c: elsewhere(c, told="2026-04-02T11:00:00Z"), FOREIGN),
    ("another's launch", "other_ledger", soon_after_its_launch, FOREIGN),
]
FAIR: list[tuple[str, Callable[[Case], Case]]] = [
    ("stop a day after another's decision", lambda c: elsewhere(c, told="2026-03-01T12:00:00Z")),
    ("stop long after another's launch", lambda c: elsewhere(c, told=None)),
    ("stop after a decision of one's own", known),
]
