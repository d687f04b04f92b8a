"""Pools with offers: two zones of spot and one way on demand."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal

from gpuwatch.model.fleet import CapacityType, Node
from gpuwatch.model.measurement import OfferPast
from gpuwatch.model.money import Price
from gpuwatch.policies.spot.settings import OfferRules
from tests.support.builders.fleet import NOW, a_node

SPOT_A = OfferRules(capacity="spot", template="lt-s", instance_type="g6.xlarge", zone="us-east-1a", subnet="subnet-a")
SPOT_B = OfferRules(capacity="spot", template="lt-s", instance_type="g6.xlarge", zone="us-east-1b", subnet="subnet-b")
SURE = OfferRules(capacity="on_demand", template="lt-d", instance_type="g6.xlarge", zone="us-east-1a")
OFFERS = {"spot-a": SPOT_A, "spot-b": SPOT_B, "sure": SURE}


def a_node_of(offer: OfferRules, node_id: str, *, pool: str = "default", tags: Mapping[str, str] | None = None) -> Node:
    """A node as a launch from the offer makes it."""
    kind = CapacityType.SPOT if offer.capacity == "spot" else CapacityType.ON_DEMAND
    zone = offer.zone or "us-east-1a"
    return a_node(
        node_id,
        instance_type=offer.instance_type or "",
        zone=zone,
        capacity_type=kind,
        pool=pool,
        tags=dict(tags or {}),
    )


def refused(times: int = 1, *, minutes: float = 1.0) -> OfferPast:
    """An offer that had none so many times, and last so many minutes ago."""
    return OfferPast(refusals=times, refused_at=NOW - timedelta(minutes=minutes))


def prices(**usd: str) -> dict[str, Price]:
    """The prices of the offers, by their names with _ for -."""
    return {
        OFFERS[name.replace("_", "-")].price_key.key: Price(
            usd_per_hour=Decimal(each), as_of=NOW.date(), source="a test"
        )
        for name, each in usd.items()
    }
