"""PURE: which machines hold a workload, and how they rank.

Rules, all of them:

1. A candidate is the fewest machines of one offer that hold the workload on their GPUs together, up to a given number.
   Where recomputing activations is left open, it is done as little as the fewest machines allow.
2. The first is the one with the most work for a dollar. Five factors from 0 to 1, each relative to the best candidate,
   are weighed where somebody gives weights; docs/advice.md defines them.
3. What is not known counts as 0 in its factor and is named. An offer without a price is listed last, never left out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from gpuwatch.model.offers import Offer
from gpuwatch.money.advice import model_memory
from gpuwatch.money.advice.gpu_models import CARDS, Card
from gpuwatch.money.advice.model_memory import Part, Recompute, Workload

Factor = Literal["performance", "cost", "network", "service", "ecosystem"]
WEIGHTS: Mapping[Factor, float] = {
    "performance": 0.30,
    "cost": 0.40,
    "network": 0.15,
    "service": 0.05,
    "ecosystem": 0.10,
}
_PCIE_BYTES_PER_SECOND = 64_000_000_000  # PCIe 4.0 x16, both ways together
_SERVED_ALIKE = ("int8", "int4")  # the tensor cores of every model since Turing take these
_FLASH_ATTENTION = (8, 0)

# Network of one machine in Gbit/s, from the providers' pages on their instance types.
NETWORK_GBIT_PER_SECOND: Mapping[str, int] = {
    "g4dn.12xlarge": 50,
    "g4dn.metal": 100,
    "g5.12xlarge": 40,
    "g5.24xlarge": 50,
    "g5.48xlarge": 100,
    "g6.12xlarge": 40,
    "g6.24xlarge": 50,
    "g6.48xlarge": 100,
    "g6e.12xlarge": 100,
    "g6e.24xlarge": 200,
    "g6e.48xlarge": 400,
    "p3.8xlarge": 10,
    "p3.16xlarge": 25,
    "p3dn.24xlarge": 100,
    "p4d.24xlarge": 400,
    "p4de.24xlarge": 400,
    "p5.48xlarge": 3200,
    "p5en.48xlarge": 3200,
    "p6-b200.48xlarge": 3200,
    "Standard_ND96asr_v4": 1600,
    "Standard_ND96amsr_A100_v4": 1600,
    "Standard_ND96isr_H100_v5": 3200,
    "Standard_ND96isr_H200_v5": 3200,
    "a2-highgpu-8g": 100,
    "a2-ultragpu-8g": 100,
    "a2-megagpu-16g": 100,
    "a3-highgpu-8g": 1000,
    "a3-megagpu-8g": 1800,
    "a3-ultragpu-8g": 3600,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """So many machines of an offer. `usd_per_hour` is of all of them; `held_bytes` and `usable_bytes` of one GPU."""

    offer: Offer
    machines: int
    gpus: int
    recompute: Recompute
    held_bytes: int
    usable_bytes: int
    usd_per_hour: Decimal | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate with its score from 0 to 1 and the factors it comes of."""

    candidate: Candidate
    score: float
    factors: Mapping[Factor, float]


def candidates(
    load: Workload,
    offers: Iterable[Offer],
    usd: Callable[[Offer], Decimal | None],
    *,
    most_machines: int = 8,
    recompute: Sequence[Recompute] = ("selective", "full"),
) -> Iterator[Candidate]:
    """Every offer that holds the load; `usd` is an offer's price by the hour."""
    for offer in offers:
        found = _fitting(load, offer, most_machines, recompute)
        if found is None:
            continue
        machines, chosen, parts = found
        price, gpus = usd(offer), machines * offer.gpu_count
        yield Candidate(
            offer=offer,
            machines=machines,
            gpus=gpus,
            recompute=chosen,
            held_bytes=model_memory.per_gpu_bytes(parts, gpus),
            usable_bytes=model_memory.usable_bytes(offer.gpu_memory_bytes),
            usd_per_hour=None if price is None else price * machines,
            notes=tuple(_notes(load, offer, machines, chosen, priced=price is not None)),
        )


def rank_candidates(
    load: Workload, found: Sequence[Candidate], weights: Mapping[Factor, float] | None = None
) -> tuple[Ranked, ...]:
    """The candidates, best first: by what a dollar buys, or by their scores where weights are given.

    Raises:
        ValueError: a weight is negative, or all are 0.

    """
    by_money, weights = weights is None, WEIGHTS if weights is None else weights
    total = sum(weights.values())
    if total <= 0 or min(weights.values()) < 0:
        raise ValueError("weights are 0 or more, and one of them is above 0")
    raw = {factor: [_FACTORS[factor](load, each, found) for each in found] for factor in weights}
    best = {factor: max(values, default=0.0) for factor, values in raw.items()}
    made = []
    for number, each in enumerate(found):
        factors = {factor: raw[factor][number] / best[factor] if best[factor] else 0.0 for factor in weights}
        score = sum(weights[factor] * value for factor, value in factors.items()) / total
        made.append(Ranked(candidate=each, score=score, factors=factors))
    return tuple(sorted(made, key=lambda each: _order(each, by_money=by_money)))


def _order(each: Ranked, *, by_money: bool) -> tuple[bool, float, float, str, str]:
    offer, worth = each.candidate.offer, each.factors["cost"] if by_money else each.score
    return each.candidate.usd_per_hour is None, -worth, -each.score, offer.instance_type, offer.region


def _fitting(
    load: Workload, offer: Offer, most_machines: int, recompute: Sequence[Recompute]
) -> tuple[int, Recompute, tuple[Part, ...]] | None:
    """The fewest machines; of ways to recompute that need as few, the first."""
    best: tuple[int, Recompute, tuple[Part, ...]] | None = None
    ways = recompute if load.task != "serve" else recompute[:1]
    for way in ways:
        parts = model_memory.parts(model_memory.with_recompute(load, way))
        gpus = model_memory.gpus_needed(parts, offer.gpu_memory_bytes)
        machines = None if gpus is None or not offer.gpu_count else -(-gpus // offer.gpu_count)
        if machines is not None and machines <= most_machines and (best is None or machines < best[0]):
            best = machines, way, parts
    return best


def _notes(load: Workload, offer: Offer, machines: int, recompute: Recompute, *, priced: bool) -> Iterator[str]:
    if offer.price_per_hour is not None and not priced:
        yield f"it costs {offer.price_per_hour} {offer.currency} an hour, and prices.rates has no rate for that"
    card = CARDS.get(offer.gpu_model)
    if card is None:
        yield f"nothing is known of what a {offer.gpu_model} can do"
    elif not _native(load, card):
        yield f"a {offer.gpu_model} has no {load.precision} units; it would compute in {computes_in(load, card)}"
    if card is not None and card.known_by is not None:
        yield f"the figures of a {offer.gpu_model} are {card.known_by}, and not read in a datasheet"
    if load.task != "serve" and recompute == "full":
        yield "recomputes whole layers: about a third more compute"
    if machines > 1 and offer.instance_type not in NETWORK_GBIT_PER_SECOND:
        yield "its network is not known"


def _native(load: Workload, card: Card) -> bool:
    return load.precision in card.flops or load.precision in _SERVED_ALIKE


def computes_in(load: Workload, card: Card) -> str:
    """The precision that its units would work in."""
    if load.precision in card.flops:
        return load.precision
    order = ("bf16", "fp16", "fp32") if load.precision != "fp32" else ("fp32",)
    return next(name for name in order if name in card.flops)


def _performance(load: Workload, each: Candidate, _: Sequence[Candidate]) -> float:
    """Training is bound by arithmetic, serving by memory bandwidth."""
    card = CARDS.get(each.offer.gpu_model)
    if card is None:
        return 0.0
    if load.task == "serve":
        return float(card.bandwidth(each.offer.gpu_memory_bytes) * each.gpus)
    return float(card.flops[computes_in(load, card)] * each.gpus)


def _cost(load: Workload, each: Candidate, found: Sequence[Candidate]) -> float:
    """Training is paid by the work done, serving by the hour."""
    if each.usd_per_hour is None or each.usd_per_hour <= 0:
        return 0.0
    work = 1.0 if load.task == "serve" else _performance(load, each, found)
    return work / float(each.usd_per_hour)


def _network(_: Workload, each: Candidate, __: Sequence[Candidate]) -> float:
    """What joins its GPUs: the slower of NVLink or PCIe and, between machines, each GPU's part of the network.

    A GPU that works alone needs none and is as good as any.
    """
    if each.gpus == 1:
        return 1.0
    card = CARDS.get(each.offer.gpu_model)
    fastest = max(card.link_bytes_per_second or 0 for card in CARDS.values())
    inside = _PCIE_BYTES_PER_SECOND if card is None else card.link_bytes_per_second or _PCIE_BYTES_PER_SECOND
    if each.machines == 1:
        return inside / fastest
    outside = NETWORK_GBIT_PER_SECOND.get(each.offer.instance_type, 0) * 1e9 / 8 / each.offer.gpu_count
    return min(float(inside), outside) / fastest


def _service(_: Workload, each: Candidate, found: Sequence[Candidate]) -> float:
    """In how many regions of the price table it is offered, among the candidates."""
    offer = each.offer
    places = {
        (other.offer.region, other.offer.capacity_type)
        for other in found
        if (other.offer.provider, other.offer.instance_type) == (offer.provider, offer.instance_type)
    }
    return float(len(places))


def _ecosystem(load: Workload, each: Candidate, _: Sequence[Candidate]) -> float:
    """Whether it has units for the precision, runs FlashAttention 2 (Ampere on), and can be partitioned by MIG."""
    card = CARDS.get(each.offer.gpu_model)
    if card is None:
        return 0.0
    return (_native(load, card) + (card.capability >= _FLASH_ATTENTION) + card.mig) / 3


_FACTORS: Mapping[Factor, Callable[[Workload, Candidate, Sequence[Candidate]], float]] = {
    "performance": _performance,
    "cost": _cost,
    "network": _network,
    "service": _service,
    "ecosystem": _ecosystem,
}
