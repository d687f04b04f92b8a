"""PURE: the next offer of a pool, where the one that would come first is not to be had now.

Rules: an offer that its cloud has refused, or the guard, counts as resting for the rest of the round. Which of the
others is asked, spot/choice.py says, as in every round: so on demand comes where no spot offer is left.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from gpuwatch.model.decision import Decision, Observation, Reason, Step
from gpuwatch.model.measurement import OffersPast
from gpuwatch.policies.launches import launches, offer_names
from gpuwatch.policies.machines import now
from gpuwatch.policies.sizes import Need, Sizes
from gpuwatch.policies.spot.records import add_refusal
from gpuwatch.policies.spot.settings import Offers


def without_offer(
    observation: Observation, pool: str, name: str, at: datetime | None = None, *, spot: bool = False
) -> Observation:
    """The observation in which that offer rests.

    `spot`: a cloud has refused spot, at that time; `fallback_after` begins with it. What the guard refuses nobody asks
    for, so that on demand waits for nothing.
    """
    known = observation.offers.get(pool, OffersPast())
    rested = add_refusal(known, name, observation.now if at is None else at, spot=spot)
    return replace(observation, offers={**observation.offers, pool: rested})


def faults(observation: Observation, pool: str) -> Iterator[str]:
    """A sentence on each offer of the pool that failed last for another reason than stock."""
    for name, known in sorted(observation.offers.get(pool, OffersPast()).offers.items()):
        if known.faults:
            times = "once" if known.faults == 1 else f"{known.faults} times in a row"
            yield f"The offer {name} failed {times}, and not for lack of stock: {known.fault}."


def next_launches(
    observation: Observation, pool: str, need: Need, added: Sequence[Step], sources: Offers, reason: Reason
) -> list[Step]:
    """The launches of what is missing on top of what `added` bring to the pool, if any offer may be asked.

    In a pool that counts nodes it is one: the caller asks again for the next.
    """
    need = replace(need, missing=min(1, need.missing)) if need.sizes.gpus is None else need
    has = now(observation, pool, need.sizes) + need.sizes.total(observation.fleet, added)
    need = replace(need, wanted=has + need.missing, coming=offer_names(added))
    return launches(observation, pool, need, sources, reason)


def lacking(observation: Observation, decision: Decision | None, sizes: Sizes, granted: int, missing: int) -> Need:
    """What a pool lacks of its target where so much was granted; no more is asked for than was `missing`.

    The last machine may have been one that brings more than the target needs; others in its place need not.
    """
    short = missing
    if sizes.gpus is not None and decision is not None and decision.target is not None:
        short = min(missing, decision.target - now(observation, decision.pool, sizes) - granted)
    return Need(missing=short, sizes=sizes, most=missing)
