"""What an account pays at Tencent Cloud: DescribeZoneInstanceConfigInfos of CVM.

It gives the price of the machine alone in each zone, on demand and spot, and needs no image, unlike
InquiryPriceRunInstances. The SDK signs, as for `gpuwatch.clouds.tencent`.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpuwatch.clouds import CloudError
from gpuwatch.clouds.tencent.client import Line
from gpuwatch.clouds.tencent.credentials import FixedKey, Signer, own_credentials
from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import FetchError, Found, Wanted
from gpuwatch.money.prices.http import amount_of, key_pair_of
from gpuwatch.runtime.clock import Clock

_CALL = "DescribeZoneInstanceConfigInfos"
_CHARGES = {"POSTPAID_BY_HOUR": CapacityType.ON_DEMAND, "SPOTPAID": CapacityType.SPOT}
_SOURCE = f"Tencent Cloud {_CALL}, what this account pays for the machine alone"


class TencentPrices:
    """Prices on demand by region, the highest of its zones where they differ, and spot prices by zone."""

    def __init__(
        self,
        *,
        clock: Clock,
        currency: str,
        key_file: Path | None = None,
        cloud_key_file: str | None = None,
        endpoint_url: str | None = None,
    ) -> None:
        """Nothing is asked yet. The answers name no currency: the settings name the account's.

        Without a `key_file` of their own, prices are asked for with the cloud's credentials: `cloud_key_file`, or those
        that the SDK finds.
        """
        self._clock = clock
        self._key_file = key_file
        self._currency = currency
        self._endpoint_url = endpoint_url
        self._cloud: Signer = own_credentials(cloud_key_file, clock)

    def fetch(self, wanted: Sequence[Wanted]) -> Iterable[tuple[Wanted, Sequence[Found]]]:
        """One type after the other.

        Raises:
            FetchError: no usable answer.

        """
        signer = self._cloud
        if self._key_file is not None:
            signer = FixedKey(*key_pair_of(self._key_file, "prices.live.tencent_key_file"))
        for region, kind in wanted:
            try:
                yield (region, kind), self._find_prices(region, kind, self._answer(signer, region, kind))
            except CloudError as error:
                raise FetchError(str(error)) from error
            except (KeyError, TypeError, AttributeError) as error:
                raise FetchError(f"Tencent Cloud gave an answer that cannot be read: {error!r}") from error

    def _find_prices(self, region: str, kind: str, answer: Mapping[str, Any]) -> list[Found]:
        """What is charged by the hour."""
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
            Found.for_place((place, kind, capacity), price, currency=self._currency, as_of=today, source=_SOURCE)
            for (place, capacity), price in prices.items()
        ]

    def _answer(self, signer: Signer, region: str, kind: str) -> Mapping[str, Any]:
        filters = [
            {"Name": "instance-type", "Values": [kind]},
            {"Name": "instance-charge-type", "Values": list(_CHARGES)},
        ]
        line = Line(
            signer=signer, region=region, where=region, clock=self._clock, endpoint_url=self._endpoint_url, once=True
        )
        return line.ask("cvm", _CALL, Filters=filters)
