"""`gpuwatch scan`: every GPU machine of the accounts, what it costs, and whether the controller knows it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TypedDict

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG
from gpuwatch.clouds.survey import CloudUse, Surveyed
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.money import Price
from gpuwatch.money.prices.price_book import NoPrice

HOURS_A_DAY = 24
# Tags by which people commonly say who made a machine, in small letters; the first that is there counts.
_OWNERS = ("owner", "created-by", "createdby", "creator", "user", "email", "contact", "team")
# A machine in these states is billed by the hour: of a state in doubt it is assumed.
_BILLED = frozenset({NodeState.PENDING, NodeState.RUNNING, NodeState.STOPPING, NodeState.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What one cloud showed: its name in the settings, its provider, its places, and what its monitor says.

    `unmonitored` is why the monitor said nothing, by the place.
    """

    cloud: str
    provider: str
    places: Sequence[Surveyed]
    monitor: str | None = None
    use: Mapping[str, CloudUse]
    unmonitored: Mapping[str, str]
    price: Callable[[Node], Price | NoPrice]


class ScanUse(TypedDict):
    """What the cloud's own monitor says of a machine over `days`: its CPUs and its network; null is not known."""

    cpu_mean_ratio: float | None
    cpu_max_ratio: float | None
    received_bytes_per_second: float | None
    sent_bytes_per_second: float | None
    gpu_mean_ratio: float | None


class ScanMachine(TypedDict):
    """A GPU machine that exists.

    `watched`: the settings name its region. `known`: it is watched and has the tag of this fleet; `why` says why it is
    not, or its pool. `owner` is from gpuwatch:owner, else from a tag that people commonly use for it. `usd_per_hour` is
    null where no price is known, and of a machine that costs nothing by the hour now (`billed` is false).
    """

    id: str
    name: str
    cloud: str
    provider: str
    region: str
    zone: str
    account: str | None
    instance_type: str
    gpu_count: int | None
    capacity_type: CapacityType
    state: NodeState
    launched_at: datetime | None
    age_seconds: float | None
    billed: bool
    usd_per_hour: str | None
    watched: bool
    enrolled: bool
    known: bool
    why: str
    fleet: str | None
    pool: str | None
    owner: str | None
    managed_by: str | None
    tags: dict[str, str]
    use: ScanUse | None


class ScanPlace(TypedDict):
    """A place that was looked at. `refused` and `trouble` are why its machines are not known.

    `unmonitored` is why the cloud's monitor said nothing of them.
    """

    cloud: str
    provider: str
    where: str
    region: str
    watched: bool
    machines: int
    refused: str | None
    trouble: str | None
    unmonitored: str | None


class ScanSum(TypedDict):
    """Machines and their list prices; `unpriced` are billed machines without a known price, which are in no sum."""

    machines: int
    gpus: int
    usd_per_hour: str
    usd_per_day: str
    unpriced: int


class ScanDocument(TypedDict):
    """Every GPU machine that the configured clouds show in any region, agents or not. Nothing was changed.

    `complete` is false where a place was refused or gave no answer: what runs there is not known.
    """

    at: datetime
    days: int
    complete: bool
    machines: list[ScanMachine]
    places: list[ScanPlace]
    known: ScanSum
    unknown: ScanSum


def scan_document(
    looked: Iterable[Looked], *, fleet: str, now: datetime, days: int, regions: Sequence[str] = ()
) -> ScanDocument:
    """All clouds together, in these regions alone where any are given; the dearest of the unknown first."""
    machines: list[ScanMachine] = []
    places: list[ScanPlace] = []
    for each in looked:
        for place in each.places:
            if regions and place.region and place.region not in regions:
                continue
            found = [node for node in place.nodes if not regions or node.region in regions]
            machines += [_machine(each, place, node, fleet, now) for node in found]
            places.append(_place(each, place, len(found)))
    machines.sort(key=lambda row: (row["known"], -Decimal(row["usd_per_hour"] or 0), row["region"], row["id"]))
    return {
        "at": now,
        "days": days,
        "complete": all(place["refused"] is None and place["trouble"] is None for place in places),
        "machines": machines,
        "places": places,
        "known": _sum(row for row in machines if row["known"]),
        "unknown": _sum(row for row in machines if not row["known"]),
    }


def _machine(looked: Looked, place: Surveyed, node: Node, fleet: str, now: datetime) -> ScanMachine:
    billed = node.state in _BILLED or (node.state is NodeState.STOPPED and node.still_billed is not None)
    price = looked.price(node) if billed else None
    per_hour = price.usd_per_hour if isinstance(price, Price) else None
    use = looked.use.get(node.id)
    known = place.watched and node.enrolled
    return {
        "id": node.id,
        "name": node.name,
        "cloud": looked.cloud,
        "provider": looked.provider,
        "region": node.region,
        "zone": node.zone,
        "account": node.account,
        "instance_type": node.instance_type,
        "gpu_count": node.gpu_count,
        "capacity_type": node.capacity_type,
        "state": node.state,
        "launched_at": node.launched_at,
        "age_seconds": None if node.launched_at is None else max(0.0, (now - node.launched_at).total_seconds()),
        "billed": billed,
        "usd_per_hour": None if per_hour is None else f"{per_hour:f}",
        "watched": place.watched,
        "enrolled": node.enrolled,
        "known": known,
        "why": _why(node, place, fleet),
        "fleet": node.tags.get(FLEET_TAG),
        "pool": node.pool if node.enrolled else None,
        "owner": owner_of(node),
        "managed_by": node.managed_by,
        "tags": dict(node.tags),
        "use": None if use is None else _use(use),
    }


def _why(node: Node, place: Surveyed, fleet: str) -> str:
    """Where it belongs, in a few words."""
    named = node.tags.get(FLEET_TAG)
    if node.enrolled:
        words = f"pool {node.pool}"
    else:
        words = f"of fleet {named}, not {fleet}" if named else "not enrolled"
        words += f", managed by {node.managed_by}" if node.managed_by else ""
    return words if place.watched else f"{words}; region not watched"


def owner_of(node: Node) -> str | None:
    """Who seems to own a machine: gpuwatch's own tag, else a common one, in any case."""
    if node.owner or node.tags.get(OWNER_TAG):
        return node.owner or node.tags[OWNER_TAG]
    tags = {name.lower().replace("_", "-"): node.tags[name] for name in sorted(node.tags, reverse=True)}
    return next((tags[name] for name in _OWNERS if tags.get(name)), None)


def _use(use: CloudUse) -> ScanUse:
    return {
        "cpu_mean_ratio": use.cpu_mean_ratio,
        "cpu_max_ratio": use.cpu_max_ratio,
        "received_bytes_per_second": use.received_bytes_per_second,
        "sent_bytes_per_second": use.sent_bytes_per_second,
        "gpu_mean_ratio": use.gpu_mean_ratio,
    }


def _place(looked: Looked, place: Surveyed, machines: int) -> ScanPlace:
    return {
        "cloud": looked.cloud,
        "provider": looked.provider,
        "where": place.where,
        "region": place.region,
        "watched": place.watched,
        "machines": machines,
        "refused": place.refused,
        "trouble": place.trouble,
        "unmonitored": looked.unmonitored.get(place.where),
    }


def _sum(rows: Iterable[ScanMachine]) -> ScanSum:
    rows = list(rows)
    per_hour = sum((Decimal(row["usd_per_hour"] or 0) for row in rows), Decimal(0))
    return {
        "machines": len(rows),
        "gpus": sum(row["gpu_count"] or 0 for row in rows),
        "usd_per_hour": f"{per_hour:f}",
        "usd_per_day": f"{per_hour * HOURS_A_DAY:f}",
        "unpriced": sum(row["billed"] and row["usd_per_hour"] is None for row in rows),
    }
