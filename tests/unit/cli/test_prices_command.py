"""`gpuwatch prices`: what it lists, for people and for scripts, and the settings behind it."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuwatch.cli.main import commands
from gpuwatch.config import ConfigError, load
from gpuwatch.config.settings import Settings
from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices import catalogue, listing
from gpuwatch.money.prices.catalogue import ListPrice
from gpuwatch.money.prices.fetch import Found
from gpuwatch.money.prices.price_book import Book
from gpuwatch.runtime.clock import SystemClock
from tests.support.fakes.http_sink import Answer, Asked, azure_item, serving


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Own prices, and a rate."""
    (tmp_path / "prices.yaml").write_text(
        "prices:\n  - {provider: aws, instance_type: p5.48xlarge, price: 31.46, source: contract}\n", encoding="utf-8"
    )
    file = tmp_path / "gpuwatch.yaml"
    text = f'prices: {{file: {tmp_path}/prices.yaml, rates: {{CNY: "0.14"}}, live: {{directory: {tmp_path}/kept}}}}\n'
    file.write_text(text, encoding="utf-8")
    return file


def run(*arguments: str) -> Result:
    """The command."""
    return CliRunner().invoke(commands, ["prices", *arguments])


def rows(*arguments: str) -> list[dict[str, Any]]:
    """Its rows."""
    done = run("--json", *arguments)
    assert done.exit_code == 0, done.output
    listed: list[dict[str, Any]] = json.loads(done.stdout)["prices"]
    return listed


def test_a_row_tells_machine_price_age_and_source(config: Path) -> None:
    """By machine and by GPU; amounts are texts, which lose nothing."""
    (row,) = rows("--config", str(config), "--gpu", "A100", "--region", "eastus", "--provider", "azure")[:1]
    age = row.pop("age_days")

    assert age > 0
    assert row == {
        "provider": "azure",
        "region": "eastus",
        "instance_type": "Standard_NC24ads_A100_v4",
        "gpu_model": "A100",
        "gpu_count": 1,
        "gpu_memory_bytes": 80 * 2**30,
        "vcpus": 24,
        "memory_bytes": 220 * 2**30,
        "capacity_type": "on_demand",
        "price_per_hour": "3.673",
        "price_per_gpu_hour": "3.673",
        "currency": "USD",
        "ratio_to_on_demand": None,
        "as_of": "2026-06-18",
        "source": "Azure list price, from Azure/karpenter-provider-azure zz_generated.pricing.go",
        "usd_per_hour": "3.673",
        "usd_per_gpu_hour": "3.673",
        "usd_source": "Azure list price, from Azure/karpenter-provider-azure zz_generated.pricing.go",
        "usd_exact": True,
        "usd_unknown": None,
    }


def test_a_spot_price_has_a_row_of_its_own_with_its_ratio() -> None:
    """$50.61 of $88.49 is 57 %: the price and what part of the other it is, which others mix up."""
    result = [
        row for row in rows("--provider", "gcp", "--region", "us-central1") if row["instance_type"] == "a3-highgpu-8g"
    ]

    assert [(row["capacity_type"], row["price_per_hour"], row["ratio_to_on_demand"]) for row in result] == [
        ("spot", "50.609541", 0.5719),
        ("on_demand", "88.49", None),
    ]


@pytest.mark.parametrize(
    ("provider", "region", "zone", "kind"),
    [
        ("aws", "us-east-1", "us-east-1a", "p5.48xlarge"),
        ("alibaba", "cn-shenzhen", "cn-shenzhen-d", "ecs.gn7e-c16g1.4xlarge"),
        ("gcp", "europe-west4", "europe-west4", "a3-highgpu-8g"),
    ],
)
def test_a_spot_price_of_a_zone_is_compared_with_its_region(provider: str, region: str, zone: str, kind: str) -> None:
    """And listed with it."""
    whole = catalogue.offer(provider, region, kind, CapacityType.ON_DEMAND)
    assert whole is not None
    assert whole.price_per_hour is not None
    quote = ListPrice(
        per_hour=whole.price_per_hour / 4, currency=whole.currency, as_of=date(2027, 1, 1), source="a test"
    )
    found = Found(place=zone, instance_type=kind, capacity_type=CapacityType.SPOT, quote=quote)
    books = {name: Book(provider=name) for name in catalogue.PROVIDERS}
    result = listing.rows(listing.merge_offers({provider: [found]}), books, datetime(2027, 1, 2, tzinfo=UTC))
    mine = [
        row for row in result if (row.offer.instance_type, row.offer.region) == (kind, zone) and row.ratio is not None
    ]

    assert [(row.ratio, row.age_days) for row in mine] == [(Decimal("0.25"), 1)]
    assert listing.is_asked_for(mine[0].offer, provider=None, region=region, gpu=None)


def test_what_is_paid_stands_beside_what_is_listed(config: Path) -> None:
    """Own prices and converted ones, each with its source; without a rate it is unknown, and why."""
    (own,) = [
        each
        for each in rows("--config", str(config), "--gpu", "h100", "--region", "us-east-1")
        if each["instance_type"] == "p5.48xlarge"
    ]
    (converted,) = [
        each
        for each in rows("--config", str(config), "--gpu", "A10", "--region", "cn-beijing")
        if each["instance_type"] == "ecs.gn7i-8x.32xlarge"
    ]
    (unknown,) = [
        each
        for each in rows("--gpu", "A10", "--region", "cn-beijing")
        if each["instance_type"] == "ecs.gn7i-8x.32xlarge"
    ]

    assert (own["price_per_hour"], own["usd_per_hour"], own["usd_source"]) == (
        "55.04",
        "31.46",
        "contract, prices.yaml:2",
    )
    assert (converted["price_per_hour"], converted["usd_per_hour"]) == ("80.7469", "11.304566")
    assert (unknown["usd_per_hour"], unknown["usd_unknown"]) == (
        None,
        "its price is in CNY, and prices.rates has no rate for CNY",
    )


def test_the_text_says_how_old_the_prices_are_and_warns_when_that_is_too_old() -> None:
    """Alibaba's table of December 2024 is older than half a year for ever."""
    text = run("--provider", "alibaba").output

    assert "alibaba: prices as of 2024-12-31, " in text
    assert " days old: Alibaba Cloud list price" in text
    assert "Warning: prices of alibaba are up to " in text


def test_nothing_found_is_said() -> None:
    """With what would find something; a model or a region that nobody offers is refused."""
    wrong, nowhere = run("--gpu", "H9000"), run("--region", "us-esat-1")

    assert (wrong.exit_code, nowhere.exit_code) == (2, 2)
    assert "no machine with a GPU 'H9000' is known. There are: A10, " in " ".join(wrong.output.split())
    assert "us-east-1" in nowhere.output


def test_refreshed_prices_are_listed_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One region of one cloud, from its own API; later without asking."""
    monkeypatch.setattr(SystemClock, "sleep", lambda *_: None)  # five questions a second, of ninety

    def respond(asked: Asked) -> Answer:
        size = asked.query["$filter"].rpartition(" eq '")[2].rstrip("'")
        known = size == "Standard_ND96isr_H200_v5"
        return Answer(body={"Items": [azure_item(armSkuName=size, retailPrice=84.8)] if known else []})

    config = tmp_path / "gpuwatch.yaml"
    with serving(respond) as server:
        live = f"{{azure: true, directory: {tmp_path}/kept, endpoints: {{azure: '{server.url}'}}}}"
        config.write_text(f"prices: {{live: {live}}}\n", encoding="utf-8")
        ask = ["--config", str(config), "--provider", "azure", "--region", "eastus", "--gpu", "H200"]
        before, after = rows(*ask), rows("--refresh", *ask)
        asked = len(server.asked)

        assert before == []
        assert [(row["price_per_hour"], row["source"]) for row in after] == [("84.8", "Azure Retail Prices API, Linux")]
        assert rows(*ask) == after
        assert len(server.asked) == asked


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["--provider", "ibm"], "'ibm' is not one of aws, azure, gcp, alibaba, tencent"),
        (["--refresh"], "name them with --provider and --region"),
        (["--refresh", "--provider", "gcp", "--region", "us-central1"], "prices.live.gcp is not set"),
    ],
)
def test_what_cannot_be_asked_is_said(arguments: list[str], wrong: str) -> None:
    """With exit status 2."""
    done = run(*arguments)

    assert done.exit_code == 2
    assert wrong in done.output


def test_a_mistake_in_the_file_is_told_with_its_line(config: Path) -> None:
    """As every mistake of the configuration is."""
    (config.parent / "prices.yaml").write_text("prices:\n  - {instance_type: x, price: much}\n", encoding="utf-8")
    done = run("--config", str(config))

    assert done.exit_code == 2
    assert "prices.yaml:2: price: 'much' is no amount\n    expected: a number of 0 or more" in done.output


# Settings


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{currency: yuan}", "prices.currency: 'yuan' is no currency"),
        ("{currency: EUR}", "prices.currency: prices.rates has no rate for EUR"),
        ("{rates: {cny: 0.14}}", "prices.rates.cny: 'cny' is no currency"),
        ("{rates: {CNY: 0}}", "prices.rates.CNY: 0 is too small"),
        ("{rates: {USD: 0.9}}", "prices.rates.USD: a US dollar is not worth that"),
        ("{live: {tencent: true}}", "prices.live.tencent is set, but prices.live.tencent_currency is not"),
        ("{live: {every: 60s}}", 'prices.live.every: "60s" is too small'),
        ("{live: {endpoints: {ibm: 'http://x'}}}", "prices.live.endpoints.ibm: 'ibm' is asked for no price"),
        ("{live: {endpoints: {aws: x}}}", "prices.live.endpoints.aws: 'x' is not a valid URL"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(text: str, wrong: str, tmp_path: Path) -> None:
    """With its key, value and remedy."""
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(f"prices: {text}\n", encoding="utf-8")

    with pytest.raises(ConfigError) as error:
        load(file, {})

    assert wrong in str(error.value)


def test_nothing_is_asked_of_any_cloud_by_default() -> None:
    """Live prices are for those who want them."""
    assert Settings().prices.live.providers == ()
