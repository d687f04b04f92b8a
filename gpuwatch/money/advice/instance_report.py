"""What `gpuwatch recommend instance` says: the memory a model takes, and the machines that hold it, ranked."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from gpuwatch.model.currency import display_currency
from gpuwatch.model.duration import format_duration
from gpuwatch.model.money import cents_of, day_with_age, format_usd, money_head
from gpuwatch.model.offers import Offer
from gpuwatch.model.readable import count_text
from gpuwatch.model.slips import meant_name
from gpuwatch.money.advice import instances, model_memory
from gpuwatch.money.advice.instances import Factor, Ranked
from gpuwatch.money.advice.model_memory import Part, Recompute, Workload
from gpuwatch.money.advice.training import SOURCE, Estimate, Run, estimate
from gpuwatch.money.prices import catalogue
from gpuwatch.runtime.json_document import fill_document
from gpuwatch.runtime.table import align_rows

_GIB = 2**30
_FAR_DEARER = 10  # times the cheapest
_WAYS: tuple[Recompute, ...] = ("selective", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A load, its memory as `parts` of the first candidate's way to recompute, and all candidates, best first."""

    load: Workload
    parts: tuple[Part, ...]
    weights: Mapping[Factor, float]
    ranked: tuple[Ranked, ...]
    looked_at: int
    most_machines: int
    run: Run | None = None  # the training whose hours and money are told

    def estimate(self, each: Ranked) -> Estimate | None:
        """The training there; None: none was asked for."""
        return None if self.run is None else estimate(self.load, each.candidate, self.run)


def choose(  # noqa: PLR0913  one for each option
    load: Workload,
    *,
    providers: Sequence[str] = (),
    regions: Sequence[str] = (),
    capacity: str = "on_demand",
    most_machines: int = 8,
    recompute: Recompute | None = None,
    weights: Mapping[Factor, float] | None = None,
    usd: Callable[[Offer], Decimal | None] | None = None,
) -> Choice:
    """The machines of the built-in price table that hold the load; `usd` is what is paid for an hour of an offer.

    Raises:
        ValueError: the load cannot be, or the table has no such provider or region.

    """
    options: tuple[tuple[str, Sequence[str], set[str]], ...] = (
        ("--provider", providers, {offer.provider for offer in catalogue.offers()}),
        ("--region", regions, {offer.region for offer in catalogue.offers() if offer.region}),
    )
    for option, given, known in options:
        for each in given:
            if each not in known:
                raise ValueError(f"{option} {each!r}: the price table has no offers there. {meant_name(each, known)}")
    offers = [
        offer
        for offer in catalogue.offers()
        if offer.capacity_type == capacity
        and (not providers or offer.provider in providers)
        and (not regions or offer.region in regions)
    ]
    if not offers:
        offered = sorted({offer.provider for offer in catalogue.offers() if offer.region})
        raise ValueError(f"the price table has no {capacity} offers there; it has those of {', '.join(offered)}")
    offers = offers if regions else _in_the_cheapest_region(offers)
    ways = _WAYS if recompute is None else (recompute,)
    found = tuple(instances.candidates(load, offers, usd or _usd_per_hour, most_machines=most_machines, recompute=ways))
    chosen = instances.WEIGHTS if weights is None else weights
    ranked = instances.rank_candidates(load, found, weights)
    way = ranked[0].candidate.recompute if ranked else ways[-1]
    return Choice(
        load=load,
        parts=model_memory.parts(model_memory.with_recompute(load, way)),
        weights=chosen,
        ranked=ranked,
        looked_at=len(offers),
        most_machines=most_machines,
    )


def _in_the_cheapest_region(offers: Iterable[Offer]) -> list[Offer]:
    """Each machine once: in the region where it costs the least."""
    cheapest: dict[tuple[str, str], Offer] = {}
    for each in sorted(
        offers, key=lambda offer: (offer.price_per_hour is None, offer.price_per_hour or 0, offer.region)
    ):
        cheapest.setdefault((each.provider, each.instance_type), each)
    return list(cheapest.values())


def _usd_per_hour(offer: Offer) -> Decimal | None:
    """Without settings there is no rate: list prices in other currencies are not compared."""
    return offer.price_per_hour if offer.currency == "USD" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMemory:
    """The memory of the model."""

    bytes: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The model's shape; `derived` names what was computed from the number of parameters."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    derived: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferPrice:
    """A list price in its own currency."""

    per_hour: Decimal | None
    currency: str
    as_of: date
    age_days: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingDocument:
    """A training there; null: not known, or it would never end. `useful_ratio` is what interruptions leave."""

    hours: float | None
    usd: Decimal | None
    useful_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateDocument:
    """Machines that hold the model, and how they score; `training` is null where none was asked for."""

    provider: str
    region: str
    instance_type: str
    machines: int
    gpus: int
    gpu_model: str
    gpu_memory_bytes: int
    held_bytes_per_gpu: int
    usable_bytes_per_gpu: int
    recompute: str
    usd_per_hour: Decimal | None
    price: OfferPrice
    score: float
    factors: dict[str, float]
    training: TrainingDocument | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDocument:
    """The machines for a model, best first: `candidates_total` of `offers_looked_at` offers hold it."""

    params: int
    task: str
    precision: str
    shape: ModelShape
    memory: ModelMemory
    weights: dict[str, float]
    candidates: list[CandidateDocument]
    candidates_total: int
    offers_looked_at: int


def instance_document(choice: Choice, limit: int, today: date) -> InstanceDocument:
    """For programs; docs/json.md defines each key."""
    load = choice.load
    return InstanceDocument(
        params=load.shape.params,
        task=load.task,
        precision=load.precision,
        shape=fill_document(ModelShape, load.shape),
        memory=ModelMemory(bytes=sum(part.bytes for part in choice.parts), parts=choice.parts),
        weights={str(factor): weight for factor, weight in choice.weights.items()},
        candidates=[_candidate(each, choice.estimate(each), today) for each in choice.ranked[:limit]],
        candidates_total=len(choice.ranked),
        offers_looked_at=choice.looked_at,
    )


def _candidate(each: Ranked, run: Estimate | None, today: date) -> CandidateDocument:
    found, offer = each.candidate, each.candidate.offer
    return fill_document(
        CandidateDocument,
        found,
        provider=offer.provider,
        region=offer.region,
        instance_type=offer.instance_type,
        gpu_model=offer.gpu_model,
        gpu_memory_bytes=offer.gpu_memory_bytes,
        held_bytes_per_gpu=found.held_bytes,
        usable_bytes_per_gpu=found.usable_bytes,
        price=fill_document(OfferPrice, offer, per_hour=offer.price_per_hour, age_days=(today - offer.as_of).days),
        score=round(each.score, 4),
        factors={name: round(value, 4) for name, value in each.factors.items()},
        training=None
        if run is None
        else TrainingDocument(
            hours=None if run.hours is None else round(run.hours, 2),
            usd=run.usd,
            useful_ratio=round(run.useful_ratio, 4),
        ),
    )


_TASKS = {"train": "to train", "lora": "to train adapters (LoRA) for", "serve": "to serve"}


def as_text(choice: Choice, limit: int, today: date) -> str:
    """Return the choice as text for people."""
    return "\n".join(_lines(choice, limit, today))


def _lines(choice: Choice, limit: int, today: date) -> Iterator[str]:
    shape = choice.load.shape
    guessed = f" ({', '.join(shape.derived)} derived)" if shape.derived else ""
    yield (
        f"{count_text(shape.params)} parameters, {_TASKS[choice.load.task]} in {choice.load.precision}; "
        f"{shape.layers} layers, hidden size {shape.hidden}, {shape.heads} heads, "
        f"{shape.kv_heads} of keys and values{guessed}."
    )
    yield ""
    parts = [
        (part.name, _gib(part.bytes), "in all" if part.shared else "each GPU", part.formula) for part in choice.parts
    ]
    yield from (f"  {line}" for line in align_rows(parts, left={0, 2, 3}))
    yield f"  Sources: {'. '.join(dict.fromkeys(part.source for part in choice.parts))}."
    yield ""
    if not choice.ranked:
        yield f"None of {choice.looked_at} offers holds it with up to {choice.most_machines} machines."
        return
    training = () if choice.run is None else ("training", money_head())
    heads = ("score", "machines", "GPUs", "each GPU holds", f"{display_currency().code}/h", *training, *choice.weights)
    rows = [heads, *(_row(each, choice) for each in choice.ranked[:limit])]
    factors = range(len(heads) - len(choice.weights), len(heads))
    yield from align_rows(rows, left={1, 2}, spare={column: rank for rank, column in enumerate(factors, start=1)})
    yield ""
    shown = choice.ranked[:limit]
    if choice.weights is instances.WEIGHTS:
        yield "The first row does most for a dollar: the order is by cost, then by score."
    else:
        yield "The order is by score."
    yield from _notes(shown)
    yield from _far_dearer(choice, shown)
    yield from _about_training(choice, shown)
    if len(choice.ranked) > limit:
        yield f"{len(choice.ranked) - limit} more hold it; --limit shows them."
    yield "Of each GPU 1 GiB and 8 % are kept back."
    yield from _about_prices(shown, today)
    yield from filter(None, [display_currency().note])
    yield "docs/advice.md defines the score."


def _notes(shown: Sequence[Ranked]) -> Iterator[str]:
    """Each note once, with the types that it is about."""
    about: dict[str, list[str]] = {}
    for each in shown:
        offer = each.candidate.offer
        for note in each.candidate.notes:
            about.setdefault(note, []).append(f"{offer.instance_type} in {offer.region}")
    return (f"{'; '.join(types)}: {note}." for note, types in about.items())


def _far_dearer(choice: Choice, shown: Sequence[Ranked]) -> Iterator[str]:
    """Of machines that cost many times the cheapest: what they cost, and why they are listed all the same."""
    least = min((cost for each in choice.ranked if (cost := each.candidate.usd_per_hour)), default=None)
    for each in shown:
        found, cost = each.candidate, each.candidate.usd_per_hour
        if least is None or cost is None or cost < _FAR_DEARER * least:
            continue
        reason = max(choice.weights, key=lambda name: choice.weights[name] * each.factors[name])
        why = "does as much for a dollar" if reason == "cost" else f"is listed for its {reason}"
        yield (
            f"{found.offer.instance_type} in {found.offer.region} costs {cost / least:,.0f} times the cheapest that "
            f"holds it ({format_usd(least)}/h), and {why}."
        )


def _row(each: Ranked, choice: Choice) -> tuple[str, ...]:
    found, offer = each.candidate, each.candidate.offer
    return (
        f"{each.score:.3f}",
        f"{found.machines} x {offer.instance_type}, {offer.provider} {offer.region}",
        f"{found.gpus} x {offer.gpu_model} {offer.gpu_memory_bytes // _GIB} GiB",
        f"{_gib(found.held_bytes)} of {_gib(found.usable_bytes)}",
        format_usd(found.usd_per_hour, "not known"),
        *_training(choice.estimate(each)),
        *(f"{each.factors[name]:.2f}" for name in choice.weights),
    )


def _training(run: Estimate | None) -> tuple[str, ...]:
    """Its hours and money, as cells."""
    if run is None:
        return ()
    if run.hours is None:
        return ("never ends" if run.useful_ratio <= 0 else "not known", "not known")
    seconds = run.hours * 3600
    took = format_duration(seconds) if seconds >= 1 else "under 1s"
    return (took, "not known" if run.usd is None else f"{cents_of(run.usd) / 100:,.0f}")


def _about_training(choice: Choice, shown: Sequence[Ranked]) -> Iterator[str]:
    """What the hours rest on."""
    run = choice.run
    if run is None:
        return
    operations = run.operations(choice.load, shown[0].candidate.recompute)
    yield f"The training takes {operations:.3g} operations at {run.efficiency:.0%} of the GPUs' peak. {SOURCE}."
    if run.interruptions_per_day:
        lost = format_duration(run.lost_hours * 3600)
        yield (
            f"Each machine is interrupted {run.interruptions_per_day:g} times a day, which stops all of them and costs "
            f"{lost}: the restart and half of the time between checkpoints."
        )
    yield "Twice the machines take half the time at about the same cost, as long as their network keeps up."


def _gib(bytes_: int) -> str:
    return f"{bytes_ / _GIB:,.1f} GiB"


def _about_prices(shown: Sequence[Ranked], today: date) -> Iterator[str]:
    """The day, the age and the source of every list price that is shown."""
    for as_of, source in sorted({(each.candidate.offer.as_of, each.candidate.offer.source) for each in shown}):
        yield f"List prices of {day_with_age(as_of, today)}: {source}."
