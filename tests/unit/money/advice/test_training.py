"""Hours and money of a training, by hand arithmetic."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from click.testing import CliRunner

from gpuwatch.cli.main import commands
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.offers import Offer
from gpuwatch.money.advice.instances import Candidate
from gpuwatch.money.advice.model_memory import Workload, shape_of
from gpuwatch.money.advice.training import Run, estimate

OFFER = Offer(
    provider="aws",
    region="us-east-1",
    instance_type="p5.48xlarge",
    gpu_model="H100",
    gpu_count=8,
    gpu_memory_bytes=80 * 2**30,
    vcpus=192,
    memory_bytes=None,
    capacity_type=CapacityType.ON_DEMAND,
    price_per_hour=Decimal(50),
    currency="USD",
    as_of=date(2026, 1, 1),
    source="a test",
)
EIGHT = Candidate(
    offer=OFFER,
    machines=1,
    gpus=8,
    recompute="selective",
    held_bytes=0,
    usable_bytes=1,
    usd_per_hour=Decimal(50),
)
SEVEN_B = Workload(task="train", shape=shape_of(7_000_000_000))


def test_by_hand() -> None:
    """6 x 7e9 x 1e12 operations by 8 GPUs of 989.5e12 at 40 %: 13.26 million seconds, 3,685 hours, $184,228."""
    found = estimate(SEVEN_B, EIGHT, Run(tokens=1e12))
    hours = 6 * 7e9 * 1e12 / (8 * 989.5e12 * 0.4) / 3600

    assert found.hours == pytest.approx(hours)
    assert float(found.usd or 0) == pytest.approx(50 * hours, abs=0.01)


@pytest.mark.parametrize(
    ("task", "recompute", "each"), [("train", "selective", 6), ("train", "full", 8), ("lora", "none", 4)]
)
def test_operations_of_a_token(task: str, recompute: str, each: int) -> None:
    """Adapters save the gradients of the weights, recomputation costs another forward pass."""
    load = replace(SEVEN_B, task=task)  # type: ignore[arg-type]

    assert Run(tokens=10.0).operations(load, recompute) == each * 7e9 * 10  # type: ignore[arg-type]
    assert Run(flops=5e18).operations(load, recompute) == 5e18  # type: ignore[arg-type]


def test_an_interruption_of_any_machine_stops_all() -> None:
    """Four machines, three interruptions a day each, half an hour lost by each: a quarter of the time."""
    four = replace(EIGHT, machines=4, gpus=32)
    calm, stormy = Run(tokens=1e12), Run(tokens=1e12, interruptions_per_day=3.0, lost_hours=0.5)
    found = estimate(SEVEN_B, four, stormy)

    assert found.useful_ratio == pytest.approx(0.75)
    assert found.hours == pytest.approx((estimate(SEVEN_B, four, calm).hours or 0) / 0.75)


def test_what_loses_more_than_it_does_never_ends() -> None:
    """And costs nobody knows how much."""
    found = estimate(SEVEN_B, EIGHT, Run(tokens=1e12, interruptions_per_day=48.0, lost_hours=0.5))

    assert (found.hours, found.usd, found.useful_ratio) == (None, None, 0.0)


def test_what_is_not_known_of_a_gpu_or_a_price_is_said() -> None:
    """Not 0."""
    unpriced = estimate(SEVEN_B, replace(EIGHT, usd_per_hour=None), Run(tokens=1e12))

    assert unpriced.hours is not None
    assert unpriced.usd is None
    assert estimate(SEVEN_B, replace(EIGHT, offer=replace(OFFER, gpu_model="X1")), Run(tokens=1e12)).hours is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tokens", "1T"), "--tokens and --flops are of a training: give --train or --lora"),
        (("--train", "--tokens", "1T", "--flops", "1e20"), "give one of --tokens and --flops"),
        (("--train", "--tokens", "many"), "'many' is not a number from 1 to 1e30; write for example 300B"),
        (("--train", "--tokens", "1T", "--efficiency", "0"), "--efficiency 0: a training that reaches nothing"),
        (("--train", "--tokens", "1T", "--efficiency", "40"), "'40' is not from 0 to 1"),
        (("--train", "--tokens", "1T", "--interruptions", "-1"), "'-1' is below 0"),
    ],
)
def test_bad_options_are_named(options: tuple[str, ...], says: str) -> None:
    """With their value and what would be right."""
    done = CliRunner().invoke(commands, ["recommend", "instance", "--params", "7B", *options])

    assert done.exit_code == 2
    assert says in done.output
