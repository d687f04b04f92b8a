"""Every cloud gives what a pool's offers ask of it, and shows what it gave: capacity, place, refusals, prices.

The rest of the contract of `test_clouds.py`; the arguments are those that a round makes of the settings.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from gpuwatch.clouds import (
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotFoundError,
    QuotaExceededError,
)
from gpuwatch.controller.context import LiveParts
from gpuwatch.controller.round import Round, step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import CapacityType, Fleet, Node, NodeState
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.model.money import Price
from gpuwatch.model.offers import PriceKey
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.policies.spot.settings import OfferRules
from tests.support.builders.fleet import RULES
from tests.support.fakes.cloud_worlds import WORLDS, World, a_world, seen


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Each cloud in turn."""
    with a_world(request.param) as world:
        yield world


def offers(world: World) -> dict[str, OfferRules]:
    """A spot offer and one on demand, as settings of a pool have them."""
    words = world.words
    spot = OfferRules(
        capacity="spot",
        template=words.spot_template,
        instance_type=words.machine_type,
        region=words.region,
        zone=words.zone,
    )
    return {"spot": spot, "sure": replace(spot, capacity="on_demand", template=words.template)}


class Deaf:
    """Agents that do not answer yet: nobody asks about machines that come up."""

    def observe(self, nodes: list[Node]) -> Fleet:
        """As the cloud shows them."""
        return Fleet(observed_at=self.now(), nodes=tuple(nodes))

    def measure(self, fleet: Fleet, queries: list[MetricQuery]) -> tuple[MetricValue, ...]:
        """Nothing is asked."""
        del fleet, queries
        return ()

    def __init__(self, world: World) -> None:
        """On the world's clock."""
        self.now = world.clock.now


def a_round(world: World, ledger: Ledger, nodes: int = 1, **more: Any) -> Round:  # noqa: ANN401  settings of a pool, prices
    """One round of a controller whose pool wants so many nodes."""
    prices = more.pop("prices", lambda _hire, _now: None)
    pool = replace(RULES, offers=offers(world), interruptible="any", schedule={"always": Window(min_nodes=nodes)})
    rules = Rulebook(pools={"train": replace(pool, **more)}, limits=Limits(), enforce=True)
    parts = LiveParts(
        clock=world.clock,
        cloud=world.cloud,
        signals=Deaf(world),  # type: ignore[arg-type]
        ledger=ledger,
        rules=rules,
        prices=prices,
    )
    return step(parts)


def proved_gone(world: World, node_id: str) -> bool:
    """Whether its cloud says so of a machine that has ended, and not that it knows no such machine."""
    try:
        return seen(world, node_id).state is NodeState.TERMINATED
    except NotFoundError:
        return False


@pytest.mark.parametrize(("name", "kind"), [("spot", CapacityType.SPOT), ("sure", CapacityType.ON_DEMAND)])
def test_what_an_offer_asks_for_is_what_the_cloud_shows(world: World, name: str, kind: CapacityType) -> None:
    """Capacity, type and place are read back, so that the node is known as that offer's and as no other's."""
    known = offers(world)
    node_id = world.cloud.launch(known[name].arguments(name, "train"), "key-1")

    node = seen(world, node_id)
    assert node.capacity_type is kind
    assert [each for each, rules in known.items() if rules.has(node)] == [name]
    world.settle(node_id)
    assert [each.capacity_type for each in world.cloud.nodes()] == [kind]


def test_what_is_reserved_comes_before_on_demand(world: World) -> None:
    """It is shown as reserved, and known as that offer's: a stop would end nothing that it costs."""
    if world.words.reserved_template is None:
        pytest.skip("its templates name no reservation")
    sure = offers(world)["sure"]
    known = {"sure": sure, "held": replace(sure, capacity="reserved", template=world.words.reserved_template)}

    done = a_round(world, Ledger.in_memory(), offers=known)

    assert [act.review.step.arguments["offer"] for act in done.acts] == ["held"]
    (node,) = world.cloud.nodes()
    assert node.capacity_type is CapacityType.RESERVED
    assert [name for name, each in known.items() if each.has(node)] == ["held"]


@pytest.mark.parametrize(
    ("spot_usd", "kind"), [("0.79", CapacityType.SPOT), ("0.81", CapacityType.ON_DEMAND), (None, CapacityType.SPOT)]
)
def test_spot_that_is_too_dear_is_not_asked_for(world: World, spot_usd: str | None, kind: CapacityType) -> None:
    """By `max_price_ratio` of what on demand costs, and by the price that is asked for the offer's place and type."""
    known = offers(world)
    usd = {known["spot"].price_key: spot_usd, known["sure"].price_key: "1.0"}

    def price(key: PriceKey, now: datetime) -> Price | None:
        found = usd.get(key)
        return None if found is None else Price(usd_per_hour=Decimal(found), as_of=now.date(), source="a test")

    a_round(world, Ledger.in_memory(), capacity=MixRules(max_price_ratio=0.8), prices=price)

    assert [node.capacity_type for node in world.cloud.nodes()] == [kind]


def test_a_key_is_one_machine_of_its_offer(world: World) -> None:
    """Asked again with all that names the offer, it is the same machine."""
    arguments = offers(world)["spot"].arguments("spot", "train")
    world.lose_response("launch")
    with pytest.raises(CloudUnavailableError):
        world.cloud.launch(arguments, "key-1")

    node_id = world.cloud.launch(arguments, "key-1")

    assert [node.id for node in world.cloud.nodes()] == [node_id]


@pytest.mark.parametrize("kind", [InsufficientCapacityError, QuotaExceededError])
def test_what_one_offer_refuses_comes_from_the_next_in_the_same_round(world: World, kind: type[CloudError]) -> None:
    """No stock and no quota, each in the cloud's own words; the ledger has both tries."""
    ledger = Ledger.in_memory()
    world.refuse("launch", kind)
    done = a_round(world, ledger)

    tried = [(act.review.step.arguments["offer"], act.outcome.status) for act in done.acts]
    assert tried == [("spot", Status.FAILED), ("sure", Status.ACCEPTED)]
    (node,) = world.cloud.nodes()
    assert node.capacity_type is CapacityType.ON_DEMAND
    world.settle(node.id)
    known = a_round(world, ledger).observation.offers["train"].offers
    assert known["spot"].refusals == 1
    assert known["sure"].refusals == 0


def test_a_spot_node_that_ends_is_a_loss_of_its_offer(world: World) -> None:
    """Whoever ended it; it is replaced at once where the cloud says so, else once no list can be late any more."""
    ledger = Ledger.in_memory()
    a_round(world, ledger)
    (node,) = world.cloud.nodes()
    world.settle(node.id)
    a_round(world, ledger)
    world.terminate(node.id)
    world.settle(node.id)
    done = a_round(world, ledger)
    for _ in range(0 if proved_gone(world, node.id) else 2):
        assert done.acts == ()
        world.clock.advance(600)
        done = a_round(world, ledger)

    assert done.observation.offers["train"].offers["spot"].losses == 1
    assert [act.review.step.verb for act in done.acts] == [Verb.LAUNCH]


def test_what_was_accepted_and_never_made_comes_from_the_next_offer(world: World) -> None:
    """Clouds look for a place after they have accepted a machine; one without a place is no node, and no capacity."""
    ledger = Ledger.in_memory()
    (first,) = a_round(world, ledger).acts
    assert (first.review.step.arguments["offer"], first.outcome.status) == ("spot", Status.ACCEPTED)
    (node,) = world.cloud.nodes()
    world.never_made(node.id)
    asked = []
    for _ in range(3):
        world.settle(node.id)
        done = a_round(world, ledger)
        asked += [act.review.step.arguments["offer"] for act in done.acts]

    assert asked == ["sure"]
    assert [each.capacity_type for each in world.cloud.nodes()] == [CapacityType.ON_DEMAND]
    known = done.observation.offers["train"].offers["spot"]
    assert (known.refusals, known.losses) == (1, 1)
