"""The built-in table of GPU machines: every row is possible, and what is widely told wrong is right here."""

from decimal import Decimal

import pytest

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import Offer
from gpuwatch.money.prices import catalogue

MIB = 1024**2
# What each model is sold with, in MiB; two where there are two versions of it.
GPU_MEMORY_MIB = {
    "T4": {16384},
    "T4G": {16384},
    "K80": {12288},
    "V100": {16384, 32768},
    "Radeon Pro V520": {8192},
    "A10": {22888},
    "A10G": {22888},
    "L4": {22888},
    "L40S": {45776},
    "A100": {40960, 81920},
    "H100": {81920},
    "H100 NVL": {95830},
    "H200": {144384},
    "B200": {183359},
    "B300": {275040},
    "GB200": {183105},
    "RTX PRO 4500": {32768},
    "RTX PRO 6000": {98304},
}


def the_offer(provider: str, region: str, instance_type: str) -> Offer:
    """The price on demand."""
    found = catalogue.offer(provider, region, instance_type, CapacityType.ON_DEMAND)
    assert found is not None, f"{instance_type} has no price in {region}"
    return found


def test_every_row_is_a_machine_that_can_be() -> None:
    """Known models with the memory they are sold with, 1 to 16 GPUs, a host larger than nothing, prices above 0."""
    for each in catalogue.offers():
        text = f"{each.provider} {each.region} {each.instance_type}"

        assert each.gpu_memory_bytes // MIB in GPU_MEMORY_MIB[each.gpu_model], text
        assert each.gpu_count in {1, 2, 4, 8, 16}, text
        assert 2 <= each.vcpus <= 400, text
        assert each.memory_bytes is not None
        assert 8 * 2**30 <= each.memory_bytes <= 4096 * 2**30, text
        assert each.price_per_hour is None or Decimal("0.2") < each.price_per_hour < 500, text
        assert each.currency in {"USD", "CNY"}, text
        assert each.source, text


def test_no_offer_is_there_twice() -> None:
    """One price for a machine, a region and a kind of capacity."""
    keys = [(each.provider, each.region, each.instance_type, each.capacity_type) for each in catalogue.offers()]

    assert len(keys) == len(set(keys))


def test_every_spot_price_is_below_the_price_on_demand_and_says_so_in_a_row_of_its_own() -> None:
    """A slipped digit would show in the discount, which is 30 to 70 % in this table."""
    spot = catalogue.offers(capacity_type=CapacityType.SPOT)

    assert {each.provider for each in spot} == {"gcp"}
    for each in spot:
        whole = the_offer(each.provider, each.region, each.instance_type).price_per_hour
        assert each.price_per_hour is not None
        assert whole is not None
        assert Decimal("0.3") < each.price_per_hour / whole < Decimal("0.7"), each.instance_type


def test_a_gpu_of_a_larger_machine_costs_about_as_much_as_one_of_a_smaller() -> None:
    """A machine's price is never that of one GPU: the largest host makes a GPU eight times as dear, and no more."""
    dearest: dict[tuple[str, str, str, int], list[Decimal]] = {}
    for each in catalogue.offers(capacity_type=CapacityType.ON_DEMAND):
        if each.price_per_gpu_hour is not None:
            key = (each.provider, each.region, each.gpu_model, each.gpu_memory_bytes)
            dearest.setdefault(key, []).append(each.price_per_gpu_hour)

    assert {key: prices for key, prices in dearest.items() if max(prices) > 9 * min(prices)} == {}


@pytest.mark.parametrize(
    "instance_type", ["ecs.gn7i-c16g1.32xlarge", "GN7.20XLARGE640", "Standard_NC6_Promo", "p5.49xlarge"]
)
def test_what_does_not_exist_or_is_a_promotion_is_not_listed(instance_type: str) -> None:
    """Names that public text has made up, and offers that have ended."""
    assert catalogue.offers(instance_type=instance_type) == ()


def test_what_is_widely_told_wrong_is_right_here() -> None:
    """gn7i is A10, gn6i has 4 T4 at most, GN10Xp is V100 with 32 GB, GT4 is A100, GN7 is T4."""
    models = {key: (kind.gpu_model, kind.gpu_memory_bytes // MIB) for key, kind in catalogue.machine_types().items()}
    families = {
        family: {rows for (_, name), rows in models.items() if name.startswith(family)}
        for family in ("ecs.gn7i-", "ecs.gn7e-", "ecs.gn7-", "ecs.gn6i-", "GN10Xp.", "GT4.", "GN7.")
    }
    most_t4 = max(
        kind.gpu_count for (_, name), kind in catalogue.machine_types().items() if name.startswith("ecs.gn6i")
    )

    assert families == {
        "ecs.gn7i-": {("A10", 22888)},
        "ecs.gn7e-": {("A100", 81920)},
        "ecs.gn7-": {("A100", 40960)},
        "ecs.gn6i-": {("T4", 16384)},
        "GN10Xp.": {("V100", 32768)},
        "GT4.": {("A100", 40960)},
        "GN7.": {("T4", 16384)},
    }
    assert most_t4 == 4
    assert catalogue.machine_types()["alibaba", "ecs.gn7i-c16g1.4xlarge"].gpu_count == 1
    assert catalogue.machine_types()["tencent", "GT4.41XLARGE948"].gpu_count == 8


@pytest.mark.parametrize(
    ("provider", "region", "instance_type", "price", "currency"),
    [
        ("azure", "eastus", "Standard_ND96asr_v4", "27.197", "USD"),
        ("azure", "eastus", "Standard_ND96isr_H100_v5", "98.32", "USD"),
        ("aws", "us-east-1", "p4d.24xlarge", "21.957642", "USD"),
        ("aws", "us-east-1", "p5.48xlarge", "55.04", "USD"),
        ("gcp", "us-central1", "a2-highgpu-8g", "29.38708", "USD"),
        ("gcp", "us-central1", "a3-highgpu-8g", "88.49", "USD"),
        ("alibaba", "cn-shenzhen", "ecs.gn7i-c16g1.4xlarge", "10.0934", "CNY"),
    ],
)
def test_a_price_is_of_the_whole_machine(
    provider: str, region: str, instance_type: str, price: str, currency: str
) -> None:
    """Not of one of its GPUs, and with its GPUs: an ND A100 v4 is not $3.40, an a2-highgpu-8g is not $5.92."""
    found = the_offer(provider, region, instance_type)

    assert (found.price_per_hour, found.currency) == (Decimal(price), currency)
    assert found.price_per_gpu_hour == Decimal(price) / found.gpu_count


def test_tencent_is_described_without_prices() -> None:
    """It publishes no table: its machines are known, their prices are not."""
    found = catalogue.offers("tencent")

    assert len(found) > 10
    assert {each.price_per_hour for each in found} == {None}
    assert {each.region for each in found} == {""}


def test_offers_can_be_asked_for_by_cloud_region_and_type() -> None:
    """Each argument narrows."""
    assert {each.provider for each in catalogue.offers("aws")} == {"aws"}
    assert {each.region for each in catalogue.offers("gcp", "us-central1")} == {"us-central1"}
    assert len(catalogue.offers("gcp", "us-central1", instance_type="g2-standard-4")) == 2
    assert catalogue.offers("gcp", "us-east-1") == ()


def test_most_gpu_types_of_aws_have_local_disks() -> None:
    """As aws/karpenter-provider-aws lists them from the API of EC2; of other clouds the table does not say."""
    found = catalogue.local_disk_types("aws")

    assert found is not None
    assert (found.having, found.known, found.families_without) == (59, 71, ("g5g", "p2", "p3"))
    assert catalogue.local_disk_types("gcp") is None
