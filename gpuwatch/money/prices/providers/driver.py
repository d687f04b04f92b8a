"""Prices that a driver says; one row in doubt makes the whole answer no answer, and known prices stay in force."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from gpuwatch.clouds.driver.line import Line
from gpuwatch.clouds.driver.protocol import PRICE, doubt_of
from gpuwatch.clouds.errors import CloudError
from gpuwatch.clouds.settings import CloudSettings
from gpuwatch.model.fleet import CapacityType
from gpuwatch.money.prices.fetch import FetchError, Found, Wanted
from gpuwatch.runtime.clock import Clock

_PRICED = (CapacityType.ON_DEMAND, CapacityType.SPOT)


class DriverPrices:
    """What one driver says of its machines; nothing, if it does not offer `prices`."""

    def __init__(self, cloud: CloudSettings, *, fleet: str, clock: Clock) -> None:
        """Nothing is run yet."""
        self._cloud, self._fleet, self._clock = cloud, fleet, clock

    def fetch(self, wanted: Sequence[Wanted]) -> Iterator[tuple[Wanted, Sequence[Found]]]:
        """By the region of the request: one of `cloud.regions`, else all.

        Raises:
            FetchError: no usable answer.

        """
        regions = {region: region if region in self._cloud.regions else None for region, _ in wanted}
        for asked in dict.fromkeys(regions.values()):
            there = [each for each in wanted if regions[each[0]] == asked]
            try:
                rows = self._rows(asked, sorted({kind for _, kind in there}))
            except CloudError as error:
                raise FetchError(str(error)) from error
            for region, kind in there:
                yield (region, kind), [self._price_of(region, row) for row in rows if _is_of(row, region, kind)]

    def _rows(self, region: str | None, types: list[str]) -> list[dict[str, str]]:
        line = Line(self._cloud.driver, fleet=self._fleet, clock=self._clock, endpoint_url=self._cloud.endpoint_url)
        if not line.offers("prices"):
            return []
        rows: list[dict[str, str]] = line.ask("prices", region, types=types)["prices"]
        seen: dict[tuple[str, str, str], object] = {}
        for row in rows:
            doubt = doubt_of(row, region, PRICE)
            key = ("",) * 3 if doubt else (row["type"], row.get("region", ""), row.get("capacity", _PRICED[0]))
            if doubt is None and seen.setdefault(key, row["usd_per_hour"]) != row["usd_per_hour"]:
                doubt = f"{row['type']} has two prices"
            if doubt is not None:
                raise FetchError(f"prices of the driver {line.path.name}: {doubt}")
        return rows

    def _price_of(self, region: str, row: dict[str, str]) -> Found:
        capacity = CapacityType(row.get("capacity", CapacityType.ON_DEMAND))
        source = f"its driver {self._cloud.driver.executable}"
        price, day = Decimal(str(row["usd_per_hour"])), self._clock.now().date()
        return Found.for_place((region, row["type"], capacity), price, as_of=day, source=source)


def _is_of(row: dict[str, str], region: str, kind: str) -> bool:
    """Whether a row holds there; other kinds of capacity than on demand and spot have no list price."""
    return (
        row["type"] == kind
        and row.get("region", region) == region
        and row.get("capacity", CapacityType.ON_DEMAND) in _PRICED
    )
