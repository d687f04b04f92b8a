"""What the ledger's last three days say of pools' offers, launches, starts, without reading them again each round.

What has ended does not change. So a process keeps what it has read, and adds what the round has read of the last hour
anyway. All of it is read again after a start, after a step of the clock, and where no round looked for half an hour.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from gpuwatch.controller import interruptions
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.launched import launched_lives, members_of_groups
from gpuwatch.model.decision import ADDITIONS, REMOVALS, Done, LedgerView, Observation
from gpuwatch.model.measurement import OfferPast, OffersPast
from gpuwatch.model.verbs import RECORDS
from gpuwatch.policies import PoolRules
from gpuwatch.policies.lasting import rest_of
from gpuwatch.policies.lives import nodes_we_may_remove, offers_past
from gpuwatch.policies.spot.offers import MEMORY_SECONDS

_MEMORY = timedelta(seconds=MEMORY_SECONDS)
_LONGEST_GAP = timedelta(minutes=30)  # every view goes back an hour at least
_COUNTS = REMOVALS | RECORDS | ADDITIONS


def with_past(parts: ControllerContext, seen: Observation, pools: Mapping[str, PoolRules]) -> Observation:
    """The observation with what is known of the offers of these pools, and of what was launched or started for them.

    Where nothing can be launched or started, nothing is asked.
    """
    if not any(rules.adds for rules in pools.values()) and not seen.fleet.has_owned:
        return seen
    looked_at = parts.memory.ended.at
    ended = _ended_actions(parts, seen.ledger, seen.now)
    told = [*ended, *interruptions.unrecorded_notices(parts.rules, seen.fleet, seen.ledger, seen.now)]
    ours = nodes_we_may_remove(seen.ledger.open_intents)
    offers = {pool: offers_past(told, seen.fleet, pool, seen.now, ours=ours) for pool in pools if pools[pool].offers}
    lives = launched_lives(parts, seen, ended, looked_at)
    members = members_of_groups(parts, seen, ended, looked_at)
    seen = replace(seen, offers=offers, lives=lives, members=members)
    if not seen.lives:
        return seen
    return replace(seen, offers={pool: _with_rests(seen, pool, pools[pool], known) for pool, known in offers.items()})


def _with_rests(seen: Observation, pool: str, rules: PoolRules, known: OffersPast) -> OffersPast:
    """The past of a pool's offers; what was launched from some of them does not last, and these rest."""
    rests = {name: rest_of(seen, offer.arguments(name, pool)) for name, offer in rules.offers.items()}
    resting = {
        name: replace(known.offers.get(name, OfferPast()), rests_until=rest.until)
        for name, rest in rests.items()
        if rest is not None
    }
    return replace(known, offers={**known.offers, **resting}) if resting else known


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
