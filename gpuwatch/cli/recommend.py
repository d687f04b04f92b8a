"""The command that chooses a machine for a model."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.amounts import none_below, share
from gpuwatch.cli.base import (
    above_zero,
    commands,
    config_option,
    explain_errors,
    is_given,
    json_option,
    print_text,
    settings_of,
)
from gpuwatch.runtime.json_document import json_text

if TYPE_CHECKING:
    from gpuwatch.model.offers import Offer
    from gpuwatch.money.advice.model_memory import Workload
    from gpuwatch.money.advice.training import Run

_MOST_PARAMETERS = 10**15  # a thousand times the largest model
_FEWEST_PARAMETERS = 10**5  # who writes 7 means 7B; less than this needs no GPU
_MOST_OPERATIONS = 1e30
_MOST_ROWS = 100_000
_MOST = 10**9  # of layers, tokens, heads: no memory holds more, and nobody means it
_SCALES = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


@commands.group()
def recommend() -> None:
    """Recommend instance types, sizes and commitments, with the arithmetic. Nothing is changed."""


def _count(_: click.Context, param: click.Parameter, value: str) -> int:
    """A number of parameters such as 7B, 350M or 1.3e9."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([KMBT]?)", value.strip(), re.IGNORECASE)
    number = 0.0 if found is None else float(found[1]) * _SCALES[found[2].upper()]
    if number > _MOST_PARAMETERS:
        raise click.BadParameter(f"{value!r} is too large; write for example 7B, 350M or 1.3e9", param=param)
    if 1 <= number < _FEWEST_PARAMETERS:
        raise click.BadParameter(f"{value!r} is too small; write for example 7B, 350M or 1.3e9", param=param)
    if number < 1:
        raise click.BadParameter(
            f"{value!r} is not a number of parameters; write for example 7B, 350M or 1.3e9", param=param
        )
    return round(number)


def _quantity(_: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A large number such as 300B or 3e23."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([KMBT]?)", value.strip(), re.IGNORECASE)
    number = 0.0 if found is None else float(found[1]) * _SCALES[found[2].upper()]
    if not 1 <= number <= _MOST_OPERATIONS:
        raise click.BadParameter(f"{value!r} is not a number from 1 to 1e30; write for example 300B", param=param)
    return number


def _weights(_: click.Context, param: click.Parameter, value: str | None) -> dict[str, float] | None:
    """Weights such as performance=0.5,cost=0.5; a factor that is not named counts 0."""
    from gpuwatch.money.advice.instances import WEIGHTS

    if value is None:
        return None
    weights: dict[str, float] = {str(factor): 0.0 for factor in WEIGHTS}
    for entry in value.split(","):
        name, _sign, number = entry.strip().partition("=")
        if name not in weights:
            right = ", ".join(f"{factor}=<number>" for factor in weights)
            raise click.BadParameter(f"{entry.strip()!r} is not a weight; expected {right}", param=param)
        try:
            weights[name] = float(number)
        except ValueError as error:
            raise click.BadParameter(
                f"{entry.strip()!r} has no number; write for example {name}=0.5", param=param
            ) from error
    return weights


@recommend.command()
@click.option("--params", callback=_count, required=True, metavar="N", help="The model's parameters: 7B, 350M, 1.3e9.")
@click.option("--train", is_flag=True, help="Train or fine-tune all weights.")
@click.option("--lora", is_flag=True, help="Fine-tune adapters; int4 weights make it QLoRA.")
@click.option("--serve", is_flag=True, help="Answer requests. [default]")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "bf16", "fp8", "int8", "int4"]),
    default="bf16",
    show_default=True,
    help="Number format of the weights.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, _MOST),
    default=1,
    show_default=True,
    help="A GPU's micro-batch; requests at once.",
)
@click.option(
    "--sequence", type=click.IntRange(1, _MOST), default=4096, show_default=True, help="Tokens of a sample, or request."
)
@click.option("--optimizer", type=click.Choice(["adamw", "adamw8bit", "sgd"]), default="adamw", show_default=True)
@click.option(
    "--recompute",
    type=click.Choice(["none", "selective", "full"]),
    help="Activations that are computed again [as little as the fewest machines allow].",
)
@click.option("--lora-rank", type=click.IntRange(1, _MOST), default=16, show_default=True)
@click.option("--replicated", is_flag=True, help="Each GPU holds the whole model: no ZeRO, FSDP or tensor parallelism.")
@click.option("--layers", type=click.IntRange(1, _MOST), help="The model's layers [derived from --params].")
@click.option("--hidden", type=click.IntRange(1, _MOST), help="Its hidden size [derived from --params].")
@click.option("--heads", type=click.IntRange(1, _MOST), help="Its attention heads [derived from --params].")
@click.option(
    "--kv-heads",
    type=click.IntRange(1, _MOST),
    help="Its key-value heads [as many as heads: no grouped-query attention].",
)
@click.option("--vocabulary", type=click.IntRange(1, _MOST), default=32_000, show_default=True)
@click.option("--provider", multiple=True, help="Only of these clouds; may be repeated.")
@click.option("--region", multiple=True, help="Only in these regions; may be repeated.")
@click.option("--capacity", type=click.Choice(["on_demand", "spot"]), default="on_demand", show_default=True)
@click.option("--machines", type=click.IntRange(1, _MOST), help="At most so many [8; 1 to serve].")
@click.option(
    "--weights",
    callback=_weights,
    metavar="FACTOR=NUMBER,…",
    help="How much each factor counts in the score [docs/advice.md#choose-a-machine].",
)
@click.option("--tokens", callback=_quantity, metavar="N", help="To train on; adds hours and money.")
@click.option("--flops", callback=_quantity, metavar="N", help="Operations in all, in place of --tokens: 3.1e23.")
@click.option(
    "--efficiency",
    callback=share,
    default="0.4",
    show_default="0.4, assumed",
    help="Share of the GPUs' peak that work reaches.",
)
@click.option(
    "--interruptions",
    callback=none_below,
    default="0",
    show_default=True,
    help="Spot interruptions of a machine per day.",
)
@click.option("--checkpoint", callback=above_zero, default="30m", show_default=True, help="Time between checkpoints.")
@click.option("--restart", callback=above_zero, default="10m", show_default=True, help="After an interruption.")
@click.option("--limit", type=click.IntRange(1, _MOST_ROWS), default=10, show_default=True, help="How many are shown.")
@config_option
@json_option
def instance(*, params: int, path: Path | None, as_json: bool, **options: Any) -> None:  # noqa: ANN401  click's values
    """Rank the instance types with GPUs that can hold a model, with the arithmetic."""
    from gpuwatch.money.advice import instance_report
    from gpuwatch.runtime.clock import SystemClock

    with explain_errors():
        usd = paid_by_settings(path)
    task = _task(options)
    try:
        load = _workload(params, task, options)
        run = _run(task, options)
        result = instance_report.choose(
            load,
            providers=options["provider"],
            regions=options["region"],
            capacity=options["capacity"],
            most_machines=options["machines"] or (1 if task == "serve" else 8),
            recompute=options["recompute"],
            weights=options["weights"],
            usd=usd,
        )
    except ValueError as error:
        print_text(error, err=True)
        sys.exit(2)
    limit = options["limit"]
    result = replace(result, run=run)
    today = SystemClock().now().date()
    document = instance_report.instance_document(result, limit, today)
    print_text(json_text("recommend.instance", document) if as_json else instance_report.as_text(result, limit, today))


def paid_by_settings(path: Path | None) -> "Callable[[Offer], Decimal | None] | None":
    """What the settings make of an offer's price: own prices, discounts, rates; None: there are no settings."""
    from gpuwatch.config.chosen_file import default_path

    if path is None and default_path(os.environ) is None:
        return None
    from gpuwatch.money.prices import catalogue, listing
    from gpuwatch.money.prices.open import open_own
    from gpuwatch.money.prices.price_book import Book, NoPrice
    from gpuwatch.runtime.clock import SystemClock

    prices = settings_of(path).prices
    own, now = open_own(prices), SystemClock().now()
    books = {name: Book(provider=name, rates=prices.rates, own=own) for name in catalogue.PROVIDERS}

    def usd(offer: "Offer") -> Decimal | None:
        found = listing.price_paid(offer, books, now)
        return None if isinstance(found, NoPrice) or not found.exact else found.usd_per_hour

    return usd


def _workload(params: int, task: str, options: dict[str, Any]) -> "Workload":
    """What the options ask for.

    Raises:
        ValueError: it cannot be.

    """
    from gpuwatch.money.advice.model_memory import Workload, shape_of

    shape = shape_of(
        params, **{name: options[name] for name in ("layers", "hidden", "heads", "kv_heads", "vocabulary")}
    )
    names = ("precision", "batch", "sequence", "optimizer", "lora_rank", "replicated")
    return Workload(task=task, shape=shape, **{name: options[name] for name in names})  # type: ignore[arg-type]  # click.Choice checked it


def _task(options: dict[str, Any]) -> str:
    """What the model is for."""
    given = [task for task in ("train", "lora", "serve") if options[task]]
    if len(given) > 1:
        raise click.UsageError(f"--{given[0]} and --{given[1]} are both given; give one of --train, --lora and --serve")
    return given[0] if given else "serve"


_OF_A_TRAINING = ("efficiency", "interruptions", "checkpoint", "restart")


def _run(task: str, options: dict[str, Any]) -> "Run | None":
    """The training that the options ask for; None: none.

    Raises:
        ValueError: it cannot be.

    """
    from gpuwatch.money.advice.training import Run

    tokens, flops = options["tokens"], options["flops"]
    if tokens is None and flops is None:
        alone = [each for each in _OF_A_TRAINING if is_given(each)]
        if alone:
            raise ValueError(f"--{alone[0]} is of a training's hours and money: give --tokens or --flops as well")
        return None
    if task == "serve":
        raise ValueError("--tokens and --flops are of a training: give --train or --lora")
    if tokens is not None and flops is not None:
        raise ValueError("give one of --tokens and --flops")
    efficiency, interruptions = float(options["efficiency"]), float(options["interruptions"])
    if not efficiency:
        raise ValueError("--efficiency 0: a training that reaches nothing of the GPUs' peak never ends")
    lost = (options["restart"] + options["checkpoint"] / 2) / 3600
    return Run(tokens=tokens, flops=flops, efficiency=efficiency, interruptions_per_day=interruptions, lost_hours=lost)


@recommend.command()
@click.option(
    "--over", callback=above_zero, default="7d", show_default=True, help="Unused for so long; peaks of that time."
)
@config_option
@json_option
def rightsize(over: float, path: Path | None, *, as_json: bool) -> None:
    """Find nodes with more GPUs than their work uses, and work that a part of a GPU could do."""
    with explain_errors():
        from gpuwatch.money.advice import rightsizing_report
        from gpuwatch.runtime.clock import SystemClock

        settings = settings_of(path)
        providers = [cloud.provider for cloud in settings.named_clouds.values()]
        found = rightsizing_report.make_report(settings.ledger, SystemClock(), over, providers)
        print_text(json_text("recommend.rightsize", found) if as_json else rightsizing_report.as_text(found))
