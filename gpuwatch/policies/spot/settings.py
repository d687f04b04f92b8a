"""What a pool's offers are: places and ways to get a node, each by a name of the administrator's choice."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, MinLen

from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import CapacityType, Node, NodeState
from gpuwatch.model.measurement import BatchPast
from gpuwatch.model.offers import PriceKey
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.policies.machines import pool_machines
from gpuwatch.policies.sizes import Sizes
from gpuwatch.policies.spot import batch
from gpuwatch.policies.spot.batch import BatchRules
from gpuwatch.policies.spot.deadline import Job
from gpuwatch.policies.spot.mix import MixRules, shares
from gpuwatch.policies.spot.records import CAPACITY, OFFER, SPOT

_TYPES = {
    "spot": CapacityType.SPOT,
    "on_demand": CapacityType.ON_DEMAND,
    "reserved": CapacityType.RESERVED,
}
INTERRUPTIBLE = frozenset({"any", "batch"})  # pools that may have spot
_NODES = 1000  # a pool as large as any: what its shares come to


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRules:
    """One place to get a node from, and how it is paid for."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    capacity: Annotated[
        Literal["spot", "on_demand", "reserved"],
        Setting("How its template pays for the machine; gpuwatch does not change what the template says."),
    ] = "on_demand"
    template: Annotated[
        Annotated[str, MinLen(1)] | None, Setting("The launch template, as in `launch`; every offer names one.")
    ] = None
    instance_type: Annotated[Annotated[str, MinLen(1)] | None, Setting("The machine type; every offer names one.")] = (
        None
    )
    version: Annotated[str, MinLen(1), Setting("The template's version: a number, $Default or $Latest.")] = "$Default"
    cloud: Annotated[Annotated[str, MinLen(1)] | None, Setting("The cloud; may be left out where there is one.")] = None
    region: Annotated[
        Annotated[str, MinLen(1)] | None, Setting("Where to launch. None: the first of cloud.regions.")
    ] = None
    zone: Annotated[
        Annotated[str, MinLen(1)] | None,
        Setting(
            "The zone that its subnet or template launches in: by it its nodes and its price are known. On Google "
            "Cloud machines are launched there."
        ),
    ] = None
    account: Annotated[str | None, Setting("The account to launch in, by its number. None: the first.")] = None
    subnet: Annotated[Annotated[str, MinLen(1)] | None, Setting("The subnet. None: the template's own.")] = None
    gpus: Annotated[
        Annotated[int, Ge(1)] | None,
        Setting(
            "Its GPUs: by them prices are compared. None: one. Where the pool counts GPUs, every offer names them."
        ),
    ] = None

    @property
    def price_key(self) -> PriceKey:
        """What its price is asked for."""
        return PriceKey(
            instance_type=self.instance_type or "",
            region=self.region,
            zone=self.zone or "",
            capacity_type=_TYPES[self.capacity],
            cloud=self.cloud or "",
        )

    def arguments(self, name: str, pool: str) -> dict[str, str]:
        """What a launch from it asks of its cloud; the two that name the offer are for the ledger."""
        known = {
            "pool": pool,
            "template": self.template,
            "version": self.version,
            "cloud": self.cloud,
            "region": self.region,
            "zone": self.zone,
            "account": self.account,
            "instance_type": self.instance_type,
            "subnet": self.subnet,
            OFFER: name,
            CAPACITY: self.capacity,
        }
        return {key: value for key, value in known.items() if value is not None}

    def has(self, node: Node) -> bool:
        """Whether a node may be from here, by what its cloud shows."""
        places = ((self.cloud, node.cloud), (self.region, node.region), (self.zone, node.zone))
        same = all(mine is None or mine == its for mine, its in places)
        return same and node.instance_type == self.instance_type and node.capacity_type is _TYPES[self.capacity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """A pool's offers, by name, in the order of the settings, and how its nodes divide between them."""

    offers: Mapping[str, OfferRules]
    mix: MixRules
    batch: BatchRules | None = None

    def size(self, name: str, sizes: Sizes) -> int:
        """What a machine of an offer counts; of one that the settings no longer have, 0 where GPUs count."""
        if sizes.gpus is None:
            return 1
        return (sizes.kind(self.offers[name].instance_type) or 0) if name in self.offers else 0

    def offers_of(self, *, spot: bool) -> dict[str, OfferRules]:
        """Those of spot, or all others."""
        return {name: each for name, each in self.offers.items() if (each.capacity == SPOT) is spot}

    def mix_now(self, observation: Observation, pool: str, *, spot: int, firm: int) -> MixRules:
        """How its nodes divide now; `spot` nodes and others (`firm`) are there or coming. See `batch` for deadlines."""
        job = None if self.batch is None else self.job(observation, pool, spot=spot, firm=firm)
        return self.mix if job is None else batch.mix_of(self.mix, batch.mode(job))

    def job(self, observation: Observation, pool: str, *, spot: int, firm: int) -> Job | None:
        """The pool's work with a deadline, where nodes are wanted for it now."""
        known = observation.batches.get(pool, BatchPast())
        if self.batch is None or not batch.wants_nodes(self.batch, known, observation.now):
            return None
        nodes = pool_machines(observation, pool).present
        there = [each.launched_at for each in nodes if each.state in {NodeState.PENDING, NodeState.RUNNING}]
        young = len(there) < spot + firm or batch.young(there, self.batch, observation.now)
        return batch.job(self.batch, known, observation.now, spot=spot, firm=firm, young=young)


def contradictions(
    offers: Mapping[str, OfferRules], mix: MixRules, interruptible: str, here: tuple[str, ...]
) -> Iterator[Contradiction]:
    """What no single key's bounds can tell; `here` are the keys of the pool."""
    for name, each in offers.items():
        for key, value in (("template", each.template), ("instance_type", each.instance_type)):
            if value is None:
                yield Contradiction(
                    keys=((*here, "offers", name, key),),
                    wrong=f"the offer {name} has no {key}",
                    right="a launch template" if key == "template" else "the machine type that its template makes",
                )
    of_spot = [name for name, each in offers.items() if each.capacity == SPOT]
    if of_spot and interruptible == "never":
        yield Contradiction(
            keys=((*here, "offers", of_spot[0], "capacity"), (*here, "interruptible")),
            wrong=f"the offer {of_spot[0]} is spot, and the pool's work may never be interrupted",
            right="interruptible: any where the work may be interrupted, or an offer on demand",
        )
    for one, other in combinations(offers, 2):
        if _same(offers[one], offers[other]):
            yield Contradiction(
                keys=((*here, "offers", other, "zone"), (*here, "offers", one, "zone")),
                wrong=f"a node may be of the offer {one} and of {other}: both have the same type, capacity and place",
                right="the zone of each, or another region, cloud or type",
            )
    if offers and len(of_spot) == len(offers) and shares(_NODES, mix)[1]:
        yield Contradiction(
            keys=((*here, "capacity"), (*here, "offers")),
            wrong="a part of the nodes is to run on demand, and no offer has capacity: on_demand",
            right="an offer with capacity: on_demand, or capacity with on_demand_base: 0 and spot_share: 1",
        )
    if mix.over_provision:
        yield Contradiction(
            keys=((*here, "capacity", "over_provision"),),
            wrong="over_provision is played by `gpuwatch recommend spot`, and launches do not follow it yet",
            right="over_provision: 0",
        )


def _same(one: OfferRules, other: OfferRules) -> bool:
    """Whether a node could be from both."""
    if (one.instance_type, one.capacity) != (other.instance_type, other.capacity):
        return False
    places = ((one.cloud, other.cloud), (one.region, other.region), (one.zone, other.zone))
    return not any(a is not None and b is not None and a != b for a, b in places)
