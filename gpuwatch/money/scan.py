"""`gpuwatch scan`: every GPU machine of the accounts, what it costs, and whether the controller knows it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpuwatch.clouds import FLEET_TAG, OWNER_TAG
from gpuwatch.clouds.survey import CloudUse, Surveyed
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.money import Price
from gpuwatch.money.prices.price_book import NoPrice
from gpuwatch.runtime.json_document import fill_document

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanMachine:
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
    usd_per_hour: Decimal | None
    price_source: str | None
    watched: bool
    enrolled: bool
    known: bool
    why: str
    fleet: str | None
    pool: str | None
    owner: str | None
    managed_by: str | None
    tags: Mapping[str, str]
    use: CloudUse | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlace:
    """A place that was looked at. `refused` and `trouble` are why its machines are not known.

    `unmonitored` is why the cloud's monitor said nothing about these.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSum:
    """Machines and their list prices; `unpriced` are billed machines without a known price, which are in no sum."""

    machines: int
    gpus: int
    usd_per_hour: Decimal
    usd_per_day: Decimal
    unpriced: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanDocument:
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
    machines.sort(key=lambda row: (row.known, -(row.usd_per_hour or 0), row.region, row.id))
    return ScanDocument(
        at=now,
        days=days,
        complete=all(place.refused is None and place.trouble is None for place in places),
        machines=machines,
        places=places,
        known=_sum(row for row in machines if row.known),
        unknown=_sum(row for row in machines if not row.known),
    )


def _machine(looked: Looked, place: Surveyed, node: Node, fleet: str, now: datetime) -> ScanMachine:
    billed = node.state in _BILLED or node.billed_though_stopped
    price = looked.price(node) if billed else None
    return fill_document(
        ScanMachine,
        node,
        cloud=looked.cloud,
        provider=looked.provider,
        age_seconds=None if node.launched_at is None else max(0.0, (now - node.launched_at).total_seconds()),
        billed=billed,
        usd_per_hour=price.usd_per_hour if isinstance(price, Price) else None,
        price_source=price.source if isinstance(price, Price) else None,
        watched=place.watched,
        known=place.watched and node.enrolled,
        why=_why(node, place, fleet),
        fleet=node.tags.get(FLEET_TAG),
        pool=node.pool if node.enrolled else None,
        owner=owner_of(node),
        use=looked.use.get(node.id),
    )


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


def _place(looked: Looked, place: Surveyed, machines: int) -> ScanPlace:
    return fill_document(
        ScanPlace,
        place,
        cloud=looked.cloud,
        provider=looked.provider,
        machines=machines,
        unmonitored=looked.unmonitored.get(place.where),
    )


def _sum(rows: Iterable[ScanMachine]) -> ScanSum:
    rows = list(rows)
    per_hour = sum((row.usd_per_hour or Decimal(0) for row in rows), Decimal(0))
    return ScanSum(
        machines=len(rows),
        gpus=sum(row.gpu_count or 0 for row in rows),
        usd_per_hour=per_hour,
        usd_per_day=per_hour * HOURS_A_DAY,
        unpriced=sum(row.billed and row.usd_per_hour is None for row in rows),
    )
