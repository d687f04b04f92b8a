"""PURE: the tables of prices that public repositories keep, read as facts: a machine, a region, a price, a day.

`python -m tools.prices --tables DIR` reads each file of `FILES` that lies in DIR. Of two prices of the same machine in
the same region the newer stands; what is already in the table and as new stays as it is.
"""

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from gpuwatch.money.prices import catalogue
from gpuwatch.money.prices.http import amount_of
from tools.prices.table import Row, plain

_GENERATED = re.compile(r"generated at (\d{4}-\d{2}-\d{2})T")
_GO_REGION = re.compile(r'(?:^\t\t?"|\[")([a-z0-9-]+)"(?:: \{|\])')
_GO_PRICE = re.compile(r'"([^"]+)":\s*([0-9.]+)')
_LOCAL_ZONE = re.compile(r"-\d+-.+-\d+$|-wl\d")  # us-west-2-lax-1, us-east-1-wl1-bos-1: priced apart from their region


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One price of a table; None: it is not sold so."""

    region: str
    type: str
    on_demand: Decimal | None
    spot: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """How a file is read. `day` is that of its prices where the file itself names none."""

    provider: str
    source: str
    read: Callable[[str], Iterable[Listed]]
    day: date | None = None


def go_map(text: str) -> Iterator[Listed]:
    """The Go maps that Karpenter's providers generate: a region, then its machines with their prices."""
    region = ""
    for line in text.splitlines():
        found = _GO_REGION.search(line)
        if found is not None:
            region = found[1]
            continue
        for kind, price in _GO_PRICE.findall(line):
            yield Listed(region=region, type=kind, on_demand=amount_of(price))


def on_demand_and_spot(text: str) -> Iterator[Listed]:
    """JSON with both prices of each region."""
    for region, prices in json.loads(text, parse_float=str)["prices"].items():
        spot: Mapping[str, str] = prices.get("spot", {})
        for kind, price in prices["on_demand"].items():
            yield Listed(region=region, type=kind, on_demand=amount_of(price), spot=amount_of(spot.get(kind)))


def by_region(text: str) -> Iterator[Listed]:
    """JSON with the prices of each region."""
    for region, prices in json.loads(text, parse_float=str).items():
        for kind, price in prices.items():
            yield Listed(region=region, type=kind, on_demand=amount_of(price))


def by_machine(text: str) -> Iterator[Listed]:
    """A list of machines in JavaScript, each with its prices in all regions, local zones left out."""
    decoder = json.JSONDecoder(parse_float=str)
    machines, _ = decoder.raw_decode(text[text.index("[") :])
    for each in machines:
        for region, price in each["pricing"].items():
            if not _LOCAL_ZONE.search(region):
                yield Listed(region=region, type=each["name"], on_demand=amount_of(price.get("onDemand")))


def attached_gpus(text: str) -> Iterator[Listed]:
    """SkyPilot's rows of one GPU that is attached to a machine of Google Cloud, by the name that its API gives it."""
    seen = set()
    for row in csv.DictReader(text.splitlines()):
        name = _ATTACHED.get(row["AcceleratorName"])
        if row["InstanceType"] or name is None or float(row["AcceleratorCount"]) != 1 or (name, row["Region"]) in seen:
            continue
        seen.add((name, row["Region"]))
        spot = amount_of(row["SpotPrice"])
        yield Listed(region=row["Region"], type=name, on_demand=amount_of(row["Price"]), spot=spot)


_ATTACHED = {each: f"nvidia-tesla-{each.lower()}" for each in ("P4", "P100", "T4", "V100")}

# By the name of the file in its repository.
FILES: Mapping[str, Table] = {
    "zz_generated.pricing_aws.go": Table(provider="aws", source="karpenter-aws", read=go_map),
    "zz_generated.pricing_aws_us_gov.go": Table(provider="aws", source="karpenter-aws", read=go_map),
    "zz_generated.pricing_aws_cn.go": Table(provider="aws", source="karpenter-aws", read=go_map),
    "all_gpu_instances.js": Table(provider="aws", source="vantage", read=by_machine, day=date(2025, 11, 30)),
    "zz_generated.pricing.go": Table(provider="azure", source="karpenter-azure", read=go_map),
    "initial-prices.json": Table(provider="gcp", source="karpenter-gcp", read=on_demand_and_spot, day=date(2026, 8, 3)),
    "vms.csv": Table(provider="gcp", source="skypilot-gcp", read=attached_gpus, day=date(2025, 10, 1)),
    "initial-on-demand-prices.json": Table(
        provider="alibaba", source="karpenter-alibaba", read=by_region, day=date(2024, 12, 31)
    ),
}


def rows_of(name: str, text: str) -> list[Row]:
    """The rows of a file for the machines that the catalogue knows.

    Raises:
        ValueError: the file is not of its form, or names no day.

    """
    table = FILES[name]
    generated = _GENERATED.search(text)
    day = table.day if generated is None else date.fromisoformat(generated[1])
    if day is None:
        raise ValueError(f"{name} does not say when it was generated")
    known = {kind for cloud, kind in catalogue.sold_names() if cloud == table.provider}
    return [
        Row(
            provider=table.provider,
            region=each.region,
            type=each.type,
            on_demand=_round(each.on_demand),
            spot=None if each.spot is None else _round(each.spot),
            as_of=day,
            source=table.source,
        )
        for each in table.read(text)
        if each.type in known and each.on_demand is not None
    ]


def _round(price: Decimal) -> Decimal:
    """To a millionth: sums of parts come with digits that no price list has."""
    return plain(price.quantize(Decimal("0.000001")))


def merged(before: Sequence[Row], found: Iterable[Row]) -> list[Row]:
    """All rows, the newest of each machine and region: clouds in their order, then by region, then by machine."""
    newest = {row.name: row for row in before}
    for row in found:
        old = newest.get(row.name)
        if old is None or old.as_of < row.as_of:
            newest[row.name] = row
    clouds, kinds = catalogue.PROVIDERS, {name: rank for rank, name in enumerate(catalogue.sold_names())}
    return sorted(
        newest.values(), key=lambda row: (clouds.index(row.provider), row.region, kinds[row.provider, row.type])
    )
