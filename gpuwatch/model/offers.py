"""Machine types as clouds sell them, and what a price is asked for. Texts about money need none of it."""

from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from gpuwatch.model.fleet import CapacityType, Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """A GPU machine type as a cloud sells it in one region: what is in it, and what an hour of it costs.

    No price (None) is not known, never free; `region` is "" where no price of the type is known anywhere.
    """

    provider: str
    region: str
    instance_type: str
    gpu_model: str
    gpu_count: int
    gpu_memory_bytes: int  # of one GPU
    vcpus: int
    memory_bytes: int | None
    capacity_type: CapacityType
    price_per_hour: Decimal | None
    currency: str
    as_of: date
    source: str
    gpu_share: Fraction = Fraction(1)  # less where each GPU is a slice of one

    @property
    def price_per_gpu_hour(self) -> Decimal | None:
        """The machine's price by whole GPU; the rest of the machine is in it."""
        return None if self.price_per_hour is None else self.for_each_gpu(self.price_per_hour)

    def for_each_gpu(self, price: Decimal) -> Decimal:
        """A price of the machine, by whole GPU."""
        share = self.gpu_share
        return price * share.denominator / (share.numerator * self.gpu_count)


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceKey:
    """What a price is asked for: a machine type at a place; of a machine that exists, also its id and its name.

    The type has the GPUs that are attached to it, if any are: `n1-standard-8+4xnvidia-tesla-v100` (`Node.kind`).
    A region of None is the one that new machines are launched in unless somebody says otherwise. `cloud` is the name of
    the cloud in the settings, "" where they name none.
    """

    instance_type: str
    region: str | None = None
    zone: str = ""
    capacity_type: CapacityType = CapacityType.ON_DEMAND
    node_id: str | None = None
    node_name: str | None = None
    cloud: str = ""
    # What machines of one price have in common; spot prices differ by zone, all others by region.
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """The key is made once: rounds ask for it thousands of times."""
        common = _common(self.instance_type, self.region, self.zone, self.capacity_type, self.cloud)
        object.__setattr__(self, "key", common)


@lru_cache(maxsize=4096)
def _common(instance_type: str, region: str | None, zone: str, capacity_type: CapacityType, cloud: str) -> str:
    within = f"/{zone}" if zone and capacity_type is CapacityType.SPOT else ""
    return f"{f'{cloud}:' if cloud else ''}{region}{within}/{instance_type}/{capacity_type}"


def price_name(node: Node) -> str:
    """The `key` of its price key."""
    return _common(node.kind, node.region, node.zone, node.capacity_type, node.cloud)


def price_key(node: Node) -> PriceKey:
    """What a machine's price is asked for."""
    return _price_key(node.kind, node.region, node.zone, node.capacity_type, node.id, node.name, node.cloud)


@lru_cache(maxsize=16_384)  # a round asks for each machine's, and a metering again
def _price_key(
    instance_type: str, region: str, zone: str, capacity_type: CapacityType, node_id: str, name: str, cloud: str
) -> PriceKey:
    return PriceKey(
        instance_type=instance_type,
        region=region,
        zone=zone,
        capacity_type=capacity_type,
        node_id=node_id,
        node_name=name,
        cloud=cloud,
    )


def key_of_node(node_id: str) -> str:
    """The key of a price that is one machine's alone."""
    return f"node/{node_id}"
