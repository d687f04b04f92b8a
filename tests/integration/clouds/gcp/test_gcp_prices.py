"""Prices of Google Cloud with the cloud's own credentials: the token and the connections of everything else."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import FetchError
from gpuwatch.money.prices.providers.gcp import GcpPrices
from gpuwatch.runtime.clock import ManualClock
from tests.support.clouds.faults import Fault, when
from tests.support.clouds.gcp.tokens import TokenService, a_key, token_service
from tests.support.clouds.gcp.world import GcpWorld, a_world
from tests.support.fakes.http_sink import gcp_sku

A2 = ("us-central1", "a2-ultragpu-1g")
SKUS = [
    gcp_sku("A2 Instance Core running in Americas", "0.031611"),
    gcp_sku("A2 Instance Ram running in Americas", "0.004237", unit="GiBy.h"),
    gcp_sku("Nvidia Tesla A100 80GB GPU running in Americas", "3.928080"),
    gcp_sku("SSD backed Local Storage", "0.08", unit="GiBy.mo"),
]


@pytest.fixture
def world() -> Iterator[GcpWorld]:
    """An empty project, and the list of what Google sells."""
    with a_world(ManualClock()) as world:
        world.fake.skus = [*SKUS]
        yield world


@pytest.fixture
def tokens(world: GcpWorld) -> Iterator[TokenService]:
    """The service of tokens, on loopback."""
    with token_service(world) as service:
        yield service


@pytest.fixture
def file(tmp_path: Path, tokens: TokenService) -> Path:
    """A service account's key."""
    return a_key(tmp_path, tokens)


def test_the_list_is_asked_for_with_the_clouds_token(world: GcpWorld, file: Path, tokens: TokenService) -> None:
    """One token, every page, each held to Google's own description."""
    world.fake.skus += [gcp_sku(f"N2 Instance Core {number} running in Americas", "0.03") for number in range(5000)]
    prices = GcpPrices(clock=world.clock, key_file=file, endpoint_url=world.server.url)

    ((wanted, found),) = prices.fetch([A2])

    assert wanted == A2
    assert [(each.capacity_type, round(each.quote.per_hour, 4)) for each in found] == [
        (CapacityType.ON_DEMAND, Decimal("5.0688"))
    ]
    assert (tokens.given, world.server.count("cloudbilling.services.skus.list")) == (1, 2)


def test_without_a_file_the_credentials_are_googles_own(
    world: GcpWorld, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every program of Google finds them."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))

    ((_, found),) = GcpPrices(clock=world.clock, endpoint_url=world.server.url).fetch([A2])

    assert len(found) == 1


@pytest.mark.parametrize("fault", [Fault.GATEWAY, Fault.GARBLED, Fault.CUT, Fault.THROTTLED, Fault.EXPIRED])
def test_no_usable_answer_is_no_price(world: GcpWorld, file: Path, fault: Fault) -> None:
    """The error names the list; prices that are known stay."""
    world.server.plan.strike(fault, when(), times=None)

    with pytest.raises(FetchError, match="in the price list"):
        list(GcpPrices(clock=world.clock, key_file=file, endpoint_url=world.server.url).fetch([A2]))


def test_no_credentials_are_no_price(world: GcpWorld, tmp_path: Path) -> None:
    """Nothing is asked."""
    prices = GcpPrices(clock=world.clock, key_file=tmp_path / "nothing.json", endpoint_url=world.server.url)

    with pytest.raises(FetchError, match="no usable credentials of Google Cloud"):
        list(prices.fetch([A2]))
    assert world.server.log == []
