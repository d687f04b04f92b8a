"""What an account pays at Alibaba Cloud: DescribePrice and DescribeSpotPriceHistory, by the cloud's own client."""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpuwatch.clouds.alibaba import client as credentials
from gpuwatch.clouds.alibaba.client import Client, Wire
from gpuwatch.clouds.errors import CloudError
from gpuwatch.clouds.rate_limit import RateLimiter
from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import FetchError, Found, Wanted
from gpuwatch.money.prices.http import amount_of, key_pair_of
from gpuwatch.runtime.clock import Clock

_MOST_PAGES = 20
_MACHINE = frozenset({"instance", "instanceType"})  # the machine's own part of a price, without disk, image and traffic
_PARTS = ("DetailInfo", "ResourcePriceModel")  # as the SDK of ECS reads them, and as its page says
_LIST_SOURCE = "Alibaba Cloud DescribePrice, what this account pays for the machine alone, Linux"
_SPOT_SOURCE = "Alibaba Cloud spot price history, Linux"
_PER_SECOND = 5.0


class AlibabaPrices:
    """Linux prices on demand by region, and spot prices by zone, in the currency of the account."""

    def __init__(
        self,
        *,
        clock: Clock,
        key_file: Path | None = None,
        profile: str | None = None,
        endpoint_url: str | None = None,
        wire: Wire | None = None,
    ) -> None:
        """Nothing is asked yet. Without a file the key is the cloud's own: of the profile, or of the SDK's chain."""
        self._profile = profile
        self._clock = clock
        self._key_file = key_file
        self._url = endpoint_url
        self._wire = wire or Wire()
        self._pace = RateLimiter(clock, per_second=_PER_SECOND, burst=1)

    def fetch(self, wanted: Sequence[Wanted]) -> Iterable[tuple[Wanted, Sequence[Found]]]:
        """One type after the other.

        Raises:
            FetchError: no usable answer.

        """
        key = credentials.source(self._provider(), "the price list", self._clock)
        for region, kind in wanted:
            client = Client(
                region=region,
                where=region,
                key=key,
                clock=self._clock,
                wire=self._wire,
                pace=self._pace,
                endpoint_url=self._url,
            )
            try:
                yield (region, kind), [*self._list_prices(client, region, kind), *self._spot(client, region, kind)]
            except CloudError as error:
                raise FetchError(f"Alibaba Cloud gave no price: {error}") from None
            except (KeyError, TypeError, AttributeError, StopIteration) as error:
                raise FetchError(f"Alibaba Cloud gave an answer that cannot be read: {error!r}") from error

    def _provider(self) -> Any:  # noqa: ANN401  the SDK has no types
        """What gives the key; the file is read at each refresh."""
        if self._key_file is None:
            return credentials.of_chain(self._profile)
        return credentials.of_pair(*key_pair_of(self._key_file, "prices.live.alibaba_key_file"))

    def _list_prices(self, client: Client, region: str, kind: str) -> Iterator[Found]:
        """The machine's own part of the price of an hour."""
        asked = {
            "RegionId": region,
            "ResourceType": "instance",
            "InstanceType": kind,
            "InstanceNetworkType": "vpc",
            "PriceUnit": "Hour",
            "SystemDisk": {"Category": "cloud_essd", "Size": 40},
        }
        price = client.ask("ecs:DescribePrice", asked)["PriceInfo"]["Price"]
        for part in _parts_of(price["DetailInfos"]):
            paid = amount_of(part["TradePrice"])
            if part["Resource"] in _MACHINE and paid is not None:
                offer = (region, kind, CapacityType.ON_DEMAND)
                yield Found.for_place(
                    offer, paid, currency=price["Currency"], as_of=self._clock.now().date(), source=_LIST_SOURCE
                )

    def _spot(self, client: Client, region: str, kind: str) -> Iterator[Found]:
        """The newest price of each zone within the last hours."""
        newest: dict[str, tuple[str, Decimal, str]] = {}
        asked: dict[str, object] = {"RegionId": region, "InstanceType": kind, "NetworkType": "vpc", "OSType": "linux"}
        for _ in range(_MOST_PAGES):
            page = client.ask("ecs:DescribeSpotPriceHistory", asked)
            for entry in page["SpotPrices"]["SpotPriceType"]:
                at, price = str(entry["Timestamp"]), amount_of(entry["SpotPrice"])  # ISO 8601 in UTC: sorts as it is
                if price is not None and at > newest.get(entry["ZoneId"], ("",))[0]:
                    newest[entry["ZoneId"]] = (at, price, page["Currency"])
            if not page.get("NextOffset"):
                break
            asked["Offset"] = page["NextOffset"]
        for zone, (_, price, currency) in newest.items():
            offer = (zone, kind, CapacityType.SPOT)
            yield Found.for_place(offer, price, currency=currency, as_of=self._clock.now().date(), source=_SPOT_SOURCE)


def _parts_of(infos: Any) -> list[dict[str, Any]]:  # noqa: ANN401  a part of an answer
    """What each part of a machine costs."""
    found: list[dict[str, Any]] = next(infos[name] for name in _PARTS if name in infos)
    return found
