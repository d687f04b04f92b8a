"""EC2's list prices (Pricing GetProducts) and spot prices (DescribeSpotPriceHistory), with the SDK's credentials."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import FetchError, Found, Wanted
from gpuwatch.money.prices.http import amount_of
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.json_document import read_json

# The price list is served in a few regions only; any of them has the prices of all.
_PRICE_LIST_REGION = "us-east-1"
_CONFIG = Config(connect_timeout=5, read_timeout=20, retries={"mode": "standard", "total_max_attempts": 4})
_ON_DEMAND = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
_SPOT_PRODUCT = "Linux/UNIX"
_MOST_PAGES = 20
_LIST_SOURCE = "EC2 price list (GetProducts), Linux, shared tenancy"
_SPOT_SOURCE = "EC2 spot price history, Linux"


class AwsPrices:
    """Linux prices on demand by region, and spot prices by zone."""

    def __init__(self, *, clock: Clock, profile: str | None = None, endpoint_url: str | None = None) -> None:
        """Nothing is sent yet; a profile that does not exist is reported at the first refresh."""
        self._clock = clock
        self._profile = profile
        self._endpoint_url = endpoint_url

    def fetch(self, wanted: Sequence[Wanted]) -> Iterable[tuple[Wanted, Sequence[Found]]]:
        """One type after the other.

        Raises:
            FetchError: no usable answer.

        """
        try:
            session = boto3.Session(profile_name=self._profile)
            options: dict[str, Any] = {"config": _CONFIG, "endpoint_url": self._endpoint_url}
            pricing = session.client("pricing", region_name=_PRICE_LIST_REGION, **options)
            ec2 = {
                region: session.client("ec2", region_name=region, **options)
                for region in sorted({each for each, _ in wanted})
            }
            for region, kind in wanted:
                yield (region, kind), [*self._list_prices(pricing, region, kind), *self._spot(ec2[region], kind)]
        except (BotoCoreError, ClientError) as error:
            raise FetchError(f"AWS gave no prices: {error}") from error

    def _list_prices(self, pricing: Any, region: str, kind: str) -> Iterator[Found]:  # noqa: ANN401  boto3 has no types for it here
        """The price on demand; two different ones for the same machine are an error."""
        asked = {**_ON_DEMAND, "instanceType": kind, "regionCode": region}
        filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in asked.items()]
        prices: set[tuple[Decimal, str]] = set()
        for page in _pages(pricing.get_products, ServiceCode="AmazonEC2", Filters=filters):
            for text in page["PriceList"]:
                prices |= set(_dimensions(text))
        if len(prices) > 1:
            raise FetchError(f"the EC2 price list has {len(prices)} prices for {kind} in {region}")
        for price, currency in prices:
            offer = (region, kind, CapacityType.ON_DEMAND)
            yield Found.for_place(offer, price, currency=currency, as_of=self._clock.now().date(), source=_LIST_SOURCE)

    def _spot(self, ec2: Any, kind: str) -> Iterator[Found]:  # noqa: ANN401  likewise
        """The price in force in each zone: with a start of now, the history is the last change of each."""
        newest: dict[str, Mapping[str, Any]] = {}
        asked = {"InstanceTypes": [kind], "ProductDescriptions": [_SPOT_PRODUCT], "StartTime": self._clock.now()}
        for page in _pages(ec2.describe_spot_price_history, **asked):
            for entry in page["SpotPriceHistory"]:
                known = newest.get(entry["AvailabilityZone"])
                if known is None or known["Timestamp"] < entry["Timestamp"]:
                    newest[entry["AvailabilityZone"]] = entry
        for zone, entry in newest.items():
            price = amount_of(entry["SpotPrice"])
            if price is not None:
                offer = (zone, kind, CapacityType.SPOT)
                yield Found.for_place(offer, price, as_of=self._clock.now().date(), source=_SPOT_SOURCE)


def _pages(call: Any, **asked: object) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401  likewise
    """All pages of a list."""
    token: dict[str, str] = {}
    for _ in range(_MOST_PAGES):
        page = call(**asked, **token)
        yield page
        if not page.get("NextToken"):
            return
        token = {"NextToken": page["NextToken"]}
    raise FetchError(f"AWS has more than {_MOST_PAGES} pages for one machine type")


def _dimensions(text: str) -> Iterator[tuple[Decimal, str]]:
    """What an hour costs on demand, by a product's own terms."""
    try:
        terms = read_json(text)["terms"].get("OnDemand", {})
        for term in terms.values():
            for dimension in term["priceDimensions"].values():
                for currency, amount in dimension["pricePerUnit"].items():
                    price = amount_of(amount)
                    if dimension["unit"] == "Hrs" and price is not None:
                        yield price, currency
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FetchError(f"the EC2 price list gave a product that cannot be read: {error!r}") from error
