"""Offers as they are written: what a launch asks for, which nodes are theirs, and what is wrong together."""

from dataclasses import replace

import pytest

from gpuwatch.model.fleet import CapacityType
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.policies.spot.settings import OfferRules, contradictions
from tests.support.builders.offers import OFFERS, SPOT_A, SPOT_B, SURE, a_node_of

POOL = ("pools", "training")


def wrong(offers: dict[str, OfferRules], mix: MixRules | None = None, interruptible: str = "any") -> list[str]:
    """The keys that are named first."""
    return [".".join(each.keys[0][2:]) for each in contradictions(offers, mix or MixRules(), interruptible, POOL)]


def test_a_launch_names_its_offer_and_only_what_was_written() -> None:
    """The cloud is asked for the template in its place; the ledger keeps the offer's name."""
    assert SPOT_A.arguments("spot-a", "training") == {
        "pool": "training",
        "template": "lt-s",
        "version": "$Default",
        "instance_type": "g6.xlarge",
        "zone": SPOT_A.zone,
        "subnet": "subnet-a",
        "offer": "spot-a",
        "capacity": "spot",
    }


def test_a_node_is_of_the_offer_that_it_may_be_from() -> None:
    """By type, capacity and place; what an offer does not say does not matter."""
    node = a_node_of(SPOT_A, "i-1")

    assert SPOT_A.has(node)
    assert replace(SPOT_A, zone=None).has(node)
    assert not SPOT_B.has(node)
    assert not SPOT_A.has(replace(node, capacity_type=CapacityType.ON_DEMAND))
    assert not SPOT_A.has(replace(node, instance_type="g6.2xlarge"))
    assert not replace(SPOT_A, cloud="bj").has(node)


@pytest.mark.parametrize(
    ("offers", "mix", "interruptible", "key"),
    [
        (OFFERS, None, "never", "offers.spot-a.capacity"),
        ({"one": SPOT_A, "two": replace(SPOT_A, subnet="subnet-c")}, None, "any", "offers.two.zone"),
        ({"one": SPOT_A, "two": replace(SPOT_B, zone=None)}, None, "any", "offers.two.zone"),
        ({"one": SPOT_A}, MixRules(on_demand_base=1), "any", "capacity"),
        ({"sure": replace(SURE, template=None)}, None, "never", "offers.sure.template"),
        ({"sure": replace(SURE, instance_type=None)}, None, "never", "offers.sure.instance_type"),
        (OFFERS, MixRules(over_provision=1), "any", "capacity.over_provision"),
    ],
    ids=[
        "never interrupted",
        "one place",
        "perhaps one place",
        "no offer on demand",
        "no template",
        "no type",
        "a spare",
    ],
)
def test_what_is_wrong_together_is_named(
    offers: dict[str, OfferRules], mix: MixRules | None, interruptible: str, key: str
) -> None:
    """Each by the likeliest culprit."""
    assert wrong(offers, mix, interruptible) == [key]


def test_sound_offers_have_no_mistake() -> None:
    """Spot with on demand, on demand alone, and none at all."""
    assert wrong(OFFERS) == []
    assert wrong({"sure": SURE}, interruptible="never") == []
    assert wrong({}, interruptible="never") == []
