"""The built-in table: GPU machines as their clouds document them, and list prices where a table of them is public.

It is read when it is first asked for, never by an agent. Each price has its day and its source (`SOURCES`);
`make prices` renews them. docs/money.md says what was left out: fractions of a GPU, promotions, retired sizes, and
regions without a currency in the source.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from importlib import resources

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import Offer, Price

_MIB, _GIB = 1024**2, 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The currency of a cloud's rows, and the day and the source of what the table has without a price."""

    as_of: date
    currency: str
    source: str


# The column `source` of prices.tsv. Where a price comes from is written in full next to every figure that uses it.
SOURCES: Mapping[str, str] = {
    "karpenter-aws": "AWS on-demand list price in us-east-1, "
    "from aws/karpenter-provider-aws zz_generated.pricing_aws.go",
    "karpenter-azure": "Azure list price, from Azure/karpenter-provider-azure zz_generated.pricing.go",
    "karpenter-gcp": "GCP list price with the GPUs, from cloudpilot-ai/karpenter-provider-gcp initial-prices.json",
    "karpenter-alicloud": "Alibaba Cloud list price, from cloudpilot-ai/karpenter-provider-alicloud "
    "initial-on-demand-prices.json of October 2024",
    "aws-price-list": "AWS Price List, on demand, Linux, shared tenancy",
    "azure-retail-prices": "Azure Retail Prices API, Linux",
    "alibaba-price-page": "Alibaba Cloud's page of prices in China (ecs-price-info), Linux",
}
ORIGINS: Mapping[str, Origin] = {
    "aws": Origin(as_of=date(2026, 1, 19), currency="USD", source=SOURCES["karpenter-aws"]),
    "azure": Origin(as_of=date(2026, 6, 18), currency="USD", source=SOURCES["karpenter-azure"]),
    "gcp": Origin(as_of=date(2026, 8, 3), currency="USD", source=SOURCES["karpenter-gcp"]),
    "alibaba": Origin(as_of=date(2024, 10, 1), currency="CNY", source=SOURCES["karpenter-alicloud"]),
    "tencent": Origin(
        as_of=date(2026, 11, 21),
        currency="CNY",
        source="Tencent Cloud documents the machine and publishes no table of prices",
    ),
}
PROVIDERS = tuple(ORIGINS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """What is in a machine. The memory of a GPU is what EC2's API reports for that model, also in other clouds.

    `local_disks` is whether it has disks that a stop empties (EC2: instance store); None is not known.
    """

    provider: str
    instance_type: str
    gpu_model: str
    gpu_count: int
    gpu_memory_bytes: int
    vcpus: int
    memory_bytes: int
    local_disks: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDiskTypes:
    """How many of a cloud's GPU types have local disks, of all of them, and the families without local disks."""

    having: int
    known: int
    families_without: tuple[str, ...]


@cache
def machine_types() -> Mapping[tuple[str, str], MachineType]:
    """All known machine types by cloud and name."""
    return {
        (row["provider"], row["type"]): MachineType(
            provider=row["provider"],
            instance_type=row["type"],
            gpu_model=row["gpu"],
            gpu_count=int(row["gpus"]),
            gpu_memory_bytes=int(row["gpu_mib"]) * _MIB,
            vcpus=int(row["vcpus"]),
            memory_bytes=int(row["memory_gib"]) * _GIB,
            local_disks={"yes": True, "no": False}.get(row["local_disks"]),
        )
        for row in _rows("types.tsv")
    }


def local_disk_types(provider: str) -> LocalDiskTypes | None:
    """Which types of a cloud have local disks; None where the table does not know it."""
    kinds = [kind for (cloud, _), kind in machine_types().items() if cloud == provider and kind.local_disks is not None]
    without = {kind.instance_type.partition(".")[0] for kind in kinds if not kind.local_disks}
    without -= {kind.instance_type.partition(".")[0] for kind in kinds if kind.local_disks}
    having = sum(kind.local_disks is True for kind in kinds)
    return LocalDiskTypes(having=having, known=len(kinds), families_without=tuple(sorted(without))) if kinds else None


def offers(
    provider: str | None = None,
    region: str | None = None,
    *,
    instance_type: str | None = None,
    capacity_type: CapacityType | None = None,
) -> tuple[Offer, ...]:
    """What the table offers, of one cloud, region, type or kind of capacity where one is named."""
    wanted = (provider, region, instance_type, capacity_type)
    return tuple(
        each
        for each in _offers()
        if all(
            asked is None or asked == held
            for asked, held in zip(
                wanted, (each.provider, each.region, each.instance_type, each.capacity_type), strict=True
            )
        )
    )


def oldest(provider: str) -> date | None:
    """The day of the oldest price of a cloud; None: the table has none of it."""
    return min((each.as_of for each in _offers() if each.provider == provider and each.price_per_hour), default=None)


def offer(provider: str, region: str | None, instance_type: str, capacity_type: CapacityType) -> Offer | None:
    """That one offer; None where the table has no such price."""
    return _index().get((provider, region or "", instance_type, capacity_type))


@cache
def list_price(instance_type: str) -> Price | None:
    """The list price of an AWS machine on demand in us-east-1; None where the table does not know it, never a guess."""
    found = offer("aws", "us-east-1", instance_type, CapacityType.ON_DEMAND)
    if found is None or found.price_per_hour is None:
        return None
    return Price(usd_per_hour=found.price_per_hour, as_of=found.as_of, source=found.source)


def describe_type(
    kind: MachineType, region: str, capacity_type: CapacityType, price: Decimal | None, origin: Origin | None = None
) -> Offer:
    """A machine type with a price of that origin; None: that of the cloud's machine types."""
    origin = origin or ORIGINS[kind.provider]
    return Offer(
        provider=kind.provider,
        region=region,
        instance_type=kind.instance_type,
        gpu_model=kind.gpu_model,
        gpu_count=kind.gpu_count,
        gpu_memory_bytes=kind.gpu_memory_bytes,
        vcpus=kind.vcpus,
        memory_bytes=kind.memory_bytes,
        capacity_type=capacity_type,
        price_per_hour=price,
        currency=origin.currency,
        as_of=origin.as_of,
        source=origin.source,
    )


@cache
def _offers() -> tuple[Offer, ...]:
    return tuple(_make_offers())


@cache
def _index() -> Mapping[tuple[str, str, str, CapacityType], Offer]:
    return {
        (each.provider, each.region, each.instance_type, each.capacity_type): each
        for each in _offers()
        if each.price_per_hour is not None
    }


def _make_offers() -> Iterator[Offer]:
    """Every price of the table, then the types without any."""
    priced = set()
    for row in _rows("prices.tsv"):
        kind = machine_types()[row["provider"], row["type"]]
        priced.add((kind.provider, kind.instance_type))
        currency = ORIGINS[kind.provider].currency
        origin = Origin(as_of=date.fromisoformat(row["as_of"]), currency=currency, source=SOURCES[row["source"]])
        for column, capacity in (("on_demand", CapacityType.ON_DEMAND), ("spot", CapacityType.SPOT)):
            if row[column]:
                yield describe_type(kind, row["region"], capacity, Decimal(row[column]), origin)
    for key, kind in machine_types().items():
        if key not in priced:
            yield describe_type(kind, "", CapacityType.ON_DEMAND, None)


def _rows(name: str) -> list[dict[str, str]]:
    """A table of ours: tabs between columns, their names in the first line."""
    text = (resources.files("gpuwatch.money.prices") / "data" / name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines(), delimiter="\t"))
