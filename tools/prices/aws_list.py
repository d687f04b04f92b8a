"""AWS's price list without a login (docs.aws.amazon.com/awsaccountbilling, "Getting price list files manually").

The index names each region's file, in JSON or, with another ending, CSV. The CSV has some hundred megabytes. It is read
line by line as it comes, so neither disk nor memory must hold it.
"""

import csv
import http.client
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal

from gpuwatch.money.prices.fetch import FetchError, Wanted
from gpuwatch.money.prices.http import Asker, amount_of
from gpuwatch.runtime.clock import Clock

URL = "https://pricing.us-east-1.amazonaws.com"
_INDEX = "/offers/v1.0/aws/AmazonEC2/current/region_index.json"
_NAME = "AWS's price list"
_LINES_BEFORE_THE_HEADER = 20
_BUFFER_BYTES = 1024**2
_ON_DEMAND = {
    "TermType": "OnDemand",
    "Unit": "Hrs",
    "Currency": "USD",
    "Location Type": "AWS Region",
    "Tenancy": "Shared",
    "Operating System": "Linux",
    "Pre Installed S/W": "NA",
    "CapacityStatus": "Used",
}
_READ = ("Instance Type", "PricePerUnit", "Region Code")
_MARKET = "MarketOption"  # not in older lists; capacity blocks are another one than OnDemand


class AwsList:
    """The prices on demand of whole regions."""

    def __init__(self, *, clock: Clock, url: str, deadline: float) -> None:
        """Nothing is asked yet; `deadline` is on the monotonic clock."""
        self._clock = clock
        self._url = url.rstrip("/")
        self._deadline = deadline
        self._asker = Asker(clock=clock, name=_NAME)

    def prices(self, wanted: Sequence[Wanted]) -> Mapping[Wanted, Decimal]:
        """Of these types in their regions, those that the list has.

        Raises:
            FetchError: no usable answer.

        """
        kinds: dict[str, set[str]] = defaultdict(set)
        for region, kind in wanted:
            kinds[region].add(kind)
        index = self._asker.ask(self._url + _INDEX)
        found: dict[Wanted, Decimal] = {}
        for region, of_region in kinds.items():
            found |= self._region(self._file(index, region), region, of_region)
        return found

    def _file(self, index: object, region: str) -> str:
        """Where the list of a region is."""
        try:
            path = index["regions"][region]["currentVersionUrl"]  # type: ignore[index]  # what is no such index raises
            if path.startswith("/") and path.endswith("/index.json"):
                return f"{self._url}{path.removesuffix('.json')}.csv"
        except (KeyError, TypeError, AttributeError):
            pass
        raise FetchError(f"{_NAME} names no file of {region} in {_INDEX}")

    def _region(self, url: str, region: str, kinds: set[str]) -> dict[Wanted, Decimal]:
        """One file. Two prices of one machine are an error: nobody can tell which is right."""
        found: dict[Wanted, Decimal] = {}
        try:
            with self._asker.open_answer(url) as answer:
                for kind, text in self._offered(answer, region):
                    price = amount_of(text) if kind in kinds else None
                    if price is not None and found.setdefault((region, kind), price) != price:
                        raise FetchError(f"{_NAME} has {found[region, kind]} and {price} for {kind} in {region}")
        except (OSError, http.client.HTTPException, ValueError, csv.Error) as error:
            raise FetchError(f"{_NAME} of {region} gave no usable answer: {error}") from error
        return found

    def _offered(self, answer: http.client.HTTPResponse, region: str) -> Iterator[tuple[str, str]]:
        """Machine type and price of each line that is of Linux on demand on shared hosts."""
        body = _Body(answer, clock=self._clock, deadline=self._deadline)
        lines = csv.reader(io.TextIOWrapper(io.BufferedReader(body, _BUFFER_BYTES), encoding="utf-8", newline=""))
        columns = _columns(lines)
        fixed = [(columns[name], value) for name, value in _ON_DEMAND.items()]
        kind, price, code = (columns[name] for name in _READ)
        market = columns.get(_MARKET)
        for line in lines:
            if len(line) != len(columns):
                raise ValueError(f"a line has {len(line)} columns, the header has {len(columns)}")
            here = line[code] == region and all(line[at] == value for at, value in fixed)
            if here and (market is None or line[market] in {"", "OnDemand"}):
                yield line[kind], line[price]


def _columns(lines: Iterator[list[str]]) -> dict[str, int]:
    """Where each column is; some lines about the list come before the header."""
    for _, line in zip(range(_LINES_BEFORE_THE_HEADER), lines, strict=False):
        if line and line[0] == "SKU":
            columns = {name: at for at, name in enumerate(line)}
            missing = [name for name in (*_ON_DEMAND, *_READ) if name not in columns]
            if missing:
                raise ValueError(f"it has no column {json.dumps(missing[0])}")
            if len(columns) == len(line):
                return columns
    raise ValueError("it has no line with the names of its columns")


class _Body(io.RawIOBase):
    """An answer's body that is an error where it ends before its length, or takes too long."""

    def __init__(self, answer: http.client.HTTPResponse, *, clock: Clock, deadline: float) -> None:
        self._answer = answer
        self._clock = clock
        self._deadline = deadline
        self._missing = None if answer.length is None else answer.length

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what BufferedReader gives
        """Raises OSError."""
        if self._clock.monotonic() > self._deadline:
            raise TimeoutError("it took longer than --timeout")
        size = self._answer.readinto(buffer)
        if self._missing is not None:
            self._missing -= size
            if not size and self._missing:
                raise OSError(f"it ended {self._missing} bytes before its end")
        return size
