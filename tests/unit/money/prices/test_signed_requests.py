"""Alibaba Cloud, whose requests we sign ourselves: signatures, prices, and nonsense."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import Fetcher, FetchError, Wanted
from gpuwatch.money.prices.providers import alibaba
from gpuwatch.money.prices.providers.alibaba import AlibabaPrices
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.http_sink import Answer, Asked, serving

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
GN7E: Wanted = ("cn-shenzhen", "ecs.gn7e-c16g1.4xlarge")

Fetched = dict[tuple[str, CapacityType], tuple[Decimal, str]]  # by place and kind of capacity: price, currency


@pytest.fixture
def clock() -> ManualClock:
    """A clock that does not really sleep."""
    return ManualClock(wall=NOW)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """An access key."""
    file = tmp_path / "key"
    file.write_text("an-id:s3cret\n", encoding="utf-8")
    return file


def fetched(fetcher: Fetcher, *wanted: Wanted) -> Fetched:
    """All prices of one fetch."""
    found = [each for _, news in fetcher.fetch(wanted) for each in news]
    return {(each.place, each.capacity_type): (each.quote.per_hour, each.quote.currency) for each in found}


# Signatures, as the clouds' own pages work them out


def test_alibabas_signature_is_that_of_its_documentation() -> None:
    """The example of the page on the RPC mechanism."""
    parameters = {
        "Timestamp": "2016-02-23T12:46:24Z",
        "Format": "XML",
        "AccessKeyId": "testid",
        "Action": "DescribeRegions",
        "SignatureMethod": "HMAC-SHA1",
        "SignatureNonce": "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf",
        "Version": "2014-05-26",
        "SignatureVersion": "1.0",
    }

    assert alibaba.signed(parameters, "testsecret").endswith("&Signature=OLeaidS1JvxuMvnyHOwuJ%2BuX5qY%3D")


# Alibaba Cloud


def price_of(*parts: tuple[str, float]) -> dict[str, object]:
    """An answer of DescribePrice: what each part of a machine costs."""
    models = [{"Resource": name, "OriginalPrice": 50.0, "TradePrice": usd} for name, usd in parts]
    price = {"Currency": "CNY", "TradePrice": 99.0, "DetailInfos": {"ResourcePriceModel": models}}
    return {"RequestId": "0", "PriceInfo": {"Price": price}}


def spot_of(*entries: tuple[str, float, str], following: int | None = None) -> dict[str, object]:
    """An answer of DescribeSpotPriceHistory: zone, price, time."""
    types = [{"ZoneId": zone, "SpotPrice": price, "Timestamp": at} for zone, price, at in entries]
    return {"Currency": "CNY", "SpotPrices": {"SpotPriceType": types}, "NextOffset": following}


def alibabas(asked: Asked) -> Answer:
    """What it answers of a machine."""
    if asked.query["Action"] == "DescribePrice":
        return Answer(body=price_of(("bandwidth", 0), ("image", 0), ("instanceType", 34.742), ("systemDisk", 0.06)))
    if asked.query.get("Offset") == "2":
        return Answer(body=spot_of(("cn-shenzhen-d", 10.2, "2026-11-21T08:00:00Z")))
    first = [("cn-shenzhen-d", 9.9, "2026-11-21T07:00:00Z"), ("cn-shenzhen-e", 11.5, "2026-11-21T06:00:00Z")]
    return Answer(body=spot_of(*first, following=2))


def test_alibabas_price_is_the_machines_own_part_and_the_newest_spot_price_of_each_zone(
    clock: ManualClock, key_file: Path
) -> None:
    """Disk, image and traffic are not the machine's price; what the account pays is, in its currency."""
    with serving(alibabas) as server:
        found = fetched(AlibabaPrices(clock=clock, key_file=key_file, endpoint_url=server.url), GN7E)

    assert found == {
        ("cn-shenzhen", CapacityType.ON_DEMAND): (Decimal("34.742"), "CNY"),
        ("cn-shenzhen-d", CapacityType.SPOT): (Decimal("10.2"), "CNY"),
        ("cn-shenzhen-e", CapacityType.SPOT): (Decimal("11.5"), "CNY"),
    }
    nonces = {each.query["SignatureNonce"] for each in server.asked}
    assert len(nonces) == len(server.asked) == 3
    assert {each.query["AccessKeyId"] for each in server.asked} == {"an-id"}
    assert all("s3cret" not in str(each.query) for each in server.asked)


# What goes wrong


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body="nonsense"),
        Answer(body={}),
        Answer(body={"PriceInfo": 7}),
        Answer(status=429),
        Answer(status=403, body={"Code": "Forbidden.RAM"}),
    ],
)
def test_nonsense_and_refusals_are_no_price_and_no_secret_is_told(
    answer: Answer, clock: ManualClock, key_file: Path
) -> None:
    """Asked once: a signature is for one use. The error names the cloud."""
    with serving(lambda _: answer) as server:
        fetcher: Fetcher = AlibabaPrices(clock=clock, key_file=key_file, endpoint_url=server.url)
        with pytest.raises(FetchError, match="Alibaba Cloud") as error:
            fetched(fetcher, GN7E)

    assert len(server.asked) == 1
    assert "s3cret" not in str(error.value)
    assert "an-id" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        ("", "does not hold one line"),
        ("a\nb", "does not hold one line"),
        ("s3cret", "does not hold a line such as ID:SECRET"),
    ],
)
def test_a_key_file_that_holds_no_key_is_told_without_its_content(
    content: str, wrong: str, clock: ManualClock, key_file: Path
) -> None:
    """With the setting's name."""
    key_file.write_text(content, encoding="utf-8")

    with pytest.raises(FetchError, match=f"prices.live.alibaba_key_file: .* {wrong}") as error:
        fetched(AlibabaPrices(clock=clock, key_file=key_file), GN7E)
    assert "s3cret" not in str(error.value)
