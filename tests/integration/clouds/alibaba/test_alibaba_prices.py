"""Alibaba Cloud's prices by its own client, on the fake over HTTP: parts, zones, nonsense, keys."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from alibabacloud_credentials.utils import auth_util

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import Fetcher, FetchError, Wanted
from gpuwatch.money.prices.providers.alibaba import AlibabaPrices
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.alibaba.fake import KEY_ID, SECRET, FakeAlibaba
from tests.support.clouds.faults import UNKNOWN_OUTCOME, Fault, when
from tests.support.clouds.server import serving
from tests.support.fakes import http_sink
from tests.support.fakes.http_sink import Answer

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
GN7I: Wanted = ("cn-shanghai", "ecs.gn7i-c8g1.2xlarge")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that does not really sleep."""
    return ManualClock(wall=NOW)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """The fake's access key."""
    file = tmp_path / "key"
    file.write_text(f"{KEY_ID}:{SECRET}\n", encoding="utf-8")
    return file


def fetched(fetcher: Fetcher, *wanted: Wanted) -> dict[tuple[str, CapacityType], tuple[Decimal, str]]:
    """All prices of one fetch, by place and kind of capacity: price, currency."""
    found = [each for _, news in fetcher.fetch(wanted) for each in news]
    return {(each.place, each.capacity_type): (each.quote.per_hour, each.quote.currency) for each in found}


def test_the_price_is_the_machines_own_part_and_the_newest_spot_price_of_each_zone(
    clock: ManualClock, key_file: Path
) -> None:
    """Disk, image and traffic are not the machine's price; what the account pays is, in its currency."""
    with serving(FakeAlibaba(), clock=clock) as server:
        found = fetched(AlibabaPrices(clock=clock, key_file=key_file, endpoint_url=server.url), GN7I)

    assert found == {
        ("cn-shanghai", CapacityType.ON_DEMAND): (Decimal("34.742"), "CNY"),
        ("cn-shanghai-b", CapacityType.SPOT): (Decimal("10.2"), "CNY"),
        ("cn-shanghai-c", CapacityType.SPOT): (Decimal("11.5"), "CNY"),
    }


def test_the_parts_are_also_read_as_the_page_names_them(clock: ManualClock, key_file: Path) -> None:
    """The page of DescribePrice says ResourcePriceModel, the SDK DetailInfo."""
    parts = [{"Resource": "instanceType", "TradePrice": 34.742}]
    price = {"Currency": "CNY", "DetailInfos": {"ResourcePriceModel": parts}}
    body = {"RequestId": "0", "PriceInfo": {"Price": price}, "Currency": "CNY", "SpotPrices": {"SpotPriceType": []}}
    with http_sink.serving(lambda _: Answer(body=body)) as server:
        found = fetched(AlibabaPrices(clock=clock, key_file=key_file, endpoint_url=server.url), GN7I)

    assert found == {("cn-shanghai", CapacityType.ON_DEMAND): (Decimal("34.742"), "CNY")}


def test_without_a_file_the_key_is_the_clouds_own(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the official chain finds it."""
    monkeypatch.setattr(auth_util, "environment_access_key_id", KEY_ID)
    monkeypatch.setattr(auth_util, "environment_access_key_secret", SECRET)
    with serving(FakeAlibaba(), clock=clock) as server:
        found = fetched(AlibabaPrices(clock=clock, endpoint_url=server.url), GN7I)

    assert len(found) == 3


@pytest.mark.parametrize("fault", [Fault.GATEWAY, Fault.GARBLED, Fault.EXPIRED, Fault.SKEW, Fault.THROTTLED, Fault.CUT])
def test_no_answer_is_no_price_and_no_secret_is_told(clock: ManualClock, key_file: Path, fault: Fault) -> None:
    """The error names the cloud."""
    with serving(FakeAlibaba(), clock=clock) as server:
        server.plan.strike(fault, when(), times=None)
        with pytest.raises(FetchError, match="Alibaba Cloud") as error:
            fetched(AlibabaPrices(clock=clock, key_file=key_file, endpoint_url=server.url), GN7I)

    assert KEY_ID not in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize("body", [{}, {"RequestId": "0"}, {"RequestId": "0", "PriceInfo": 7}, {"Code": "Forbidden"}])
def test_an_answer_without_its_parts_is_no_price(clock: ManualClock, key_file: Path, body: dict[str, object]) -> None:
    """Never a price of nothing."""
    with (
        http_sink.serving(lambda _: Answer(body=body)) as server,
        pytest.raises(FetchError, match="Alibaba Cloud"),
    ):
        fetched(AlibabaPrices(clock=clock, key_file=key_file, endpoint_url=server.url), GN7I)


def test_a_price_that_nobody_answers_once_is_asked_for_again(clock: ManualClock, key_file: Path) -> None:
    """Each time with a signature of its own: the cloud refuses one that it has seen."""
    with serving(FakeAlibaba(), clock=clock) as server:
        server.plan.strike(UNKNOWN_OUTCOME[0], when(operation="DescribePrice"))
        found = fetched(AlibabaPrices(clock=clock, key_file=key_file, endpoint_url=server.url), GN7I)

    assert found["cn-shanghai", CapacityType.ON_DEMAND] == (Decimal("34.742"), "CNY")
    assert server.count("DescribePrice") == 2


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
        fetched(AlibabaPrices(clock=clock, key_file=key_file), GN7I)
    assert "s3cret" not in str(error.value)
