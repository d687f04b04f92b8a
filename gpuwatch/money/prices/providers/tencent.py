"""What an account pays at Tencent Cloud: DescribeZoneInstanceConfigInfos of CVM, signed by ourselves.

It gives the price of the machine alone in each zone, on demand and spot, and needs no image, unlike
InquiryPriceRunInstances. Signature TC3-HMAC-SHA256 (cloud.tencent.com/document/api/213/30654).
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import FetchError, Found, Wanted
from gpuwatch.money.prices.http import Asker, amount_of, key_pair_of
from gpuwatch.runtime.clock import Clock

_URL = "https://cvm.tencentcloudapi.com"
_SERVICE = "cvm"
_TYPE = "application/json; charset=utf-8"
_CHARGES = {"POSTPAID_BY_HOUR": CapacityType.ON_DEMAND, "SPOTPAID": CapacityType.SPOT}
_SOURCE = "Tencent Cloud DescribeZoneInstanceConfigInfos, what this account pays for the machine alone"


class TencentPrices:
    """Prices on demand by region, the highest of its zones where they differ, and spot prices by zone."""

    def __init__(self, *, clock: Clock, key_file: Path, currency: str, endpoint_url: str | None = None) -> None:
        """Nothing is asked yet. The answers name no currency: the settings name the account's."""
        self._clock = clock
        self._key_file = key_file
        self._currency = currency
        self._url = (endpoint_url or _URL).rstrip("/")
        self._asker = Asker(clock=clock, name="Tencent Cloud", times=1)

    def fetch(self, wanted: Sequence[Wanted]) -> Iterable[tuple[Wanted, Sequence[Found]]]:
        """One type after the other.

        Raises:
            FetchError: no usable answer.

        """
        key = key_pair_of(self._key_file, "prices.live.tencent_key_file")
        for region, kind in wanted:
            try:
                yield (region, kind), self._found(region, kind, self._answer(key, region, kind))
            except (KeyError, TypeError, AttributeError) as error:
                raise FetchError(f"Tencent Cloud gave an answer that cannot be read: {error!r}") from error

    def _found(self, region: str, kind: str, answer: Mapping[str, Any]) -> list[Found]:
        """What is charged by the hour."""
        if "Error" in answer:
            raise FetchError(f"Tencent Cloud answered {answer['Error']['Code']}")
        prices: dict[tuple[str, CapacityType], Decimal] = {}
        for item in answer["InstanceTypeQuotaSet"]:
            capacity, price_item = _CHARGES.get(item["InstanceChargeType"]), item["Price"]
            price = amount_of(price_item.get("UnitPriceDiscount"))
            if (
                item["InstanceType"] != kind
                or capacity is None
                or price is None
                or price_item.get("ChargeUnit") != "HOUR"
            ):
                continue
            place = item["Zone"] if capacity is CapacityType.SPOT else region
            prices[place, capacity] = max(price, prices.get((place, capacity), price))
        today = self._clock.now().date()
        return [
            Found.of((place, kind, capacity), price, currency=self._currency, as_of=today, source=_SOURCE)
            for (place, capacity), price in prices.items()
        ]

    def _answer(self, key: tuple[str, str], region: str, kind: str) -> Mapping[str, Any]:
        filters = [
            {"Name": "instance-type", "Values": [kind]},
            {"Name": "instance-charge-type", "Values": list(_CHARGES)},
        ]
        body = json.dumps({"Filters": filters}).encode()
        now = self._clock.now()
        headers = {
            "Content-Type": _TYPE,
            "Host": urlsplit(self._url).netloc,
            "X-TC-Action": "DescribeZoneInstanceConfigInfos",
            "X-TC-Version": "2017-03-12",
            "X-TC-Region": region,
            "X-TC-Timestamp": str(int(now.timestamp())),
        }
        headers["Authorization"] = authorization(key, host=headers["Host"], at=now, body=body)
        answer: Mapping[str, Any] = self._asker.ask(f"{self._url}/", headers, body)["Response"]
        return answer


def authorization(key: tuple[str, str], *, host: str, at: datetime, body: bytes) -> str:
    """The header that signs a request."""
    day = at.strftime("%Y-%m-%d")
    scope, names = f"{day}/{_SERVICE}/tc3_request", "content-type;host"
    request = f"POST\n/\n\ncontent-type:{_TYPE}\nhost:{host}\n\n{names}\n{hashlib.sha256(body).hexdigest()}"
    hashed = hashlib.sha256(request.encode()).hexdigest()
    signing = f"TC3{key[1]}".encode()
    for part in (day, _SERVICE, "tc3_request"):
        signing = hmac.new(signing, part.encode(), hashlib.sha256).digest()
    to_sign = f"TC3-HMAC-SHA256\n{int(at.timestamp())}\n{scope}\n{hashed}"
    signature = hmac.new(signing, to_sign.encode(), hashlib.sha256).hexdigest()
    return f"TC3-HMAC-SHA256 Credential={key[0]}/{scope}, SignedHeaders={names}, Signature={signature}"
