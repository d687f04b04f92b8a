"""PURE: which offers so many missing nodes are asked from, now.

Rules: spot first, as far as the pool's shares want it, in the order of `offers.ranked`. Where no spot offer may be
asked (all rest, or cost too much), on demand takes its place once spot was refused for `fallback_after`. Reserved
offers come before those on demand, each in the order of the settings. An offer that was refused rests; it is never
asked twice in one round after a refusal. What comes already counts in its offer; what its cloud is about to take does
not.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from math import inf

from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.model.offers import OfferPast, OffersPast
from gpuwatch.policies.spot.mix import Has, goal
from gpuwatch.policies.spot.offers import LEAST_REST_SECONDS, OfferRecord, ranked, rest_seconds
from gpuwatch.policies.spot.records import SPOT
from gpuwatch.policies.spot.settings import OfferRules, Offers

_RUNS = frozenset({NodeState.RUNNING, NodeState.PENDING, NodeState.UNKNOWN})


def chosen(
    observation: Observation, pool: str, offers: Offers, *, wanted: int, missing: int, coming: Sequence[str]
) -> list[str]:
    """The names of the offers to ask, one for each node, so many as are missing at most.

    `wanted` is how many nodes the pool is to have, `coming` names the offer of each node that was asked for.
    """
    known = observation.offers.get(pool, OffersPast())
    nodes = [
        node
        for node in observation.fleet.roster(pool).nodes
        if node.enrolled and node.state in _RUNS and node.cloud_notice is None
    ]
    own = Counter(name for node in nodes for name, each in offers.offers.items() if each.has(node))
    own.update(coming)
    spot_nodes = sum(node.capacity_type is CapacityType.SPOT for node in nodes)
    spot = spot_nodes + sum(offers.offers[name].capacity == SPOT for name in coming if name in offers.offers)
    firm = len(nodes) + len(coming) - spot
    waited = _waited(observation, known)
    mix = offers.mix_now(observation, pool, spot=spot, firm=firm)
    found: list[str] = []
    while len(found) < missing:
        order = _spot(observation, offers, known, own)
        seconds = inf if waited is None and not order else waited or 0.0
        plan = goal(wanted, Has(spot_working=spot, spot_coming=0, on_demand=firm, missing_seconds=seconds), mix)
        if plan.spot_missing and order:
            name, spot = order[0], spot + 1
        elif firm < plan.on_demand and (other := _firm(observation, offers, known)) is not None:
            name, firm = other, firm + 1
        else:
            break
        own[name] += 1
        found.append(name)
    return found


def resting_seconds(observation: Observation, known: OfferPast, own: int) -> float:
    """For how many more seconds an offer rests; 0 or less: it may be asked."""
    if known.refused_at is None:
        return 0.0
    rest = max(LEAST_REST_SECONDS, rest_seconds(known.refusals, own))
    return (known.refused_at + timedelta(seconds=rest) - observation.now).total_seconds()


def _waited(observation: Observation, known: OffersPast) -> float | None:
    """For how long spot has been refused; None: it was not."""
    since = known.spot_refused_since
    return None if since is None else max(0.0, (observation.now - since).total_seconds())


def _spot(observation: Observation, offers: Offers, known: OffersPast, own: Counter[str]) -> list[str]:
    """The spot offers that may be asked, the best first."""
    firm = [price for each in offers.of(spot=False).values() if (price := _usd(observation, each)) is not None]
    most = offers.mix.max_price_ratio * min(firm, default=inf)
    usd = {name: _usd(observation, each) for name, each in offers.of(spot=True).items()}
    usd = {name: price for name, price in usd.items() if price is None or price <= most}
    # One price that is not known leaves prices out of the order: nothing is preferred or avoided for that.
    priced = all(price is not None for price in usd.values())
    records = [_record(observation, name, known, own, (price or 0.0) if priced else 1.0) for name, price in usd.items()]
    return [each.name for each in ranked(records, spread=offers.mix.spread)]


def _record(observation: Observation, name: str, known: OffersPast, own: Counter[str], usd: float) -> OfferRecord:
    past = known.offers.get(name, OfferPast())
    return OfferRecord(
        name=name,
        usd_per_hour=usd,
        preemptions=past.losses,
        hours_up=past.hours_up,
        own=own[name],
        resting_seconds=resting_seconds(observation, past, own[name]),
    )


def _usd(observation: Observation, offer: OfferRules) -> float | None:
    """What an hour of one GPU costs there; None where it is not known, or another price stands in for it."""
    price = observation.prices.get(offer.price_key.key)
    return None if price is None or not price.exact else float(price.usd_per_hour) / offer.gpus


def _firm(observation: Observation, offers: Offers, known: OffersPast) -> str | None:
    """The first of the other offers that may be asked; reserved capacity is paid for already.

    Own nodes there make no rest longer: nothing stands in for it.
    """
    here = offers.of(spot=False)
    for name in sorted(here, key=lambda each: here[each].capacity != "reserved"):
        if resting_seconds(observation, known.offers.get(name, OfferPast()), 0) <= 0:
            return name
    return None
