"""What makes a controller begin paused: a ledger that is not as it was left, or that lacks what machines show.

`plan` shows the same pauses and writes none.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from gpuwatch.controller.context import ControllerContext
from gpuwatch.guard.ownership import recent
from gpuwatch.model.decision import DECISION_TAG, LedgerView, Observation
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.orders import ITSELF, Pause

log = logging.getLogger(__name__)


def begin(parts: ControllerContext) -> None:
    """Before anything is written: where the ledger is not as it was left, everything is paused, on record."""
    doubt = parts.ledger.identity.doubt
    if doubt is not None:
        _pause(parts, parts.clock.now(), doubt)
        parts.ledger.identity.begin_paused()


def with_foreign(parts: ControllerContext, ledger: LedgerView, nodes: Sequence[Node]) -> LedgerView:
    """The view with those decisions, of all that machines and their nodes elsewhere bear, that this ledger lacks."""
    keys = {node.tags.get(DECISION_TAG) for node in nodes if node.enrolled}
    for known in [node.kubernetes for node in nodes if node.kubernetes is not None]:
        keys |= {known.cordoned_by, known.tainted_by, known.marked_by}
    keys |= {node.slurm.drained_by for node in nodes if node.slurm is not None}
    borne = [key for key in keys if key]
    foreign = parts.ledger.identity.foreign(borne) if borne else ledger.foreign
    return ledger if foreign == ledger.foreign else replace(ledger, foreign=foreign)


def cautious(parts: ControllerContext, observation: Observation, *, act: bool) -> Observation:
    """The observation with the pauses that begin with it; they are written down where this is a round that acts."""
    identity, seen = parts.ledger.identity, observation.ledger
    why = [] if act or identity.doubt is None else [identity.doubt]
    if parts.rules.enforce:
        why += identity.objections(seen.foreign)
    if not why:
        return observation
    now = observation.now
    made = [_pause(parts, now, each) if act else _make_pause(now, each) for each in why]
    return replace(observation, ledger=replace(seen, pauses=(*seen.pauses, *made)))


def decided_elsewhere(fleet: Fleet, ledger: LedgerView, now: datetime) -> tuple[Node, ...]:
    """The fleet's machines about which another ledger has decided within a day."""
    foreign = frozenset(ledger.foreign)
    return tuple(
        node
        for node in (fleet.nodes if foreign else ())
        if node.enrolled and node.tags.get(DECISION_TAG) in foreign and recent(node, now)
    )


def _pause(parts: ControllerContext, now: datetime, why: str) -> Pause:
    log.error("Everything is paused until somebody says `gpuwatch resume`: %s", why)
    return parts.ledger.pause(None, ITSELF, why, now)


def _make_pause(now: datetime, why: str) -> Pause:
    return Pause(pool=None, at=now, who=ITSELF, reason=why)
