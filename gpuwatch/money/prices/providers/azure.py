"""Azure's list prices, of the Retail Prices API (learn.microsoft.com/rest/api/cost-management/retail-prices).

It is open to everybody and takes no token. So it is asked without Azure's packages, and prices need no extra.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import FetchError, Found, Wanted
from gpuwatch.money.prices.http import Asker, amount_of
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.http.address import same_server

_URL = "https://prices.azure.com"
_MOST_PAGES = 20
_NOT_LINUX_ON_DEMAND = ("Windows", "Cloud Services", "Dedicated Host")  # in a product's name
_SOURCE = "Azure Retail Prices API, Linux"


class AzurePrices:
    """Linux prices on demand and spot; no login."""

    def __init__(self, *, clock: Clock, endpoint_url: str | None = None) -> None:
        """Nothing is asked yet."""
        self._clock = clock
        self._url = (endpoint_url or _URL).rstrip("/")
        self._asker = Asker(clock=clock, name="Azure's Retail Prices API")

    def fetch(self, wanted: Sequence[Wanted]) -> Iterable[tuple[Wanted, Sequence[Found]]]:
        """One type after the other, each with all its pages.

        Raises:
            FetchError: no usable answer.

        """
        for region, kind in wanted:
            yield (region, kind), self._find_prices(region, kind)

    def _find_prices(self, region: str, kind: str) -> list[Found]:
        """The price on demand and the spot price, where there is one."""
        newest: dict[CapacityType, tuple[datetime, Decimal, str]] = {}
        now = self._clock.now()
        for item in self._items(region, kind):
            read = _read_item(item, region, kind)
            if read is None or read[1] > now:
                continue
            capacity, begins, price, currency = read
            if capacity not in newest or begins > newest[capacity][0]:
                newest[capacity] = (begins, price, currency)
        return [
            Found.for_place((region, kind, capacity), price, currency=currency, as_of=now.date(), source=_SOURCE)
            for capacity, (_, price, currency) in newest.items()
        ]

    def _items(self, region: str, kind: str) -> Iterable[Mapping[str, Any]]:
        """All pages; the address of the next one is Azure's word, and must be Azure's."""
        asked = (
            "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and "
            f"armRegionName eq '{_quote_text(region)}' and armSkuName eq '{_quote_text(kind)}'"
        )
        url = f"{self._url}/api/retail/prices?{urlencode({'api-version': '2023-01-01-preview', '$filter': asked})}"
        for _ in range(_MOST_PAGES):
            page = self._asker.ask(url)
            if not isinstance(page, dict) or not isinstance(page.get("Items"), list):
                raise FetchError("Azure's Retail Prices API answered without Items")
            yield from page["Items"]
            following = page.get("NextPageLink")
            if not following:
                return
            if not same_server(following, self._url):
                raise FetchError("Azure's Retail Prices API names another server for its next page")
            url = following
        raise FetchError(f"Azure's Retail Prices API has more than {_MOST_PAGES} pages for {kind} in {region}")


def _quote_text(text: str) -> str:
    """A text inside OData's quotes."""
    return text.replace("'", "''")


def _read_item(item: Mapping[str, Any], region: str, kind: str) -> tuple[CapacityType, datetime, Decimal, str] | None:
    """An hour of Linux on such a machine; None: it is the price of something else."""
    try:
        product, sku = item["productName"], item["skuName"]
        if (item["armRegionName"], item["armSkuName"], item["type"]) != (region, kind, "Consumption"):
            return None
        if item["unitOfMeasure"] != "1 Hour" or "Low Priority" in sku:
            return None
        if any(word in product for word in _NOT_LINUX_ON_DEMAND):
            return None
        begins = datetime.fromisoformat(item["effectiveStartDate"])
        begins = begins if begins.tzinfo else begins.replace(tzinfo=UTC)
        price = amount_of(item["retailPrice"])
        capacity = CapacityType.SPOT if "Spot" in sku else CapacityType.ON_DEMAND
        return None if price is None else (capacity, begins, price, str(item["currencyCode"]))
    except (KeyError, TypeError, ValueError) as error:
        raise FetchError(f"Azure's Retail Prices API gave an item that cannot be read: {error!r}") from error
