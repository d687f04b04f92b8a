"""PURE: which offers so many missing nodes are asked from, now.

Rules: spot first, as far as the pool's shares want it, in the order of `offers.ranked`. Where no spot offer may be
asked (all rest, or cost too much), on demand takes its place once spot was refused for `fallback_after`. Reserved
offers come before those on demand, each in the order of the settings. An offer that was refused rests; it is never
asked twice in one round after a refusal. What comes already counts in its offer; what its cloud is about to take does
not.

Work with a deadline waits for spot, so its offers rest less, and before on demand is ordered spot is asked once more.

Where the pool counts GPUs, a machine may bring more than is missing: its price is that of each GPU that is needed, and
of those on demand that one comes that brings least too many. What would pass a maximum is not asked. A part that is
always on demand comes before a spot machine that is larger than the rest of spot's part.
"""

from collections import Counter
from dataclasses import replace
from math import inf

from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.measurement import OfferPast, OffersPast
from gpuwatch.policies.machines import now, pool_machines
from gpuwatch.policies.sizes import Need, Sizes
from gpuwatch.policies.spot.mix import Has, goal, shares
from gpuwatch.policies.spot.offers import (
    LEAST_REST_SECONDS,
    OfferRecord,
    rank_offers,
    rest_in_outage_seconds,
    rest_seconds,
)
from gpuwatch.policies.spot.records import OFFER
from gpuwatch.policies.spot.settings import OfferRules, Offers


def choose_offers(observation: Observation, pool: str, offers: Offers, need: Need) -> list[str]:
    """The names of the offers to ask, one for each node, so many as bring what is missing."""
    known, coming, sizes = observation.offers.get(pool, OffersPast()), need.coming, need.sizes
    here = pool_machines(observation, pool)
    own = Counter(name for node in here.present for name, each in offers.offers.items() if each.has(node))
    own.update([*coming, *(each.asked[OFFER] for each in here.coming if OFFER in each.asked)])
    spot = sizes.of_nodes([node for node in here.present if node.capacity_type is CapacityType.SPOT])
    spot += sizes.of_expected([each for each in here.coming if each.spot])
    spot += sum(offers.size(name, sizes) for name in coming if name in offers.offers_of(spot=True))
    firm = now(observation, pool, sizes) + sum(offers.size(name, sizes) for name in coming) - spot
    waited = _waited_seconds(observation, known)
    mix = offers.mix_now(observation, pool, spot=spot, firm=firm)
    found: list[str] = []
    while need.missing > 0:
        order = _spot(observation, offers, known, own, need)
        seconds = inf if waited is None and not order else waited or 0.0
        plan = goal(need.wanted, Has(spot_working=spot, spot_coming=0, on_demand=firm, missing_seconds=seconds), mix)
        if offers.batch is not None and not order and plan.spot_missing and firm < plan.on_demand:
            order = _spot(observation, offers, _once_more(known), own, need)
        lacks_base = firm < shares(need.wanted, mix)[1]
        able = [name for name in order if not lacks_base or offers.size(name, sizes) <= plan.spot_missing]
        if plan.spot_missing and able:
            name = able[0]
            spot += offers.size(name, sizes)
        elif firm < plan.on_demand and (other := _firm(observation, offers, known, need)) is not None:
            name = other
            firm += offers.size(name, sizes)
        else:
            break
        need = need.after_machines(offers.size(name, sizes))
        own[name] += 1
        found.append(name)
    return found


def resting_seconds(observation: Observation, known: OfferPast, own: int, *, waited_for: bool = False) -> float:
    """For how many more seconds an offer rests; 0 or less: it may be asked.

    `waited_for`: by work with a deadline.
    """
    rests = [
        max(LEAST_REST_SECONDS, rest) - (observation.now - at).total_seconds()
        # A fault says nothing of stock: what nodes are there makes no difference.
        for rest, at in (
            (_refused_seconds(known, own, waited_for=waited_for), known.refused_at),
            (rest_seconds(known.faults, 0), known.fault_at),
        )
        if at is not None
    ]
    if known.rests_until is not None:
        rests.append((known.rests_until - observation.now).total_seconds())
    return max(rests, default=0.0)


def _refused_seconds(known: OfferPast, own: int, *, waited_for: bool) -> float:
    """How long it rests after its newest refusal."""
    if own or not waited_for or known.refused_at is None or known.refused_since is None:
        return rest_seconds(known.refusals, own)
    return rest_in_outage_seconds(known.refusals, (known.refused_at - known.refused_since).total_seconds())


def _once_more(known: OffersPast) -> OffersPast:
    """With the shortest rests: work with a deadline stays on demand for long, so spot is asked once more before."""
    return replace(
        known, offers={name: replace(each, refusals=min(1, each.refusals)) for name, each in known.offers.items()}
    )


def _waited_seconds(observation: Observation, known: OffersPast) -> float | None:
    """For how long spot has been refused; None: it was not."""
    since = known.spot_refused_since
    return None if since is None else max(0.0, (observation.now - since).total_seconds())


def _spot(observation: Observation, offers: Offers, known: OffersPast, own: Counter[str], need: Need) -> list[str]:
    """The spot offers that may be asked, the best first."""
    sizes = need.sizes
    firm = [
        price for each in offers.offers_of(spot=False).values() if (price := _usd(observation, each, sizes)) is not None
    ]
    most = offers.mix.max_price_ratio * min(firm, default=inf)
    usd = {name: _usd(observation, each, sizes) for name, each in offers.offers_of(spot=True).items()}
    usd = {name: price for name, price in usd.items() if price is None or price <= most}
    # One price that is not known leaves prices out of the order: nothing is preferred or avoided for that.
    priced = all(price is not None for price in usd.values())
    # Of a machine that is larger than what is missing, the GPUs that are needed pay for all.
    records = [
        replace(
            _record(
                observation,
                name,
                known,
                offers,
                own,
                ((price or 0.0) if priced else 1.0) * max(1.0, size / need.missing),
            ),
            size=size,
        )
        for name, price in usd.items()
        if need.fits(size := offers.size(name, sizes))
    ]
    return [each.name for each in rank_offers(records, spread=offers.mix.spread)]


def _record(
    observation: Observation, name: str, known: OffersPast, offers: Offers, own: Counter[str], usd: float
) -> OfferRecord:
    past = known.offers.get(name, OfferPast())
    return OfferRecord(
        name=name,
        usd_per_hour=usd,
        preemptions=past.losses,
        hours_up=past.hours_up,
        own=own[name],
        resting_seconds=resting_seconds(observation, past, own[name], waited_for=offers.batch is not None),
    )


def _usd(observation: Observation, offer: OfferRules, sizes: Sizes) -> float | None:
    """What an hour of one GPU costs there; None where it is not known, or another price stands in for it."""
    price = observation.prices.get(offer.price_key.key)
    gpus = (None if sizes.gpus is None else sizes.kind(offer.instance_type)) or offer.gpus or 1
    return None if price is None or not price.exact else float(price.usd_per_hour) / gpus


def _firm(observation: Observation, offers: Offers, known: OffersPast, need: Need) -> str | None:
    """The first of the other offers that may be asked; reserved capacity is paid for already.

    Own nodes there make no rest longer: nothing stands in for it.
    """
    here = offers.offers_of(spot=False)
    excess = {name: max(0, offers.size(name, need.sizes) - need.missing) for name in here}
    for name in sorted(here, key=lambda each: (here[each].capacity != "reserved", excess[each])):
        rests = resting_seconds(observation, known.offers.get(name, OfferPast()), 0) > 0
        if not rests and need.fits(offers.size(name, need.sizes)):
            return name
    return None
