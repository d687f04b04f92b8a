"""The built-in table of GPU machines: every row is possible, and what is widely told wrong is right here."""

import re
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import Price, place_of
from gpuwatch.model.offers import Offer, PriceKey
from gpuwatch.money.prices import catalogue, regions
from gpuwatch.money.prices.price_book import Book, NoPrice
from tests.support.paths import ROOT

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
    "RTX PRO 5000": {73728},
    "GB300": {274658},
    "MI300X": {196592},
    "HL-205": {32768},
    "M60": {8192},
    "P4": {8192},
    "P40": {24576},
    "P100": {16384},
    "A16": {16384},
    "L20": {46068},
    "H20": {97871},
    "Radeon Pro V620": {32768},
    "Radeon Pro V710": {24560},
    "Radeon Instinct MI25": {16384},
}
# Machines of which no public table has a price: their cloud sells them by contract, or publishes none.
WITHOUT_PRICE = {
    "p5e.48xlarge", "p6e-gb200.36xlarge", "Standard_ND128isr_GB300_v6", "a3-edgegpu-8g", "a3-edgegpu-8g-nolssd",
    "a3-ultragpu-8g-nolssd", "a4-highgpu-8g", "a4x-highgpu-4g", "a4x-maxgpu-4g-metal",
    "ecs.ebmgn6e.24xlarge", "ecs.ebmgn6v.24xlarge", "ecs.ebmgn8v.48xlarge", "ecs.ebmgn9gc.64xlarge",
    "ecs.ebmgn9ge.64xlarge", "ecs.gn6e-c12g1.6xlarge", "Standard_NG32adms_V620_v1",
    "ecs.gn8is.2xlarge", "ecs.gn8is.4xlarge", "ecs.gn8is-2x.8xlarge", "ecs.gn8is-4x.16xlarge", "ecs.gn8is-8x.32xlarge",
    "ecs.gn8v.4xlarge", "ecs.gn8v.6xlarge", "ecs.gn8v-2x.8xlarge", "ecs.gn8v-2x.12xlarge", "ecs.gn8v-4x.8xlarge",
    "ecs.gn8v-4x.24xlarge", "ecs.gn8v-8x.16xlarge", "ecs.gn8v-8x.48xlarge", "ecs.gn8v-tee.4xlarge",
    "ecs.gn8v-tee.6xlarge", "ecs.gn8v-tee-8x.16xlarge", "ecs.gn8v-tee-8x.48xlarge",
}  # fmt: skip


def the_offer(provider: str, region: str, instance_type: str) -> Offer:
    """The price on demand."""
    found = catalogue.offer(provider, region, instance_type, CapacityType.ON_DEMAND)
    assert found is not None, f"{instance_type} has no price in {region}"
    return found


def test_every_row_is_a_machine_that_can_be() -> None:
    """Known models with the memory they are sold with or a slice of it, 1 to 16 GPUs, a host, prices above 0."""
    for each in catalogue.offers(slices=True):
        text = f"{each.provider} {each.region} {each.instance_type}"

        whole = GPU_MEMORY_MIB[each.gpu_model]
        assert any(each.gpu_memory_bytes // MIB == int(size * each.gpu_share) for size in whole), text
        assert each.gpu_count in {1, 2, 4, 8, 16}, text
        assert each.gpu_share == 1 or (each.gpu_share.numerator, each.gpu_count) == (1, 1), text
        assert 2 <= each.vcpus <= 400, text
        assert each.memory_bytes is not None or "RTXPRO6000BSE" in text, text
        assert each.memory_bytes is None or 8 * 2**30 <= each.memory_bytes <= 4096 * 2**30, text
        assert each.price_per_hour is None or Decimal("0.2") < each.price_per_hour < 500, text
        assert each.currency in {"USD", "CNY"}, text
        assert each.source, text


def test_no_offer_is_there_twice() -> None:
    """One price for a machine, a region and a kind of capacity."""
    keys = [
        (each.provider, each.region, each.instance_type, each.capacity_type) for each in catalogue.offers(slices=True)
    ]

    assert len(keys) == len(set(keys))


def test_every_spot_price_is_below_the_price_on_demand_and_says_so_in_a_row_of_its_own() -> None:
    """A slipped digit would show in the discount, which is 40 to 90 % in this table."""
    spot = catalogue.offers(capacity_type=CapacityType.SPOT)

    assert {each.provider for each in spot} == {"gcp"}
    for each in spot:
        whole = the_offer(each.provider, each.region, each.instance_type).price_per_hour
        assert each.price_per_hour is not None
        assert whole is not None
        assert Decimal("0.1") < each.price_per_hour / whole < Decimal("0.7"), each.instance_type


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
    models = {
        key: (kind.gpu_model, kind.gpu_memory_bytes // MIB)
        for key, kind in catalogue.machine_types().items()
        if kind.gpu_share == 1
    }
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
        ("aws", "us-west-2", "p5.48xlarge", "55.04", "USD"),
        ("aws", "eu-west-1", "g5.xlarge", "1.123", "USD"),
        ("aws", "ap-northeast-1", "p4d.24xlarge", "30.09784", "USD"),
        ("aws", "us-east-1", "g7e.2xlarge", "3.36312", "USD"),
        ("aws", "us-east-1", "dl1.24xlarge", "13.10904", "USD"),
        ("aws", "us-gov-west-1", "p5.48xlarge", "66.048", "USD"),
        ("aws", "cn-north-1", "g5.xlarge", "9.51389", "CNY"),
        ("azure", "westeurope", "Standard_ND40rs_v2", "27.526", "USD"),
        ("azure", "eastus", "Standard_NC6s_v3", "3.06", "USD"),
        ("azure", "eastus", "Standard_ND128isr_NDR_GB200_v6", "108.16", "USD"),
        ("azure", "eastus", "Standard_NC144ds_xl_RTXPRO6000BSE_v6", "5.5", "USD"),
        ("gcp", "us-central1", "g4-standard-48", "4.49993", "USD"),
        ("gcp", "europe-west4", "a3-megagpu-8g", "118.236831", "USD"),
        ("alibaba", "cn-hangzhou", "ecs.ebmgn7i.32xlarge", "53.2331", "CNY"),
        ("alibaba", "us-east-1", "ecs.gn5-c4g1.xlarge", "10.79", "CNY"),
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

    assert len(found) >= 30
    assert {each.price_per_hour for each in found} == {None}
    assert {each.region for each in found} == {""}


def test_offers_can_be_asked_for_by_cloud_region_and_type() -> None:
    """Each argument narrows."""
    assert {each.provider for each in catalogue.offers("aws")} == {"aws"}
    assert {each.region for each in catalogue.offers("gcp", "us-central1")} == {"us-central1"}
    assert len(catalogue.offers("gcp", "us-central1", instance_type="g2-standard-4")) == 2
    assert catalogue.offers("gcp", "us-east-1") == ()


def test_most_gpu_types_of_aws_have_local_disks() -> None:
    """As aws/karpenter-provider-aws lists them from the API of EC2; of Tencent Cloud the table does not say."""
    found = {name: catalogue.local_disk_types(name) for name in catalogue.PROVIDERS}
    aws, alibaba = found["aws"], found["alibaba"]

    assert aws is not None
    assert (aws.having, aws.known, aws.families_without) == (66, 82, ("g3", "g3s", "g5g", "p2", "p3"))
    assert alibaba is not None
    assert (alibaba.having, alibaba.known > 80) == (8, True), "gn5 alone has them"
    assert found["tencent"] is None


def test_a_slice_is_named_and_priced_by_the_whole_gpu() -> None:
    """An eighth of an L4 for $0.202 an hour is $1.616 for a whole one; advice on whole GPUs does not list it."""
    found = the_offer("aws", "us-east-1", "g6f.large")

    assert (found.gpu_count, found.gpu_share, found.gpu_memory_bytes // MIB) == (1, Fraction(1, 8), 2861)
    assert (found.price_per_hour, found.price_per_gpu_hour) == (Decimal("0.202"), Decimal("1.616"))
    assert catalogue.offers(instance_type="g6f.large") == ()
    assert catalogue.offers(instance_type="g6f.large", slices=True) != ()


@pytest.mark.parametrize("provider", catalogue.PROVIDERS)
def test_more_gpus_of_a_family_never_cost_less(provider: str) -> None:
    """In each region, the cheapest machine with more GPUs costs at least what the cheapest with fewer does."""
    families: dict[tuple[str, str, str], dict[Fraction, Decimal]] = {}
    for each in catalogue.offers(provider, slices=True, capacity_type=CapacityType.ON_DEMAND):
        if each.price_per_hour is not None:
            family = re.sub(
                r"[0-9]+", "", each.instance_type.replace("ecs.", "").split("." if provider == "aws" else "-")[0]
            )
            prices = families.setdefault((each.region, family, each.gpu_model), {})
            gpus = each.gpu_count * each.gpu_share
            prices[gpus] = min(each.price_per_hour, prices.get(gpus, each.price_per_hour))

    for key, prices in families.items():
        assert [prices[gpus] for gpus in sorted(prices)] == sorted(prices.values()), key


@pytest.mark.parametrize("provider", catalogue.PROVIDERS)
def test_every_machine_has_a_price_in_every_region_listed_there_or_marked_as_anothers(provider: str) -> None:
    """Never silently nothing: what is unknown everywhere is named here, and Tencent Cloud publishes no price."""
    book, now = Book(provider=provider, rates={"CNY": Decimal("0.14")}), datetime(2026, 11, 29, tzinfo=UTC)
    kinds = [name for cloud, name in catalogue.machine_types() if cloud == provider]
    attached = [f"n1-standard-8+2xnvidia-tesla-{each}" for each in ("t4", "v100", "p100", "p4")]
    for kind in kinds + (attached if provider == "gcp" else []):
        here = catalogue.places(provider, kind, CapacityType.ON_DEMAND)
        for region in regions.known_places(provider):
            found = book.find(PriceKey(instance_type=kind, region=region), now)
            if kind in WITHOUT_PRICE or provider == "tencent":
                assert isinstance(found, NoPrice), kind
                continue
            assert isinstance(found, Price), f"{kind} in {region}: {found}"
            assert found.usd_per_hour > 0
            assert (found.exact, place_of(found.source) is None) == (region in here, region in here)
            assert found.limit_usd_per_hour >= found.usd_per_hour


def test_every_region_with_a_price_is_a_region_whose_place_is_known() -> None:
    """Otherwise it could never be the nearest to another."""
    assert {(each.provider, each.region) for each in catalogue.offers(slices=True) if each.region} <= {
        (provider, region) for provider in catalogue.PROVIDERS for region in regions.known_places(provider)
    }


def test_the_data_stays_small() -> None:
    """It is in every wheel."""
    folder = ROOT / "gpuwatch/money/prices/data"

    assert sum(path.stat().st_size for path in folder.iterdir()) < 400_000
