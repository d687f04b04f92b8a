"""EC2's list prices (Pricing GetProducts) and spot prices (DescribeSpotPriceHistory), with the SDK's credentials.

AWS in China and in GovCloud are partitions of their own: credentials of one are nothing in another, and must not be
sent there. So each region is asked with credentials of its own partition, or not at all. The price list is served in
the commercial partition alone; China's spot prices are in yuan.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.catalogue import currency_of
from gpuwatch.money.prices.fetch import FetchError, Found, Wanted
from gpuwatch.money.prices.http import amount_of
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.json_document import read_json
from gpuwatch.runtime.network_errors import network_text

# The price list is served in a few regions only; any of them has the prices of all.
_PRICE_LIST_REGION, _COMMERCIAL = "us-east-1", "aws"
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

    def __init__(
        self, *, clock: Clock, profiles: Sequence[tuple[str | None, str | None]] = (), endpoint_url: str | None = None
    ) -> None:
        """Nothing is sent yet; a profile that does not exist is reported at the first refresh.

        `profiles` are the SDK's (None: its default credentials), each with a region of its partition; None: its own.
        """
        self._clock = clock
        self._profiles = tuple(profiles) or ((None, None),)
        self._endpoint_url = endpoint_url

    def fetch(self, wanted: Sequence[Wanted]) -> Iterable[tuple[Wanted, Sequence[Found]]]:
        """One type after the other; a partition without an answer keeps back no other.

        Raises:
            FetchError: no usable answer.

        """
        try:
            sessions = self._sessions()
        except BotoCoreError as error:
            raise FetchError(f"AWS gave no prices: {network_text(error) or error}") from error
        found: dict[str | None, list[Wanted]] = {}
        for region, kind in wanted:
            found.setdefault(_partition(region), []).append((region, kind))
        failed: list[str] = []
        for partition, there in found.items():
            session = sessions.get(partition)
            if session is None:
                yield from ((each, []) for each in there)
                continue
            try:
                yield from self._ask_partition(session, there, listed=partition == _COMMERCIAL)
            except (BotoCoreError, ClientError, ResponseParserError) as error:
                failed.append(f"AWS gave no prices: {network_text(error) or error}")
            except FetchError as error:
                failed.append(str(error))
        if failed:
            raise FetchError("; ".join(failed))

    def _sessions(self) -> dict[str | None, boto3.Session]:
        """The first credentials of each partition."""
        sessions: dict[str | None, boto3.Session] = {}
        for profile, region in self._profiles:
            session = boto3.Session(profile_name=profile)
            sessions.setdefault(_partition(region or session.region_name or _PRICE_LIST_REGION), session)
        return sessions

    def _ask_partition(
        self, session: boto3.Session, wanted: Sequence[Wanted], *, listed: bool
    ) -> Iterator[tuple[Wanted, Sequence[Found]]]:
        options: dict[str, Any] = {"config": _CONFIG, "endpoint_url": self._endpoint_url}
        pricing = session.client("pricing", region_name=_PRICE_LIST_REGION, **options) if listed else None
        ec2: dict[str, Any] = {}
        for region, kind in wanted:
            if region not in ec2:
                ec2[region] = session.client("ec2", region_name=region, **options)
            prices = [] if pricing is None else self._list_prices(pricing, region, kind)
            yield (region, kind), [*prices, *self._spot(ec2[region], region, kind)]

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

    def _spot(self, ec2: Any, region: str, kind: str) -> Iterator[Found]:  # noqa: ANN401  likewise
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
                currency, as_of = currency_of("aws", region), self._clock.now().date()
                yield Found.for_place(offer, price, currency=currency, as_of=as_of, source=_SPOT_SOURCE)


@cache
def _partition(region: str) -> str | None:
    """The partition of a region, by botocore's patterns; None: nobody knows the region."""
    try:
        found: str = boto3.Session().get_partition_for_region(region)
    except BotoCoreError:
        return None
    return found


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
