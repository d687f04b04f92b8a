"""Tencent Cloud's prices, asked for by its SDK: what is taken of an answer, and nonsense."""

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import Fetcher, FetchError, Wanted
from gpuwatch.runtime.clock import ManualClock
from tests.support.components import loaded
from tests.support.fakes.http_sink import Answer, serving

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
GT4: Wanted = ("ap-guangzhou", "GT4.41XLARGE948")
ID = "7f117776-3d20-4f00-839b-b22b04625f47"


def prices(key_file: Path | None, endpoint_url: str, **more: object) -> Fetcher:
    """Prices in US dollars."""
    made: Fetcher = loaded("gpuwatch.money.prices.providers.tencent").TencentPrices(
        clock=ManualClock(wall=NOW), key_file=key_file, currency="USD", endpoint_url=endpoint_url, **more
    )
    return made


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A key."""
    file = tmp_path / "key"
    file.write_text("an-id:s3cret\n", encoding="utf-8")
    return file


def quota(zone: str, usd: float, *, charge: str = "POSTPAID_BY_HOUR", **changed: object) -> dict[str, object]:
    """One entry of DescribeZoneInstanceConfigInfos."""
    price = {"UnitPrice": 168.0, "UnitPriceDiscount": usd, "ChargeUnit": "HOUR"}
    return {
        "Zone": zone,
        "InstanceType": GT4[1],
        "InstanceChargeType": charge,
        "Status": "SELL",
        "Price": price,
    } | changed


def answered(*quotas: dict[str, object]) -> Answer:
    """An answer with these entries."""
    return Answer(body={"Response": {"InstanceTypeQuotaSet": list(quotas), "RequestId": ID}})


def test_the_price_is_that_of_the_hour_and_of_the_machine_that_was_asked_about(key_file: Path) -> None:
    """On demand the highest of the region's zones, spot by zone; months and other machines are passed over."""
    quotas = [
        quota("ap-guangzhou-4", 150.0),
        quota("ap-guangzhou-6", 151.5),
        quota("ap-guangzhou-6", 45.3, charge="SPOTPAID"),
        quota("ap-guangzhou-6", 90000.0, charge="PREPAID"),
        quota("ap-guangzhou-6", 1.0, InstanceType="GT4.4XLARGE96"),
        quota("ap-guangzhou-6", 59.0, Price={"OriginalPrice": 59.0, "UnitPrice": 0.0}),
    ]
    with serving(lambda _: answered(*quotas)) as server:
        found = [each for _, news in prices(key_file, server.url).fetch([GT4]) for each in news]

    assert {(each.place, each.capacity_type): (each.quote.per_hour, each.quote.currency) for each in found} == {
        ("ap-guangzhou", CapacityType.ON_DEMAND): (Decimal("151.5"), "USD"),
        ("ap-guangzhou-6", CapacityType.SPOT): (Decimal("45.3"), "USD"),
    }
    (asked,) = server.asked
    assert asked.headers["x-tc-region"] == "ap-guangzhou"
    signed = r"TC3-HMAC-SHA256 Credential=an-id/\d{4}-\d\d-\d\d/cvm/tc3_request, .*"
    assert re.fullmatch(signed, asked.headers["authorization"])
    assert "s3cret" not in str(asked.headers)
    assert json.loads(asked.body)["Filters"][0] == {"Name": "instance-type", "Values": ["GT4.41XLARGE948"]}


def test_without_a_key_of_their_own_prices_are_asked_for_with_the_clouds(key_file: Path) -> None:
    """`cloud.tencent.key_file` serves both."""
    with serving(lambda _: answered(quota("ap-guangzhou-4", 150.0))) as server:
        list(prices(None, server.url, cloud_key_file=str(key_file)).fetch([GT4]))

    assert "Credential=an-id/" in server.asked[0].headers["authorization"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body="nonsense"),
        Answer(body={}),
        Answer(
            body={"Response": {"Error": {"Code": "AuthFailure.SignatureFailure", "Message": "no"}, "RequestId": ID}}
        ),
        Answer(body={"Response": 7}),
        Answer(body={"Response": {"RequestId": ID, "InstanceTypeQuotaSet": 7}}),
        Answer(status=429),
        Answer(status=403, body={"Code": "Forbidden"}),
    ],
)
def test_nonsense_and_refusals_are_no_price_and_no_secret_is_told(answer: Answer, key_file: Path) -> None:
    """The error names the cloud."""
    with serving(lambda _: answer) as server, pytest.raises(FetchError, match="Tencent Cloud") as error:
        list(prices(key_file, server.url).fetch([GT4]))

    assert len(server.asked) == 1
    assert "s3cret" not in str(error.value)
    assert "an-id" not in str(error.value)


def test_a_key_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With the setting's name and the reason."""
    with pytest.raises(FetchError, match=r"prices\.live\.tencent_key_file: .*none cannot be read: No such file"):
        list(prices(tmp_path / "none", "http://127.0.0.1:1").fetch([GT4]))
