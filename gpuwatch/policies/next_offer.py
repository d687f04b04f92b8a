"""PURE: the next offer of a pool, where the one that would come first is not to be had now.

Rules: an offer that its cloud has refused, or the guard, counts as resting for the rest of the round. Which of the
others is asked, spot/choice.py says, as in every round: so on demand comes where no spot offer is left.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from gpuwatch.model.decision import Observation, Reason, Step, Verb
from gpuwatch.model.offers import OffersPast
from gpuwatch.policies import capacity
from gpuwatch.policies.launches import Need, launches
from gpuwatch.policies.spot.records import refused
from gpuwatch.policies.spot.settings import Offers


def without(
    observation: Observation, pool: str, name: str, at: datetime | None = None, *, spot: bool = False
) -> Observation:
    """The observation in which that offer rests.

    `spot`: a cloud has refused spot, at that time; `fallback_after` begins with it. What the guard refuses nobody asks
    for, so that on demand waits for nothing.
    """
    known = observation.offers.get(pool, OffersPast())
    rested = refused(known, name, observation.now if at is None else at, spot=spot)
    return replace(observation, offers={**observation.offers, pool: rested})


def faults(observation: Observation, pool: str) -> Iterator[str]:
    """A sentence on each offer of the pool that failed last for another reason than stock."""
    for name, known in sorted(observation.offers.get(pool, OffersPast()).offers.items()):
        if known.faults:
            times = "once" if known.faults == 1 else f"{known.faults} times in a row"
            yield f"The offer {name} failed {times}, and not for lack of stock: {known.fault}."


def next_launches(
    observation: Observation, pool: str, added: Sequence[Step], names: Collection[str], sources: Offers, reason: Reason
) -> list[Step]:
    """The launch of one node more than `added` bring to the pool, if any offer may be asked; `names` are spoken for."""
    asked = [step.arguments for step in added if step.verb is Verb.LAUNCH]
    wanted = capacity.now(observation, pool) + sum(map(capacity.adds, added)) + 1
    coming = capacity.launching(observation, pool, asked)
    return launches(observation, pool, Need(missing=1, wanted=wanted, coming=coming, but=names), sources, reason)
