"""PURE: machines that are larger than what was measured on them, from the rounds on record. Advice, never a decision.

Rules, all of them:

1. A GPU is unused since its agent says that it is idle. While some GPUs of a node were used and others were not for as
   long as asked for, the unused ones are listed, with the cheapest machine that has enough GPUs of the same model.
2. A GPU with peaks that fit a smaller part is listed with a MIG slice, where its model can be split. Memory must be
   known in every round in which it worked; where its multiprocessors' activity is not known, the advice says so.
3. A node that was seen for less than half of the asked time, or in which a round in four is unknown, gets no advice: it
   says why. Peaks are of means over about a minute; a fifth is added to them.
4. A node that is idle as a whole is the idle policy's business and gets no advice here.
5. If the peaks of a machine's GPUs fit a smaller model, the cheapest machine that has as many of that is listed:
   memory, throughput in half precision and memory bandwidth must hold the peaks. If their activity is not known, no
   model is named.
6. A slice saves money only for others: what would be free of the GPU stands apart from what is saved. What a commitment
   covers of a machine's price is paid in any case, and saves nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal

from gpuwatch.model.activity import State
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Fleet, GpuVerdict, Node, NodeState
from gpuwatch.model.money import HOURS_A_MONTH
from gpuwatch.model.offers import Offer
from gpuwatch.model.readable import how_many
from gpuwatch.money.advice.gpu_models import CARDS, Card

Kind = Literal["unused_gpus", "mig", "smaller_type", "unknown"]
HEADROOM = 1.2
_LEAST_SHARE_SEEN = 0.5
_MOST_UNKNOWN = 0.25
_GIB = 2**30
_COMMITTED = "; a commitment covers the price of this machine, so that saves nothing while it lasts"
_HOLE = timedelta(hours=1)  # between two rounds, beyond which the time between is not known

# NVIDIA's MIG User Guide: profile, its sevenths (fourths for the A30) of the multiprocessors, GB, how many fit.
MIG_PROFILES: Mapping[tuple[str, int], tuple[tuple[str, float, int, int], ...]] = {
    ("A30", 24): (("1g.6gb", 1 / 4, 6, 4), ("2g.12gb", 2 / 4, 12, 2)),
    ("A100", 40): (("1g.5gb", 1 / 7, 5, 7), ("2g.10gb", 2 / 7, 10, 3), ("3g.20gb", 3 / 7, 20, 2)),
    ("A100", 80): (("1g.10gb", 1 / 7, 10, 7), ("2g.20gb", 2 / 7, 20, 3), ("3g.40gb", 3 / 7, 40, 2)),
    ("H100", 80): (("1g.10gb", 1 / 7, 10, 7), ("2g.20gb", 2 / 7, 20, 3), ("3g.40gb", 3 / 7, 40, 2)),
    ("H200", 141): (("1g.18gb", 1 / 7, 18, 7), ("2g.35gb", 2 / 7, 35, 3), ("3g.71gb", 3 / 7, 71, 2)),
    ("B200", 180): (("1g.23gb", 1 / 7, 23, 7), ("2g.45gb", 2 / 7, 45, 3), ("3g.90gb", 3 / 7, 90, 2)),
}


@dataclass(slots=True, kw_only=True)
class GpuPast:
    """One GPU's rounds. Ratios are peaks; `memory_known` is whether memory was known in every round of use."""

    index: int | None
    used_at: datetime | None = None
    memory_used_ratio: float | None = None
    sm_active_ratio: float | None = None
    memory_known: bool = True
    sm_known: bool = True


@dataclass(slots=True, kw_only=True)
class NodePast:
    """One node's rounds while it ran. `watched` is time between rounds that lie close enough together."""

    node: Node
    first: datetime
    last: datetime
    watched: timedelta = timedelta()
    rounds: int = 0
    unknown: int = 0
    gpus: dict[str, GpuPast] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What is advised for one node. `usd_per_month` is what it would save, at prices as they are; None: not known.

    `usd_shared_per_month` is what of a GPU's price others could use next to a slice: it saves nothing by itself.
    """

    node_id: str
    name: str
    pool: str
    instance_type: str
    kind: Kind
    gpus: tuple[int | None, ...]
    sentence: str
    better: str | None = None
    usd_per_month: Decimal | None = None
    usd_shared_per_month: Decimal | None = None


def see_rounds(rounds: Iterable[tuple[datetime, Fleet]]) -> dict[str, NodePast]:
    """What rounds, in the order of time, show of every node that ran in the newest."""
    pasts: dict[str, NodePast] = {}
    running: set[str] = set()
    for at, fleet in rounds:
        running = {node.id for node in fleet.nodes if node.state is NodeState.RUNNING}
        for node in fleet.nodes:
            if node.state is NodeState.RUNNING:
                _see_node(pasts, node, at)
    return {name: past for name, past in pasts.items() if name in running}


def _see_node(pasts: dict[str, NodePast], node: Node, at: datetime) -> None:
    past = pasts.setdefault(node.id, NodePast(node=node, first=at, last=at))
    if timedelta() < at - past.last <= _HOLE:
        past.watched += at - past.last
    past.node, past.last, past.rounds = node, at, past.rounds + 1
    if node.verdict is None or node.activity.state is State.UNKNOWN:
        past.unknown += 1
        return
    present = {gpu.uuid for gpu in node.verdict.gpus}
    for gone in past.gpus.keys() - present:
        del past.gpus[gone]
    for gpu in node.verdict.gpus:
        _see_gpu(past.gpus.setdefault(gpu.uuid, GpuPast(index=gpu.index)), gpu, at)


def _see_gpu(past: GpuPast, gpu: GpuVerdict, at: datetime) -> None:
    state, use = gpu.activity.state, gpu.use
    if state is State.IDLE:
        began = at - timedelta(seconds=gpu.activity.held_seconds)
        past.used_at = began if past.used_at is None else max(past.used_at, began)
        return
    past.used_at = at
    memory, multiprocessors = (None, None) if use is None else (use.memory_used_ratio, use.sm_active_ratio)
    past.memory_known &= memory is not None
    past.sm_known &= multiprocessors is not None
    if memory is not None:
        past.memory_used_ratio = max(memory, past.memory_used_ratio or 0.0)
    if multiprocessors is not None:
        past.sm_active_ratio = max(multiprocessors, past.sm_active_ratio or 0.0)


def advice(
    pasts: Mapping[str, NodePast],
    over: timedelta,
    offers: Sequence[Offer],
    usd: Mapping[str, Decimal],
    committed: Mapping[str, Decimal] | None = None,
) -> tuple[Sizing, ...]:
    """What is advised, the most expensive first; `usd` are prices by the hour, `committed` shares of them by type.

    `over` is how long a GPU must have been unused, and for how long peaks must have been watched.
    """
    prices = _Prices(usd=usd, committed=committed or {})
    found = [each for past in pasts.values() for each in _of_node(past, over, offers, prices)]
    return tuple(sorted(found, key=lambda each: (-(each.usd_per_month or Decimal(0)), each.kind, each.node_id)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prices:
    """Prices by the hour of machine types, and the shares of them that commitments cover."""

    usd: Mapping[str, Decimal]
    committed: Mapping[str, Decimal]

    def savings(self, mine: str, better: str) -> Decimal | None:
        """What the better type saves a month (rule 6); None: nothing."""
        avoidable = self.usd[mine] * (1 - self.committed.get(mine, Decimal(0)))
        saved = (avoidable - self.usd[better]) * HOURS_A_MONTH
        return saved if saved > 0 else None


def _of_node(past: NodePast, over: timedelta, offers: Sequence[Offer], prices: _Prices) -> Iterator[Sizing]:
    if past.rounds and past.unknown / past.rounds > _MOST_UNKNOWN:
        yield _doubt(past, f"its use was unknown in {past.unknown} of {how_many(past.rounds, 'round')}")
        return
    unused = {uuid for uuid, gpu in past.gpus.items() if gpu.used_at is not None and past.last - gpu.used_at >= over}
    if len(unused) == len(past.gpus):
        return
    mine = next((offer for offer in offers if offer.instance_type == past.node.instance_type), None)
    if unused:
        yield _size_of_unused(past, unused, mine, offers, prices)
    if past.watched < over * _LEAST_SHARE_SEEN:
        if not unused:
            seen_for = format_duration(past.watched.total_seconds())
            yield _doubt(past, f"it was watched for {seen_for} of {format_duration(over.total_seconds())}")
        return
    if mine is None:
        return
    yield from _slices(past, unused, mine, prices)
    if not unused:
        yield from _smaller_model(past, mine, offers, prices)


def _doubt(past: NodePast, why: str) -> Sizing:
    return _sizing(past, "unknown", (), f"nothing is advised: {why}")


def _sizing(  # one node's advice
    past: NodePast,
    kind: Kind,
    gpus: tuple[int | None, ...],
    sentence: str,
    better: str | None = None,
    usd_per_month: Decimal | None = None,
    usd_shared_per_month: Decimal | None = None,
) -> Sizing:
    node = past.node
    return Sizing(
        node_id=node.id,
        name=node.name,
        pool=node.pool,
        instance_type=node.instance_type,
        kind=kind,
        gpus=gpus,
        sentence=sentence,
        better=better,
        usd_per_month=usd_per_month,
        usd_shared_per_month=usd_shared_per_month,
    )


def _size_of_unused(
    past: NodePast, unused: set[str], mine: Offer | None, offers: Sequence[Offer], prices: _Prices
) -> Sizing:
    """Some GPUs work, others have not for long."""
    days = min(
        (past.last - gpu.used_at).total_seconds()
        for uuid, gpu in past.gpus.items()
        if uuid in unused and gpu.used_at is not None
    )
    needed = len(past.gpus) - len(unused)
    better = None if mine is None else _smaller(mine, needed, offers, prices.usd)
    text = f"{len(unused)} of {len(past.gpus)} GPUs unused for {_long(days)}"
    saved = None
    if better is None:
        text += "; no smaller machine with this GPU model is known: share the machine, or place other work on it"
    else:
        saved = prices.savings(past.node.instance_type, better.instance_type)
        text += f": {better.instance_type} has {better.gpu_count} of them"
        text += "" if saved else _COMMITTED
    gpus = sorted((past.gpus[uuid].index for uuid in unused), key=lambda index: (index is None, index))
    return _sizing(past, "unused_gpus", tuple(gpus), text, None if better is None else better.instance_type, saved)


def _smaller(mine: Offer, gpus: int, offers: Sequence[Offer], usd: Mapping[str, Decimal]) -> Offer | None:
    """The cheapest machine there with enough GPUs of the same model and memory that costs less."""
    if mine.instance_type not in usd:
        return None
    fitting = [
        offer
        for offer in offers
        if (offer.provider, offer.region, offer.capacity_type) == (mine.provider, mine.region, mine.capacity_type)
        and (offer.gpu_model, offer.gpu_memory_bytes) == (mine.gpu_model, mine.gpu_memory_bytes)
        and gpus <= offer.gpu_count < mine.gpu_count
        and usd.get(offer.instance_type, usd[mine.instance_type]) < usd[mine.instance_type]
    ]
    return min(fitting, key=lambda offer: (usd[offer.instance_type], offer.gpu_count), default=None)


def _slices(past: NodePast, unused: set[str], mine: Offer, prices: _Prices) -> Iterator[Sizing]:
    """GPUs with peaks that fit a part of a GPU."""
    each = prices.usd.get(mine.instance_type)
    profiles = _profiles(mine)
    for uuid, gpu in sorted(past.gpus.items(), key=lambda each: (each[1].index is None, each[1].index)):
        if uuid in unused or gpu.memory_used_ratio is None or not gpu.memory_known:
            continue
        held = gpu.memory_used_ratio * mine.gpu_memory_bytes
        for profile, share, gigabytes, most in profiles:
            if held * HEADROOM > gigabytes * _GIB:
                continue
            if gpu.sm_known and (gpu.sm_active_ratio or 0.0) * HEADROOM > share:
                continue
            peak = f"at most {gpu.sm_active_ratio:.0%} of its multiprocessors" if gpu.sm_known else None
            known = peak or "its multiprocessors' activity is not known, so try the speed first"
            sentence = (
                f"GPU {gpu.index} held at most {held / _GIB:.1f} GiB in {_long(past.watched.total_seconds())}, "
                f"{known}: a MIG slice {profile} holds it, and {most} of them fit on one {mine.gpu_model}"
            )
            free = None if each is None else each / mine.gpu_count * (most - 1) / most * HOURS_A_MONTH
            yield _sizing(past, "mig", (gpu.index,), sentence, profile, usd_shared_per_month=free)
            break


def _smaller_model(past: NodePast, mine: Offer, offers: Sequence[Offer], prices: _Prices) -> Iterator[Sizing]:
    """A machine with as many GPUs of a smaller model that hold the peaks (rule 5)."""
    card, gpus = CARDS.get(mine.gpu_model), past.gpus.values()
    peaks = [(gpu.memory_used_ratio, gpu.sm_active_ratio) for gpu in gpus if gpu.memory_known and gpu.sm_known]
    if card is None or len(peaks) < len(gpus) or mine.instance_type not in prices.usd:
        return
    memory = max((ratio or 0.0 for ratio, _ in peaks), default=0.0) * mine.gpu_memory_bytes
    active = max((ratio or 0.0 for _, ratio in peaks), default=0.0)
    if not memory or not active:
        return
    fitting = [
        offer
        for offer in offers
        if (offer.provider, offer.region, offer.capacity_type) == (mine.provider, mine.region, mine.capacity_type)
        and offer.gpu_model != mine.gpu_model
        and offer.gpu_share == 1
        and offer.gpu_count >= len(gpus)
        and offer.gpu_memory_bytes >= memory * HEADROOM
        and _holds_work(CARDS.get(offer.gpu_model), offer, card, mine, active * HEADROOM)
        and prices.usd.get(offer.instance_type, prices.usd[mine.instance_type]) < prices.usd[mine.instance_type]
    ]
    better = min(fitting, key=lambda offer: (prices.usd[offer.instance_type], offer.instance_type), default=None)
    if better is None:
        return
    saved = prices.savings(mine.instance_type, better.instance_type)
    sentence = (
        f"its GPUs held at most {memory / _GIB:.1f} GiB each in {_long(past.watched.total_seconds())}, at most "
        f"{active:.0%} of their multiprocessors: {better.instance_type} ({better.gpu_count} x {better.gpu_model}) "
        f"holds that by its datasheet; try the speed first{'' if saved else _COMMITTED}"
    )
    indexes = tuple(sorted((gpu.index for gpu in gpus), key=lambda index: (index is None, index)))
    yield _sizing(past, "smaller_type", indexes, sentence, better.instance_type, saved)


def _holds_work(other: Card | None, offer: Offer, card: Card, mine: Offer, share: float) -> bool:
    """Whether a model does a share of another's work, in half precision and from memory."""
    if other is None or "fp16" not in other.flops or "fp16" not in card.flops:
        return False
    flops = other.flops["fp16"] >= share * card.flops["fp16"]
    newer = "bf16" in other.flops or "bf16" not in card.flops
    return flops and newer and other.bandwidth(offer.gpu_memory_bytes) >= share * card.bandwidth(mine.gpu_memory_bytes)


def _profiles(mine: Offer) -> tuple[tuple[str, float, int, int], ...]:
    """The slices of its GPU model, smallest first; memory is matched to the nearest size on sale."""
    sizes = [size for model, size in MIG_PROFILES if model == mine.gpu_model]
    if not sizes:
        return ()
    return MIG_PROFILES[mine.gpu_model, min(sizes, key=lambda size: abs(size * _GIB - mine.gpu_memory_bytes))]


def _long(seconds: float) -> str:
    """For people: whole days, or hours."""
    days = seconds / 86400
    return f"{days:.0f} days" if days >= 2 else f"{seconds / 3600:.0f} hours"  # noqa: PLR2004  from two days on, days
