"""What the ledger's last three days say of pools' offers, without reading three days again in every round.

What has ended does not change. So a process keeps what it has read, and adds what the round has read of the last hour
anyway. All of it is read again after a start, after a step of the clock, and where no round looked for half an hour.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from gpuwatch.controller import interruptions
from gpuwatch.controller.context import ControllerContext
from gpuwatch.model.decision import REMOVALS, Done, LedgerView, Verb
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.measurement import OffersPast
from gpuwatch.model.verbs import CLOUD_RECORDS
from gpuwatch.policies import capacity
from gpuwatch.policies.spot.offers import MEMORY_SECONDS

_MEMORY = timedelta(seconds=MEMORY_SECONDS)
_LONGEST_GAP = timedelta(minutes=30)  # every view goes back an hour at least
_COUNTS = REMOVALS | CLOUD_RECORDS | {Verb.LAUNCH}


def offers_past(
    parts: ControllerContext, fleet: Fleet, seen: LedgerView, pools: list[str], now: datetime
) -> dict[str, OffersPast]:
    """What is known of the offers of these pools; without any, nothing is asked. `seen` is the round's own view."""
    if not pools:
        return {}
    ended = [*_ended_actions(parts, seen, now), *interruptions.unrecorded_notices(parts.rules, fleet, seen, now)]
    return {pool: capacity.offers_past(ended, fleet, pool, now) for pool in pools}


def _ended_actions(parts: ControllerContext, seen: LedgerView, now: datetime) -> Iterable[Done]:
    known, back = parts.memory.ended, parts.memory.clock_steps.back_seconds
    stale = known.at is None or known.back_seconds != back or not timedelta(0) <= now - known.at <= _LONGEST_GAP
    if stale:
        known.by_key.clear()
    newer = parts.past(now, recent=_MEMORY).recent if stale else seen.recent
    known.by_key |= {done.key: done for done in newer if done.verb in _COUNTS}
    for key in [key for key, done in known.by_key.items() if done.at <= now - _MEMORY]:
        del known.by_key[key]
    known.at, known.back_seconds = now, back
    return known.by_key.values()
