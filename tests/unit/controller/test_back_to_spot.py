"""A pool comes back to spot: spot is launched first, and a node on demand goes once it works and may go."""

from dataclasses import replace

import pytest

from gpuwatch.controller.round import Round
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import RULES, Desk
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

POOL = replace(RULES, offers=OFFERS, interruptible="any", max_nodes=2, schedule={"always": Window(min_nodes=2)})
CONSENT = {INTERRUPTIBLE_TAG: "true"}


def a_desk(rules: PoolRules = POOL, *, tags: dict[str, str] | None = None) -> tuple[Desk, SpotMarket]:
    """Two nodes were bought on demand half an hour ago, as no zone had spot; now the zones have spot again."""
    limits = Limits(max_stops_per_hour_ratio=1.0)
    desk = Desk(limits=limits, rules=rules)
    market = SpotMarket(clock=desk.clock, tags=CONSENT if tags is None else tags)
    desk.fleet = market
    desk.pools = {"default": rules}
    market.room = {"spot-a": 0, "spot-b": 0}
    for _ in range(10):
        desk.round()
    assert kinds(market) == ["sure", "sure"]
    market.room = {}
    return desk, market


def kinds(market: SpotMarket) -> list[str]:
    """The offers of the machines that run."""
    return sorted(market.offer_of[node_id] for node_id in market.alive())


def rounds(desk: Desk, market: SpotMarket, count: int) -> list[list[str]]:
    """What runs after each of so many rounds."""
    found = []
    for _ in range(count):
        desk.round()
        found.append(kinds(market))
    return found


def steps(done: Round, verb: Verb) -> list[str]:
    """The sentences of a round's steps of a verb."""
    return [step.reason.sentence for each in done.decisions for step in each.steps if step.verb is verb]


def idle(market: SpotMarket, name: str = "sure") -> str:
    """One machine of an offer becomes idle."""
    node_id = next(each for each in market.alive() if market.offer_of[each] == name)
    market.show(node_id, State.IDLE)
    return node_id


def test_on_demand_nodes_whose_people_consent_give_their_places_to_spot() -> None:
    """At no time there are fewer nodes than wanted, nor more than the maximum and the surge."""
    desk, market = a_desk()
    seen = rounds(desk, market, 60)

    assert seen[-1] == ["spot-a", "spot-b"]
    assert all(2 <= len(each) <= 4 for each in seen)
    assert market.stopped_while == [State.BUSY, State.BUSY]


def test_a_machine_without_consent_stays_while_it_works() -> None:
    """Neither is spot launched for it: it would be paid for in vain."""
    desk, market = a_desk(tags={})
    assert rounds(desk, market, 60)[-1] == ["sure", "sure"]
    assert market.stopped_while == []


def test_a_pool_whose_work_is_not_interruptible_touches_nothing() -> None:
    """Whatever the tags say; its offers were others when it bought on demand."""
    desk, market = a_desk()
    desk.pools = {"default": replace(POOL, interruptible="never")}
    assert rounds(desk, market, 60)[-1] == ["sure", "sure"]


def test_a_tag_that_is_taken_away_withdraws_the_notice() -> None:
    """The owner has the last word until the end."""
    rules = replace(POOL, capacity=MixRules(give_back_notice=1800.0))
    desk, market = a_desk(rules)
    rounds(desk, market, 30)
    assert len(desk.parts.past(desk.clock.now()).notices) == 2
    for node_id in market.alive("sure"):
        market.put(replace(market.nodes_[node_id], tags={}))
    rounds(desk, market, 60)

    assert desk.parts.past(desk.clock.now()).notices == ()
    assert market.stopped_while == []


def test_an_idle_node_goes_by_its_own_notice_once_spot_works() -> None:
    """No consent is needed to remove what is idle; the one that works stays."""
    desk, market = a_desk(tags={})
    idle(market)
    seen = rounds(desk, market, 90)

    assert ["spot-a", "sure", "sure"] in seen
    assert seen[-1] == ["spot-a", "sure"]
    assert market.stopped_while == [State.IDLE]


def test_spot_that_is_lost_again_withdraws_the_notice() -> None:
    """The node on demand is needed."""
    desk, market = a_desk(replace(POOL, capacity=MixRules(give_back_notice=3600.0)))
    rounds(desk, market, 40)
    market.room = {"spot-a": 0, "spot-b": 0}
    for name in ("spot-a", "spot-b"):
        market.take(name)
    rounds(desk, market, 20)

    assert desk.parts.past(desk.clock.now()).notices == ()
    assert kinds(market) == ["sure", "sure"]


@pytest.mark.parametrize(
    "mix",
    [MixRules(surge=0), MixRules(back_to_spot_after=7200.0), MixRules(on_demand_base=2)],
    ids=["no surge", "too young", "wanted on demand"],
)
def test_nothing_is_launched_for_a_node_that_stays(mix: MixRules) -> None:
    """By the settings."""
    desk, market = a_desk(replace(POOL, capacity=mix))
    assert rounds(desk, market, 40)[-1] == ["sure", "sure"]


def test_no_stock_is_asked_for_less_and_less_often_and_never_on_demand() -> None:
    """A refused try for the way back does not buy another node on demand."""
    desk, market = a_desk()
    market.room = {"spot-a": 0, "spot-b": 0}
    market.calls.clear()
    rounds(desk, market, 120)

    asked = [name for call, name, _ in market.calls if call == "launch"]
    assert set(asked) == {"spot-a", "spot-b"}
    assert len(asked) <= 16


def test_a_stopped_node_is_not_started_where_spot_is_to_be_had() -> None:
    """What was given back stays stopped until no spot offer has a node."""
    desk, market = a_desk()
    rounds(desk, market, 60)
    market.take("spot-a")
    rounds(desk, market, 15)
    assert kinds(market) == ["spot-b", "spot-b"]

    market.room = {"spot-a": 0, "spot-b": 0}
    market.take("spot-b")
    rounds(desk, market, 15)
    assert kinds(market) == ["spot-b", "sure"]
    assert market.made["sure"] == 2


def test_the_reasons_say_what_comes_first() -> None:
    """In the plan and in the ledger."""
    desk, market = a_desk()
    said: dict[Verb, set[str]] = {Verb.LAUNCH: set(), Verb.NOTICE: set(), Verb.STOP: set()}
    for _ in range(40):
        done = desk.round()
        for verb, found in said.items():
            found.update(steps(done, verb))

    assert said[Verb.LAUNCH] == {
        "2 nodes on demand stand in for spot: spot is asked for first, and they go once it works."
    }
    assert said[Verb.NOTICE] == {"Spot works in its place, and its people consent to an interruption."}
    assert all(each.startswith("Spot works in its place. The notice of") for each in said[Verb.STOP])
    assert all(node.state is not NodeState.TERMINATED for node in market.nodes_.values())
