"""PURE: how much GPU memory a transformer needs to be trained, fine-tuned or served, part by part, with its formula.

Rules, all of them:

1. Weights, gradients and the optimizer's state are shared out over all GPUs (ZeRO-3, FSDP; tensor parallelism when
   serving), or held whole by each (`replicated`). Activations belong to each GPU's own micro-batch.
2. A model's shape is what is given. What is not given is derived from its parameters as of a decoder with a hidden size
   of 128 times its layers, with parameters = 12 * layers * hidden^2. 7e9 gives 33 layers of 4,224 (Llama's 7B: 32 of
   4,096).
3. Of each GPU's memory 1 GiB and 8 % are kept back for CUDA's context, communication buffers and fragmentation.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

Task = Literal["train", "lora", "serve"]
Precision = Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4"]
Recompute = Literal["none", "selective", "full"]

KEPT_BACK_BYTES = 2**30
KEPT_BACK_RATIO = Fraction(8, 100)
_HIDDEN_PER_LAYER = 128
_HEAD_SIZE = 128

BYTES_PER_VALUE: Mapping[Precision, Fraction] = {
    "fp32": Fraction(4),
    "fp16": Fraction(2),
    "bf16": Fraction(2),
    "fp8": Fraction(1),
    "int8": Fraction(1),
    "int4": Fraction(1, 2) + Fraction(127, 8000),  # with QLoRA's doubly quantized constants: 0.127 bits a parameter
}
# What training computes in, and so what gradients and the copies of weights are held in.
TRAINING: tuple[Precision, ...] = ("fp32", "fp16", "bf16", "fp8")

ZERO = "Rajbhandari et al., ZeRO (SC 2020), section 3.1"
KORTHIKANTI = "Korthikanti et al., Reducing Activation Recomputation (MLSys 2023), section 4"
POPE = "Pope et al., Efficiently Scaling Transformer Inference (MLSys 2023), section 2"
LORA = "Hu et al., LoRA (ICLR 2022), section 4; Dettmers et al., QLoRA (NeurIPS 2023)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder-only transformer. `derived` names what was not given but estimated."""

    params: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    derived: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is to be run. `batch` is each GPU's micro-batch; when serving, how many requests run at once in all."""

    task: Task
    shape: Shape
    precision: Precision = "bf16"
    batch: int = 1
    sequence: int = 4096  # tokens of one sample, or of one request with its answer
    recompute: Recompute = "selective"
    optimizer: Literal["adamw", "adamw8bit", "sgd"] = "adamw"
    lora_rank: int = 16
    replicated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of the memory. `shared`: the GPUs hold it together; otherwise each of them holds so much."""

    name: str
    bytes: int
    shared: bool
    formula: str
    source: str


def shape_of(
    params: int,
    *,
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    vocabulary: int = 32_000,
) -> Shape:
    """The shape of a model with so many parameters.

    Raises:
        ValueError: it cannot be; the text says what would be right.

    """
    if params < 1:
        raise ValueError(f"a model has at least 1 parameter, not {params}")
    given = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads}
    for name, value in given.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; expected 1 or more")
    if layers is None:
        free = (params / (12 * _HIDDEN_PER_LAYER**2)) ** (1 / 3) if hidden is None else params / (12 * hidden**2)
        layers = max(1, round(free))
    if hidden is None:
        hidden = max(_HEAD_SIZE, _HEAD_SIZE * round(math.sqrt(params / (12 * layers)) / _HEAD_SIZE))
    if heads is None:
        alike = kv_heads or 1
        heads = alike * max(1, round(hidden / _HEAD_SIZE / alike))
    if kv_heads is None:
        kv_heads = heads
    if heads % kv_heads:
        raise ValueError(f"{heads} heads cannot share {kv_heads} key-value heads evenly; expected a divisor")
    return Shape(
        params=params,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        vocabulary=vocabulary,
        derived=tuple(name for name, value in given.items() if value is None),
    )


def parts(workload: Workload) -> tuple[Part, ...]:
    """Everything that the workload holds in GPU memory.

    Raises:
        ValueError: the precision cannot be trained in.

    """
    if workload.task == "train" and workload.precision not in TRAINING:
        raise ValueError(f"nothing is trained in {workload.precision}; expected {', '.join(TRAINING)}")
    parts_of = {"train": _training, "lora": _adapters, "serve": _serving}[workload.task]
    return tuple(parts_of(workload))


def with_recompute(load: Workload, way: Recompute) -> Workload:
    """The same load, its activations recomputed in this way."""
    return replace(load, recompute=way)


def per_gpu_bytes(found: tuple[Part, ...], gpus: int) -> int:
    """What each of so many GPUs holds."""
    return sum(-(-part.bytes // gpus) if part.shared else part.bytes for part in found)


def usable_bytes(memory_bytes: int) -> int:
    """What of a GPU's memory may be planned with."""
    return max(0, int(memory_bytes * (1 - KEPT_BACK_RATIO)) - KEPT_BACK_BYTES)


def gpus_needed(found: tuple[Part, ...], memory_bytes: int) -> int | None:
    """The smallest number of GPUs of this size that hold it; None: no number does."""
    usable = usable_bytes(memory_bytes)
    own = sum(part.bytes for part in found if not part.shared)
    shared = sum(part.bytes for part in found if part.shared)
    if own >= usable:
        return None if shared or own > usable else 1
    return max(1, -(-shared // (usable - own)))


def _training(load: Workload) -> Iterator[Part]:
    params, wide = load.shape.params, load.precision == "fp32"
    value = 4 if wide else 2  # fp8 is computed in, weights and gradients stay in 16 bits
    held = not load.replicated
    yield Part(name="weights", bytes=params * value, shared=held, formula=f"{value} bytes x parameters", source=ZERO)
    yield Part(name="gradients", bytes=params * value, shared=held, formula=f"{value} bytes x parameters", source=ZERO)
    yield _optimizer(load, params, held=held)
    yield from _activations(load)


def _optimizer(load: Workload, params: int, *, held: bool) -> Part:
    states = {"adamw": 8, "adamw8bit": 2, "sgd": 4}[load.optimizer]
    master = 0 if load.precision == "fp32" else 4
    words = {"adamw": "two moments in fp32", "adamw8bit": "two moments in 8 bits", "sgd": "momentum in fp32"}
    copy = "an fp32 copy of the weights and " if master else ""
    return Part(
        name="optimizer",
        bytes=params * (states + master),
        shared=held,
        formula=f"{states + master} bytes x parameters: {copy}{words[load.optimizer]}",
        source=ZERO,
    )


def _activations(load: Workload) -> Iterator[Part]:
    shape, wide = load.shape, 2 if load.precision == "fp32" else 1
    tokens = load.sequence * load.batch
    layer = 34 * tokens * shape.hidden * wide
    if load.recompute == "none":
        total = shape.layers * (layer + 5 * shape.heads * load.sequence * tokens * wide)
        formula = "layers x s b h (34 + 5 a s / h) bytes: everything is kept"
    elif load.recompute == "selective":
        total = shape.layers * layer
        formula = "layers x 34 s b h bytes: attention is recomputed (as FlashAttention does)"
    else:
        total = shape.layers * 2 * tokens * shape.hidden * wide + layer
        formula = "layers x 2 s b h bytes and one layer's 34 s b h: layers are recomputed"
    words = f"; s = {load.sequence} tokens, b = {load.batch}, h = {shape.hidden}, a = {shape.heads}"
    yield Part(name="activations", bytes=total, shared=False, formula=formula + words, source=KORTHIKANTI)
    yield Part(
        name="logits",
        bytes=4 * tokens * shape.vocabulary,
        shared=False,
        formula=f"4 s b v bytes; v = {shape.vocabulary}",
        source=KORTHIKANTI,
    )


def _adapters(load: Workload) -> Iterator[Part]:
    shape, held = load.shape, not load.replicated
    each = BYTES_PER_VALUE[load.precision]
    yield Part(
        name="weights",
        bytes=math.ceil(shape.params * each),
        shared=held,
        formula=f"{float(each):g} bytes x parameters, frozen",
        source=LORA,
    )
    trained = 18 * shape.hidden * load.lora_rank * shape.layers
    yield Part(
        name="adapters",
        bytes=16 * trained,
        shared=held,
        formula=f"16 bytes x {trained:,}: weights, gradients and AdamW of layers x 18 h r; r = {load.lora_rank}",
        source=LORA,
    )
    yield from _activations(load)


def _serving(load: Workload) -> Iterator[Part]:
    shape = load.shape
    each = BYTES_PER_VALUE[load.precision]
    yield Part(
        name="weights",
        bytes=math.ceil(shape.params * each),
        shared=not load.replicated,
        formula=f"{float(each):g} bytes x parameters",
        source=POPE,
    )
    value = 4 if load.precision == "fp32" else 1 if load.precision == "fp8" else 2
    head = shape.hidden // shape.heads
    yield Part(
        name="KV cache",
        bytes=2 * shape.layers * shape.kv_heads * head * value * load.sequence * load.batch,
        shared=not load.replicated,
        formula=(
            f"2 x layers x kv_heads x head size x {value} bytes x tokens x requests; "
            f"{shape.kv_heads} x {head}, {load.sequence} tokens, {load.batch} requests"
        ),
        source=POPE,
    )
    yield Part(
        name="activations",
        bytes=34 * load.sequence * shape.hidden + 4 * load.batch * shape.vocabulary,
        shared=False,
        formula="34 s h bytes of one prompt in one layer, and 4 v bytes of logits a request",
        source=KORTHIKANTI,
    )
