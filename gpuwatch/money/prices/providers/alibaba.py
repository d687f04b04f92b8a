"""What an account pays at Alibaba Cloud: DescribePrice and DescribeSpotPriceHistory of ECS, signed by ourselves.

Signature version 1.0 of its RPC style: HMAC-SHA1 over the sorted parameters (help.aliyun.com, RPC mechanism).
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import FetchError, Found, Wanted
from gpuwatch.money.prices.http import Asker, amount_of, key_pair_of
from gpuwatch.runtime.clock import Clock

_URL = "https://ecs.{region}.aliyuncs.com"
_MOST_PAGES = 20
_MACHINE = frozenset({"instance", "instanceType"})  # the machine's own part of a price, without disk, image and traffic
_LIST_SOURCE = "Alibaba Cloud DescribePrice, what this account pays for the machine alone, Linux"
_SPOT_SOURCE = "Alibaba Cloud spot price history, Linux"


class AlibabaPrices:
    """Linux prices on demand by region, and spot prices by zone, in the currency of the account."""

    def __init__(self, *, clock: Clock, key_file: Path, endpoint_url: str | None = None) -> None:
        """Nothing is asked yet."""
        self._clock = clock
        self._key_file = key_file
        self._url = endpoint_url
        self._asker = Asker(clock=clock, name="Alibaba Cloud", times=1)

    def fetch(self, wanted: Sequence[Wanted]) -> Iterable[tuple[Wanted, Sequence[Found]]]:
        """One type after the other.

        Raises:
            FetchError: no usable answer.

        """
        key = key_pair_of(self._key_file, "prices.live.alibaba_key_file")
        for region, kind in wanted:
            try:
                yield (region, kind), [*self._listed(key, region, kind), *self._spot(key, region, kind)]
            except (KeyError, TypeError, AttributeError) as error:
                raise FetchError(f"Alibaba Cloud gave an answer that cannot be read: {error!r}") from error

    def _listed(self, key: tuple[str, str], region: str, kind: str) -> Iterator[Found]:
        """The machine's own part of the price of an hour."""
        asked = {
            "Action": "DescribePrice",
            "ResourceType": "instance",
            "InstanceType": kind,
            "InstanceNetworkType": "vpc",
            "PriceUnit": "Hour",
            "SystemDisk.Category": "cloud_essd",
            "SystemDisk.Size": "40",
        }
        price = self._answer(key, region, asked)["PriceInfo"]["Price"]
        for part in price["DetailInfos"]["ResourcePriceModel"]:
            paid = amount_of(part["TradePrice"])
            if part["Resource"] in _MACHINE and paid is not None:
                offer = (region, kind, CapacityType.ON_DEMAND)
                yield Found.of(
                    offer, paid, currency=price["Currency"], as_of=self._clock.now().date(), source=_LIST_SOURCE
                )

    def _spot(self, key: tuple[str, str], region: str, kind: str) -> Iterator[Found]:
        """The newest price of each zone within the last hours."""
        newest: dict[str, tuple[str, Decimal, str]] = {}
        asked = {"Action": "DescribeSpotPriceHistory", "InstanceType": kind, "NetworkType": "vpc", "OSType": "linux"}
        for _ in range(_MOST_PAGES):
            page = self._answer(key, region, asked)
            for entry in page["SpotPrices"]["SpotPriceType"]:
                at, price = str(entry["Timestamp"]), amount_of(entry["SpotPrice"])  # ISO 8601 in UTC: sorts as it is
                if price is not None and at > newest.get(entry["ZoneId"], ("",))[0]:
                    newest[entry["ZoneId"]] = (at, price, page["Currency"])
            if not page.get("NextOffset"):
                break
            asked["Offset"] = str(page["NextOffset"])
        for zone, (_, price, currency) in newest.items():
            offer = (zone, kind, CapacityType.SPOT)
            yield Found.of(offer, price, currency=currency, as_of=self._clock.now().date(), source=_SPOT_SOURCE)

    def _answer(self, key: tuple[str, str], region: str, asked: Mapping[str, str]) -> Any:  # noqa: ANN401  any JSON
        common = {
            "AccessKeyId": key[0],
            "Format": "JSON",
            "RegionId": region,
            "SignatureMethod": "HMAC-SHA1",
            "SignatureNonce": secrets.token_hex(16),
            "SignatureVersion": "1.0",
            "Timestamp": self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
            "Version": "2014-05-26",
        }
        url = (self._url or _URL.format(region=region)).rstrip("/")
        return self._asker.ask(f"{url}/?{signed({**common, **asked}, key[1])}")


def signed(parameters: Mapping[str, str], secret: str) -> str:
    """The query of a request with its signature."""
    query = "&".join(f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(parameters.items()))
    to_sign = f"GET&%2F&{_encoded(query)}"
    digest = hmac.new(f"{secret}&".encode(), to_sign.encode(), hashlib.sha1).digest()
    return f"{query}&Signature={_encoded(base64.b64encode(digest).decode())}"


def _encoded(text: str) -> str:
    return quote(text, safe="-_.~")
