"""The built-in table: GPU machines as their clouds document them, and list prices where a table of them is public.

It is read when it is first asked for, a cloud at a time, never by an agent. Each price has its day and its source
(`SOURCES`); `make prices` renews them. docs/money.md says what was left out. data/types.tsv has the machines, with
whole GPUs or named slices (`share`); data/parts.tsv what Google Cloud sells apart: a machine `n1-standard-8` with the
attached GPUs `4xnvidia-tesla-v100` is the type `n1-standard-8+4xnvidia-tesla-v100` here, and costs what both do.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from importlib import resources

from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.money import Price
from gpuwatch.model.offers import Offer

_MIB, _GIB = 1024**2, 1024**3
_ATTACHED = re.compile(r"(?P<host>[^+]+)\+(?P<count>[1-9]\d*)x(?P<gpu>[^+]+)")
NO_CASE = frozenset({"azure"})  # clouds whose names have no case: Standard_NC24ads_A100_v4 is standard_nc24ads_a100_v4


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The day and the source of what the table has without a price, and the currency that its cloud bills in."""

    as_of: date
    currency: str
    source: str


# The column `source` of prices.tsv. Where a price comes from is written in full next to every figure that uses it.
SOURCES: Mapping[str, str] = {
    "karpenter-aws": "AWS on-demand list price, from aws/karpenter-provider-aws zz_generated.pricing_aws*.go",
    "vantage": "AWS on-demand list price, from instances.vantage.sh by tsaol/aws-gpu all_gpu_instances.js",
    "karpenter-azure": "Azure list price, from Azure/karpenter-provider-azure zz_generated.pricing.go",
    "karpenter-gcp": "GCP list price, from cloudpilot-ai/karpenter-provider-gcp initial-prices.json",
    "gcp-price-page": "GCP's page of prices of accelerator-optimized machines (cloud.google.com/products/compute/"
    "gpus-pricing), Iowa",
    "skypilot-gcp": "GCP list price of an attached GPU, from skypilot-org/skypilot-catalog v8/gcp/vms.csv",
    "karpenter-alibaba": "Alibaba Cloud list price, from cloudpilot-ai/karpenter-provider-alibabacloud "
    "initial-on-demand-prices.json of December 2024",
    "aws-price-list": "AWS Price List, on demand, Linux, shared tenancy",
    "azure-retail-prices": "Azure Retail Prices API, Linux",
    "alibaba-price-page": "Alibaba Cloud's page of prices in China (ecs-price-info), Linux",
}
ORIGINS: Mapping[str, Origin] = {
    "aws": Origin(as_of=date(2026, 8, 21), currency="USD", source="AWS, as Karpenter's instance types list it"),
    "azure": Origin(as_of=date(2026, 8, 21), currency="USD", source="Azure, as its list of VM sizes has it"),
    "gcp": Origin(as_of=date(2026, 8, 20), currency="USD", source="GCP, as its list of machine types has it"),
    "alibaba": Origin(
        as_of=date(2026, 11, 29), currency="CNY", source="Alibaba Cloud, as its page of GPU instance families has it"
    ),
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

    `gpu_share` is less than 1 where each of its GPUs is a named slice of one, and the GPU memory is then the slice's.
    `local_disks` is whether it has disks that a stop empties (EC2: instance store); None is not known.
    """

    provider: str
    instance_type: str
    gpu_model: str
    gpu_count: int
    gpu_memory_bytes: int
    vcpus: int
    memory_bytes: int | None  # None: its cloud does not document it
    local_disks: bool | None = None
    gpu_share: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPrice:
    """What a cloud asks for an hour in one region."""

    per_hour: Decimal
    currency: str
    as_of: date
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalDiskTypes:
    """How many of a cloud's GPU types have local disks, of all of them, and the families without local disks."""

    having: int
    known: int
    families_without: tuple[str, ...]


@cache
def machine_types() -> Mapping[tuple[str, str], MachineType]:
    """All known machine types by cloud and name, without those of attached GPUs (`find_type`)."""
    return {
        (row["provider"], row["type"]): MachineType(
            provider=row["provider"],
            instance_type=row["type"],
            gpu_model=row["gpu"],
            gpu_count=int(row["gpus"]),
            gpu_memory_bytes=int(row["gpu_mib"]) * _MIB,
            vcpus=int(row["vcpus"]),
            memory_bytes=int(Decimal(row["memory_gib"]) * _GIB) if row["memory_gib"] else None,
            local_disks={"yes": True, "no": False}.get(row["local_disks"]),
            gpu_share=Fraction(row["share"] or 1),
        )
        for row in read_table("types.tsv")
    }


def find_type(provider: str, name: str) -> MachineType | None:
    """One type by its name, with attached GPUs or without, in any case where its cloud knows none."""
    attached = _ATTACHED.fullmatch(name)
    if attached is None:
        return machine_types().get((provider, spell_name(provider, name)))
    host, gpu = _parts().get((provider, attached["host"])), _parts().get((provider, attached["gpu"]))
    if host is None or gpu is None or host["gpu"] or not gpu["gpu"]:
        return None
    return MachineType(
        provider=provider,
        instance_type=name,
        gpu_model=gpu["gpu"],
        gpu_count=int(attached["count"]),
        gpu_memory_bytes=int(gpu["gpu_mib"]) * _MIB,
        vcpus=int(host["vcpus"]),
        memory_bytes=int(Decimal(host["memory_gib"]) * _GIB),
    )


def spell_name(provider: str, name: str) -> str:
    """A type's name as the table spells it; unchanged where case matters, or the table does not have it."""
    return _spellings(provider).get(name.casefold(), name) if provider in NO_CASE else name


def sold_names() -> tuple[tuple[str, str], ...]:
    """Cloud and name of everything that has prices of its own: machine types and parts."""
    return (*machine_types(), *_parts())


@cache
def _spellings(provider: str) -> Mapping[str, str]:
    return {name.casefold(): name for cloud, name in machine_types() if cloud == provider}


@cache
def _parts() -> Mapping[tuple[str, str], Mapping[str, str]]:
    return {(row["provider"], row["part"]): row for row in read_table("parts.tsv")}


def local_disk_types(provider: str) -> LocalDiskTypes | None:
    """Which types of a cloud have local disks; None where the table does not know it."""
    kinds = [kind for (cloud, _), kind in machine_types().items() if cloud == provider and kind.local_disks is not None]
    without = {_family(kind) for kind in kinds if not kind.local_disks}
    without -= {_family(kind) for kind in kinds if kind.local_disks}
    having = sum(kind.local_disks is True for kind in kinds)
    return LocalDiskTypes(having=having, known=len(kinds), families_without=tuple(sorted(without))) if kinds else None


def _family(kind: MachineType) -> str:
    """The first part of its name, such as g5, a2-highgpu or ecs.gn7i."""
    name = kind.instance_type
    if kind.provider == "gcp":
        return "-".join(name.split("-")[:2])
    return re.split(r"[-.]", name.removeprefix("ecs."))[0]


def offers(
    provider: str | None = None,
    region: str | None = None,
    *,
    instance_type: str | None = None,
    capacity_type: CapacityType | None = None,
    slices: bool = False,
) -> tuple[Offer, ...]:
    """What the table offers, of one cloud, region, type or kind of capacity where one is named.

    `slices`: with the machines that have slices of a GPU. Machines with attached GPUs are too many to be listed.
    """
    wanted = (provider, region, instance_type, capacity_type)
    return tuple(
        each
        for cloud in PROVIDERS
        if provider in (None, cloud)
        for each in _offers(cloud)
        if (slices or each.gpu_share == 1)
        and all(
            asked is None or asked == held
            for asked, held in zip(
                wanted, (each.provider, each.region, each.instance_type, each.capacity_type), strict=True
            )
        )
    )


def oldest(provider: str, region: str | None = None) -> date | None:
    """The day of the oldest price of a cloud, in one region where one is named; None: the table has no price for it.

    Without a region only those of the cloud's usual seller count: AWS in China and Azure for governments sell apart.
    """
    apart = {row["region"] for row in read_table("regions.tsv") if row["partition"] != provider}
    days = {
        row.as_of
        for places in _listed_rows(provider).values()
        for place, row in places.items()
        if place == region or (region is None and place not in apart)
    }
    return min(map(date.fromisoformat, days), default=None)


def offer(provider: str, region: str | None, instance_type: str, capacity_type: CapacityType) -> Offer | None:
    """That one offer; None where the table has no such price."""
    price, kind = places(provider, instance_type, capacity_type).get(region or ""), find_type(provider, instance_type)
    return None if price is None or kind is None else describe_type(kind, region or "", capacity_type, price)


@lru_cache(maxsize=1024)
def places(provider: str, instance_type: str, capacity_type: CapacityType) -> Mapping[str, ListPrice]:
    """The list prices of a type by region; of one with attached GPUs, where both parts have one."""
    attached = _ATTACHED.fullmatch(instance_type)
    if attached is None:
        return dict(_places_of(provider, spell_name(provider, instance_type), capacity_type))
    hosts = dict(_places_of(provider, attached["host"], capacity_type))
    count = int(attached["count"])
    return {
        region: ListPrice(
            per_hour=hosts[region].per_hour + count * gpu.per_hour,
            currency=gpu.currency,
            as_of=min(hosts[region].as_of, gpu.as_of),
            source=f"{hosts[region].source}; with {count} of {gpu.source}",
        )
        for region, gpu in _places_of(provider, attached["gpu"], capacity_type)
        if region in hosts
    }


def currency_of(provider: str, region: str) -> str:
    """What a cloud's list prices of a region are in."""
    return "CNY" if provider == "aws" and region.startswith("cn-") else ORIGINS[provider].currency


@cache
def list_price(instance_type: str) -> Price | None:
    """The list price of an AWS machine on demand in us-east-1; None where the table does not know it, never a guess."""
    found = places("aws", instance_type, CapacityType.ON_DEMAND).get("us-east-1")
    return None if found is None else Price(usd_per_hour=found.per_hour, as_of=found.as_of, source=found.source)


def describe_type(kind: MachineType, region: str, capacity_type: CapacityType, price: ListPrice | None) -> Offer:
    """A machine type with its price; None: with the day and the source of the cloud's machine types."""
    origin = price or ORIGINS[kind.provider]
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
        price_per_hour=None if price is None else price.per_hour,
        currency=origin.currency,
        as_of=origin.as_of,
        source=origin.source,
        gpu_share=kind.gpu_share,
    )


@dataclass(frozen=True, slots=True)
class _Listed:
    """One row of prices.tsv as it is written: a controller keeps a thousand of them, and asks for a few."""

    on_demand: str
    spot: str
    as_of: str
    source: str

    def price(self, provider: str, region: str, capacity_type: CapacityType) -> ListPrice | None:
        """The price of that kind of capacity."""
        prices = {CapacityType.ON_DEMAND: self.on_demand, CapacityType.SPOT: self.spot}
        text = prices.get(capacity_type, "")
        if not text:
            return None
        return ListPrice(
            per_hour=Decimal(text),
            currency=currency_of(provider, region),
            as_of=date.fromisoformat(self.as_of),
            source=SOURCES[self.source],
        )


@cache
def _listed_rows(provider: str) -> Mapping[str, Mapping[str, _Listed]]:
    """The rows of one cloud, by type and region; those of other clouds are not kept."""
    found: dict[str, dict[str, _Listed]] = {}
    same: dict[str, str] = {}  # one text each for the days, the sources and the regions, which come a thousand times
    for line in _text("prices.tsv").splitlines():
        if line.startswith(f"{provider}\t"):
            _, region, kind, on_demand, spot, as_of, source = line.split("\t")
            row = _Listed(on_demand, spot, same.setdefault(as_of, as_of), same.setdefault(source, source))
            found.setdefault(kind, {})[same.setdefault(region, region)] = row
    return found


def _places_of(provider: str, name: str, capacity_type: CapacityType) -> Iterator[tuple[str, ListPrice]]:
    for region, row in _listed_rows(provider).get(name, {}).items():
        price = row.price(provider, region, capacity_type)
        if price is not None:
            yield region, price


def _offers(provider: str) -> Iterator[Offer]:
    """Every price of a cloud by region, then its types without any."""
    kinds = {name: kind for (cloud, name), kind in machine_types().items() if cloud == provider}
    listed = {name: _listed_rows(provider).get(name, {}) for name in kinds}
    for region in dict.fromkeys(region for rows in listed.values() for region in rows):
        for name, kind in kinds.items():
            row = listed[name].get(region)
            for capacity in (CapacityType.ON_DEMAND, CapacityType.SPOT) if row is not None else ():
                price = None if row is None else row.price(provider, region, capacity)
                if price is not None:
                    yield describe_type(kind, region, capacity, price)
    for name, kind in kinds.items():
        if not listed[name]:
            yield describe_type(kind, "", CapacityType.ON_DEMAND, None)


def read_table(name: str) -> list[dict[str, str]]:
    """A table of ours: tabs between columns, their names in the first line."""
    return list(csv.DictReader(_text(name).splitlines(), delimiter="\t"))


def _text(name: str) -> str:
    return (resources.files("gpuwatch.money.prices") / "data" / name).read_text(encoding="utf-8")
