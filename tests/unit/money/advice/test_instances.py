"""Which machines hold a model: memory by published formulas, and the ranking of what fits."""

from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.offers import Offer
from gpuwatch.money.advice import instances, model_memory
from gpuwatch.money.advice.gpu_models import CARDS
from gpuwatch.money.advice.model_memory import Part, Task, Workload, shape_of
from gpuwatch.money.prices.catalogue import offers
from tests.support.builders.money import GIB, an_offer

LLAMA_7B = shape_of(6_738_415_616, layers=32, hidden=4096, heads=32)
GPT3 = shape_of(175_000_000_000, layers=96, hidden=12288, heads=96)


def found(load: Workload, *offers: Offer, most_machines: int = 8) -> dict[str, instances.Candidate]:
    """The candidates by their type."""
    rows = instances.candidates(load, offers, lambda offer: offer.price_per_hour, most_machines=most_machines)
    return {each.offer.instance_type: each for each in rows}


def part(load: Workload, name: str) -> Part:
    """One part of a load's memory."""
    return next(each for each in model_memory.parts(load) if each.name == name)


def test_mixed_precision_training_with_adamw_takes_sixteen_bytes_a_parameter_besides_activations() -> None:
    """2 for weights, 2 for gradients, 12 for the optimizer (ZeRO's 2 + 2 + K with K = 12)."""
    load = Workload(task="train", shape=LLAMA_7B)
    states = [each for each in model_memory.parts(load) if each.shared]

    assert [each.bytes / LLAMA_7B.params for each in states] == [2, 2, 12]


def test_activations_follow_the_published_formula() -> None:
    """For GPT-3's layer with s = 2048, b = 1: 34 s b h with attention recomputed, and 5 a s^2 b more without."""
    selective = part(Workload(task="train", shape=GPT3, sequence=2048), "activations")
    everything = part(Workload(task="train", shape=GPT3, sequence=2048, recompute="none"), "activations")

    assert selective.bytes == 96 * 34 * 2048 * 12288
    assert everything.bytes - selective.bytes == 96 * 5 * 96 * 2048**2


def test_a_cache_of_keys_and_values_takes_half_a_mebibyte_a_token_for_llama_7b() -> None:
    """2 x 32 layers x 4096 x 2 bytes."""
    cache = part(Workload(task="serve", shape=LLAMA_7B, sequence=1, batch=1), "KV cache")

    assert cache.bytes == GIB // 2048


def test_four_gpus_of_eighty_gigabytes_do_not_hold_gpt3_and_five_do() -> None:
    """Its weights in 16 bits are 350 GB, more than 4 x 80 GB."""
    load = Workload(task="serve", shape=GPT3, sequence=512)

    assert model_memory.gpus_needed(model_memory.parts(load), 80 * GIB) == 5


def test_quantized_weights_with_adapters_fit_where_full_training_does_not() -> None:
    """QLoRA of 65e9 parameters fits one GPU of 48 GB, as its paper says; training takes dozens."""
    shape = shape_of(65_000_000_000, layers=80, hidden=8192, heads=64)
    adapters = Workload(task="lora", shape=shape, precision="int4", sequence=512, recompute="full")

    assert model_memory.gpus_needed(model_memory.parts(adapters), 48 * GIB) == 1
    assert (
        model_memory.gpus_needed(model_memory.parts(Workload(task="train", shape=shape, sequence=512)), 80 * GIB) or 0
    ) > 12


def test_a_derived_shape_is_near_the_published_ones() -> None:
    """12 layers h^2 of the derived shape is within a tenth of the parameters, from 125e6 to 1e12."""
    for params in (125e6, 1.3e9, 7e9, 70e9, 175e9, 1e12):
        shape = shape_of(int(params))

        assert 12 * shape.layers * shape.hidden**2 == pytest.approx(params, rel=0.1), params
        assert shape.derived == ("layers", "hidden", "heads", "kv_heads")


def test_derived_heads_can_be_shared_by_the_given_heads_of_keys_and_values() -> None:
    """A 70B model with 8 of them gets a multiple of 8, as Llama's has 64."""
    assert shape_of(70_000_000_000, kv_heads=8).heads == 72


def test_a_shape_that_cannot_be_is_refused_by_name() -> None:
    """Grouped-query attention divides heads evenly."""
    with pytest.raises(ValueError, match="32 heads cannot share 5 key-value heads evenly"):
        shape_of(7_000_000_000, heads=32, kv_heads=5)


@given(
    params=st.integers(10**6, 10**12),
    task=st.sampled_from(["train", "lora", "serve"]),
    batch=st.integers(1, 64),
    sequence=st.integers(1, 32_768),
    size=st.integers(8, 288),
)
def test_the_number_of_gpus_is_the_smallest_that_holds_it(
    params: int, task: Task, batch: int, sequence: int, size: int
) -> None:
    """So many hold their part each, one less does not; None means that no number does."""
    parts = model_memory.parts(Workload(task=task, shape=shape_of(params), batch=batch, sequence=sequence))
    usable = model_memory.usable_bytes(size * GIB)
    needed = model_memory.gpus_needed(parts, size * GIB)

    if needed is None:
        assert model_memory.per_gpu_bytes(parts, 10**9) > usable - 1
        return
    assert model_memory.per_gpu_bytes(parts, needed) <= usable
    assert needed == 1 or model_memory.per_gpu_bytes(parts, needed - 1) > usable


def test_what_does_not_fit_is_no_candidate_and_the_fewest_machines_are_taken() -> None:
    """A 7B model trains on one machine of eight A100, on none with one T4."""
    load = Workload(task="train", shape=LLAMA_7B)
    document = found(load, an_offer("p4de.24xlarge"), an_offer("g4dn.xlarge", gpus=1, model="T4", memory_gib=16))

    assert list(document) == ["p4de.24xlarge"]
    assert document["p4de.24xlarge"].machines == 1


def test_layers_are_recomputed_only_where_that_saves_machines_and_it_is_said() -> None:
    """A long sequence whose activations do not fit is recomputed whole."""
    long = Workload(task="train", shape=LLAMA_7B, sequence=32_768)
    candidate = found(long, an_offer("p4de.24xlarge"))["p4de.24xlarge"]

    assert candidate.recompute == "full"
    assert "recomputes whole layers: about a third more compute" in candidate.notes
    assert found(Workload(task="train", shape=LLAMA_7B), an_offer("a"))["a"].recompute == "selective"


def test_a_cheaper_machine_of_the_same_kind_ranks_before_a_dearer_one() -> None:
    """All other factors are equal."""
    load = Workload(task="train", shape=LLAMA_7B)
    rows = instances.rank_candidates(load, list(found(load, an_offer("dear", usd="80"), an_offer("cheap")).values()))

    assert [each.candidate.offer.instance_type for each in rows] == ["cheap", "dear"]
    assert rows[0].factors["cost"] == 2 * rows[1].factors["cost"]


def test_the_first_row_is_the_best_for_money_unless_weights_are_given() -> None:
    """A small machine does more for each dollar; eight large ones in one are faster, and lead if speed is asked for."""
    load = Workload(task="serve", shape=LLAMA_7B)
    rows = list(found(load, an_offer("fast", model="H100", usd="9"), an_offer("slow", gpus=1, usd="4")).values())
    by_money, by_score = (
        instances.rank_candidates(load, rows),
        instances.rank_candidates(load, rows, {"performance": 1.0}),
    )

    assert [each.candidate.offer.instance_type for each in by_money] == ["slow", "fast"]
    assert [each.candidate.offer.instance_type for each in by_score] == ["fast", "slow"]


def test_a_machine_without_a_price_is_listed_last_and_is_never_free() -> None:
    """Its cost factor is 0."""
    load = Workload(task="serve", shape=LLAMA_7B)
    rows = instances.rank_candidates(load, list(found(load, an_offer("unknown", usd=None), an_offer("known")).values()))

    assert [each.candidate.offer.instance_type for each in rows] == ["known", "unknown"]
    assert rows[1].factors["cost"] == 0
    assert rows[1].candidate.usd_per_hour is None


def test_a_precision_without_units_is_told() -> None:
    """A V100 has none for bfloat16 and is counted with its fp16 units."""
    load = Workload(task="serve", shape=LLAMA_7B)
    candidate = found(load, an_offer("p3.8xlarge", gpus=4, model="V100", memory_gib=16))["p3.8xlarge"]

    assert candidate.notes == ("a V100 has no bf16 units; it would compute in fp16",)


def test_weights_decide_and_wrong_ones_are_refused() -> None:
    """With the cost alone the cheapest leads; negative weights are none."""
    load = Workload(task="serve", shape=LLAMA_7B)
    rows = list(found(load, an_offer("fast", model="H100", usd="98"), an_offer("slow", gpus=1, usd="4")).values())

    assert instances.rank_candidates(load, rows, {"cost": 1.0})[0].candidate.offer.instance_type == "slow"
    assert instances.rank_candidates(load, rows, {"performance": 1.0})[0].candidate.offer.instance_type == "fast"
    with pytest.raises(ValueError, match="0 or more"):
        instances.rank_candidates(load, rows, {"cost": -1.0})


@given(
    usd=st.lists(st.decimals("0.1", "200", places=2), min_size=1, max_size=6),
    weights=st.fixed_dictionaries({name: st.floats(0, 1) for name in instances.WEIGHTS}),
)
def test_scores_lie_between_zero_and_one_and_the_best_factor_is_one(
    usd: list[Decimal], weights: dict[instances.Factor, float]
) -> None:
    """At any prices and weights."""
    load = Workload(task="train", shape=LLAMA_7B)
    offers = [an_offer(f"m{number}", usd=str(price)) for number, price in enumerate(usd)]
    if sum(weights.values()) <= 0:
        return
    rows = instances.rank_candidates(load, list(found(load, *offers).values()), weights)

    assert all(0 <= each.score <= 1.000001 for each in rows)
    assert max(each.factors["cost"] for each in rows) == 1


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.model)
def test_a_card_is_as_its_architecture_allows(card: object) -> None:
    """bfloat16 from Ampere on, FP8 from Ada on, faster in 16 bits than in 32, and no figure with sparsity."""
    assert isinstance(card, type(CARDS["T4"]))

    assert ("bf16" in card.flops) == (card.capability >= (8, 0)), card.model
    assert ("fp8" in card.flops) == (card.capability >= (8, 9)), card.model
    if "fp16" in card.flops:
        assert card.flops["fp16"] > card.flops["fp32"]
    assert CARDS["T4"].link_bytes_per_second is None
    assert CARDS["A100"].bandwidth(40 * GIB) < CARDS["A100"].bandwidth(80 * GIB)


def test_every_model_of_nvidia_that_is_sold_has_its_figures() -> None:
    """Else its machines would rank last without a reason that holds; what other makers sell is known by name."""
    others = {"HL-205", "MI300X"}
    sold = {each.gpu_model for each in offers(slices=True)}

    assert sorted(each for each in sold - others if each not in CARDS and not each.startswith("Radeon")) == []
    assert others <= sold


@pytest.mark.parametrize("model", ["GB200", "H100 NVL"])
def test_figures_that_nobody_has_read_in_a_datasheet_are_named_as_that(model: str) -> None:
    """With where they are from."""
    load = Workload(task="train", shape=LLAMA_7B)
    known, other = an_offer("known"), replace(an_offer("other"), gpu_model=model)
    notes = {name: each.notes for name, each in found(load, known, other).items()}

    told = f"the figures of a {model} are {CARDS[model].known_by}, and not read in a datasheet"
    assert told in notes["other"]
    assert not any("datasheet" in note for note in notes["known"])
