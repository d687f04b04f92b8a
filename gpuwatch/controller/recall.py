"""What the ledger's newest round saw, for places that give no answer to a controller that has just begun.

A machine that nobody can see counts as it was seen last: it may run, so nothing is launched in its place (P17), and its
state is unknown, so nothing is done to it (P1).
"""

import logging
from contextlib import suppress
from datetime import timedelta
from functools import cache

from gpuwatch.clouds import Cloud
from gpuwatch.clouds.silence import Past, Recalling
from gpuwatch.controller.context import Memory
from gpuwatch.ledger import Ledger, LedgerError, RoundLine
from gpuwatch.model.decision import Status, Verb
from gpuwatch.runtime.clock import Clock

log = logging.getLogger(__name__)

_ITS_OWN = timedelta(seconds=1)  # what a round did has its own time, or a later one
_LOOKED_AT = 20  # the newest rounds; the newest of all is whole, except in a damaged ledger


def recall(cloud: Cloud, ledger: Ledger) -> None:
    """Have the cloud ask the ledger, once and only when it must know."""
    if isinstance(cloud, Recalling):
        cloud.recall(cache(lambda: past_of(ledger)))


def recall_undated(memory: Memory, ledger: Ledger, clock: Clock) -> None:
    """How long the controller has seen machines run that have no start time, for a command that looks once."""
    newest = _newest_whole(ledger)
    age = 0.0 if newest is None else (clock.now() - newest.at).total_seconds()
    if newest is not None and age >= 0.0:
        last = clock.uptime() - age
        with suppress(LedgerError):
            watched = ledger.observation(newest.id).watched
            memory.undated |= {node_id: (last - seconds, last) for node_id, seconds in watched.items()}


def _newest_whole(ledger: Ledger) -> RoundLine | None:
    return next((each for each in ledger.rounds(_LOOKED_AT) if each.whole), None)


def past_of(ledger: Ledger) -> Past:
    """What the newest round that is kept whole saw; nothing without such a round."""
    newest = _newest_whole(ledger)
    if newest is None:
        return Past()
    try:
        fleet, since = ledger.observation(newest.id).fleet, ledger.view(newest.at, recent=_ITS_OWN)
    except LedgerError as error:
        log.warning("What was seen before this start is not known: %s", error)
        return Past()
    accepted = [
        each.intent.node_id
        for each in since.open_intents
        if each.intent.verb is Verb.STOP and each.last is not None and each.last.status is Status.ACCEPTED
    ]
    accepted += [each.node_id for each in since.recent if each.verb is Verb.STOP and each.status is Status.SETTLED]
    places = frozenset(fleet.places)
    return Past(nodes=fleet.nodes, groups=fleet.groups, places=places, accepted=frozenset(accepted))
