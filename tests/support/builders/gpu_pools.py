"""Pools that count GPUs: offers of machines with eight, four and one of them."""

from collections import Counter
from dataclasses import replace

from gpuwatch import policies
from gpuwatch.model.decision import Decision, Observation, Verb
from gpuwatch.model.fleet import CapacityType, Node, NodeGroup
from gpuwatch.policies import PoolRules
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.settings import OfferRules
from tests.support.builders.fleet import RULES, a_node

GPUS = {"p4d.24xlarge": 8, "g4dn.12xlarge": 4, "g6.xlarge": 1}
TYPES = {gpus: kind for kind, gpus in GPUS.items()}


def an_offer(size: int, capacity: str = "on_demand", **other: object) -> OfferRules:
    """An offer of a machine with so many GPUs, which says so."""
    base = OfferRules(capacity=capacity, template="lt", instance_type=TYPES[size], gpus=size, zone="us-east-1a")  # type: ignore[arg-type]
    return replace(base, **other)  # type: ignore[arg-type]


FIRM = {"eight": an_offer(8), "four": an_offer(4), "one": an_offer(1)}
SPOT = {f"spot-{name}": replace(each, capacity="spot") for name, each in FIRM.items()}
MIXED = {**SPOT, **FIRM}


def gpu_rules(floor: int | None = None, offers: dict[str, OfferRules] | None = None, **other: object) -> PoolRules:
    """A pool that counts GPUs, with a floor that adds them."""
    schedule = {} if floor is None else {"always": Window(min_gpus=floor)}
    here = FIRM if offers is None else offers
    return replace(RULES, unit="gpus", offers=here, interruptible="any", schedule=schedule, **other)  # type: ignore[arg-type]


def of_gpus(gpus: int, node_id: str, *, spot: bool = False, **other: object) -> Node:
    """A running node with so many GPUs."""
    paid = CapacityType.SPOT if spot else CapacityType.ON_DEMAND
    return a_node(node_id, instance_type=TYPES[gpus], gpu_count=gpus, capacity_type=paid, **other)  # type: ignore[arg-type]


def a_gpu_group(gpus: int, **other: object) -> NodeGroup:
    """A consented group of such machines, empty and with room for nine."""
    base = NodeGroup(
        id="g-1", name="trainers", pool="default", min_size=0, max_size=9, desired=0, region="us-east-1", enrolled=True,
        instance_type=TYPES[gpus],
    )  # fmt: skip
    return replace(base, **other)  # type: ignore[arg-type]


def decided(observation: Observation, rules: PoolRules) -> Decision:
    """What becomes of the pool."""
    return policies.resolve(observation, "default", policies.propose(observation, "default", rules), rules)


def launched(decision: Decision) -> dict[str, int]:
    """How many launches of each offer it has."""
    return dict(Counter(step.arguments["offer"] for step in decision.steps if step.verb is Verb.LAUNCH))
