"""What makes a controller begin paused: a ledger that is not as it was left, or that lacks what machines show.

`plan` shows the same pauses and writes none.
"""

import logging
from collections.abc import Collection
from dataclasses import replace
from datetime import datetime
from itertools import chain

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


def with_foreign(parts: ControllerContext, ledger: LedgerView, borne: Collection[Collection[str]]) -> LedgerView:
    """The view with those decisions, of all that machines bear, that this ledger lacks."""
    foreign = parts.ledger.identity.foreign(chain.from_iterable(borne)) if any(borne) else ledger.foreign
    return ledger if foreign == ledger.foreign else replace(ledger, foreign=foreign)


def decisions_on(node: Node) -> tuple[str, ...]:
    """The keys of the decisions that a machine, its node object and its node in Slurm bear."""
    keys = [node.tags.get(DECISION_TAG, "")] if node.enrolled else []
    if (known := node.kubernetes) is not None:
        keys += [known.cordoned_by or "", known.tainted_by or "", known.marked_by or ""]
    if node.slurm is not None:
        keys.append(node.slurm.drained_by or "")
    return tuple([key for key in keys if key])


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
