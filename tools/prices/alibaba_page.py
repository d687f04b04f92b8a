"""Alibaba Cloud's prices in China as its page of prices loads them: no documented API, but one without a login.

The page names the version of the price list, and the list has all machines of all regions in one document. A key is
`REGION::TYPE::NETWORK::SYSTEM::DISK`; `hours` begins with the price of one hour, in CNY.
"""

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal

from gpuwatch.money.prices.fetch import FetchError, Wanted
from gpuwatch.money.prices.http import Asker, amount_of
from gpuwatch.runtime.clock import Clock

URL = "https://www.aliyun.com"
_LISTS = "https://g.alicdn.com"
_PAGE = "/price/ecs/ecs-pricing/zh"
_VERSION = re.compile(rb"//g\.alicdn\.com/aliyun/ecs-price-info/([0-9]+(?:\.[0-9]+)*)")
_NAME = "Alibaba Cloud's page of prices"
_PARTS = 4


class AlibabaPage:
    """The prices on demand of Linux in a VPC."""

    def __init__(self, *, clock: Clock, url: str) -> None:
        """Nothing is asked yet. Another URL than Alibaba's own has both, the page and the list."""
        self._page = url.rstrip("/")
        self._lists = _LISTS if self._page == URL else self._page
        self._asker = Asker(clock=clock, name=_NAME)

    def prices(self, wanted: Sequence[Wanted]) -> Mapping[Wanted, Decimal]:
        """Of these types in their regions, those that the list has.

        Raises:
            FetchError: no usable answer.

        """
        version = _VERSION.search(self._asker.text(self._page + _PAGE))
        if version is None:
            raise FetchError(f"{_NAME} names no list of prices (ecs-price-info)")
        path = f"/aliyun/ecs-price-info/{version[1].decode()}/price/download/instancePrice.json"
        document = self._asker.ask(self._lists + path)
        try:
            if document.get("currency", "CNY") != "CNY":
                raise FetchError(f"{_NAME} is in {document['currency']}, not in CNY")
            return _read(document["pricingInfo"], set(wanted))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise FetchError(f"{_NAME} gave a list that cannot be read: {error!r}") from error


def _read(
    listed: Mapping[str, Mapping[str, Sequence[Mapping[str, object]]]], wanted: set[Wanted]
) -> dict[Wanted, Decimal]:
    found: dict[Wanted, Decimal] = {}
    for key, prices in listed.items():
        region, kind, network, system = (*key.split("::"), *[""] * _PARTS)[:_PARTS]
        if (region, kind) in wanted and (network, system) == ("vpc", "linux") and prices.get("hours"):
            price = amount_of(prices["hours"][0]["price"])
            if price is not None and found.setdefault((region, kind), price) != price:
                raise FetchError(f"{_NAME} has {found[region, kind]} and {price} for {kind} in {region}")
    return found
