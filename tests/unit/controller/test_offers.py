"""A pool with offers: what is refused in one place comes from the next in the same round."""

from dataclasses import replace

from gpuwatch.controller.round import decide
from gpuwatch.guard import Limits
from gpuwatch.model.decision import Status
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.market import POOL, a_market
from tests.support.builders.offers import OFFERS


def test_missing_nodes_come_from_the_best_offers() -> None:
    """One from each zone; then nothing more is asked for."""
    desk = a_market()
    desk.round()
    assert desk.asked() == ["spot-a", "spot-b"]
    desk.round()
    desk.round()
    assert desk.asked() == []
    assert len(desk.fleet.alive()) == 2


def test_a_refused_offer_is_left_for_the_next_in_the_same_round() -> None:
    """Both nodes come in that round, and the ledger has each try with its offer."""
    desk = a_market(spot_a=0)
    done = desk.round()

    assert desk.asked() == ["spot-a", "spot-b", "spot-b"]
    assert [(act.review.step.arguments["offer"], act.outcome.status) for act in done.acts] == [
        ("spot-a", Status.FAILED),
        ("spot-b", Status.ACCEPTED),
        ("spot-b", Status.ACCEPTED),
    ]
    assert "The offer spot-a was refused in this round." in done.acts[1].review.step.reason.sentence


def test_on_demand_takes_the_place_of_spot_that_is_not_to_be_had() -> None:
    """In the same round; an offer is asked once in it, for however many nodes."""
    desk = a_market(spot_a=0, spot_b=0)
    desk.round()

    assert desk.asked() == ["spot-a", "spot-b", "sure", "sure"]
    assert len(desk.fleet.alive("sure")) == 2


def test_a_quota_is_a_refusal_of_its_offer() -> None:
    """Another account, region or capacity may have room."""
    desk = a_market()
    desk.fleet.quota = {"spot-a", "spot-b"}
    desk.round()

    assert len(desk.fleet.alive("sure")) == 2


def test_with_a_wait_nothing_is_bought_on_demand_before_it_is_over() -> None:
    """The decision says so."""
    mix = MixRules(fallback_after=600.0)
    desk = a_market(replace(POOL, capacity=mix), spot_a=0, spot_b=0)
    desk.round()
    second = desk.round()

    assert desk.fleet.alive() == []
    assert any("no offer may be asked now" in clamp for each in second.decisions for clamp in each.clamps)
    for _ in range(10):
        desk.round()
    assert len(desk.fleet.alive("sure")) == 2


def test_refused_offers_rest_also_after_a_restart() -> None:
    """All that is known of them is in the ledger."""
    desk = a_market(replace(POOL, offers={"spot-a": OFFERS["spot-a"]}), spot_a=0)
    desk.round()
    assert desk.asked() == ["spot-a"]
    desk.memory = type(desk.memory)()
    desk.round()
    desk.round()
    assert desk.asked() == []
    desk.round()
    desk.round()
    assert desk.asked() == ["spot-a"]


def test_a_recorded_round_is_judged_again_with_the_offers_as_they_were() -> None:
    """What was known of them is stored with the round."""
    desk = a_market(spot_a=0)
    desk.round()
    second = desk.round()
    past = desk.ledger.round_at(desk.clock.now())

    assert past.observation.offers == second.observation.offers
    assert past.observation.offers["default"].offers["spot-a"].refusals == 1
    assert past.rulebook is not None
    assert past.rulebook.pool("default").sources == POOL.sources
    assert decide(past.observation, past.rulebook)[1] == second.decisions


def test_the_next_offer_obeys_the_guard() -> None:
    """Where no more may be added, the refusal is the end of it."""
    desk = a_market(limits=Limits(max_additions_per_hour=0))
    desk.round()
    assert desk.asked() == []

    desk = a_market(replace(POOL, max_nodes=1), spot_a=0)
    desk.round()
    assert len(desk.fleet.alive()) == 1


def test_a_pool_without_offers_launches_as_before() -> None:
    """Its template is its only place; the round asks nothing else of the ledger."""
    desk = a_market(replace(POOL, offers={}))
    done = desk.round()

    assert done.observation.offers == {}
    assert desk.asked() == []


def test_what_a_cloud_takes_back_without_a_word_is_replaced_once_and_elsewhere() -> None:
    """A list may be late for ten minutes after a launch; the offer that took it back comes later from then on."""
    desk = a_market()
    for _ in range(15):
        desk.round()
    desk.asked()
    desk.fleet.take("spot-a")
    for _ in range(15):
        desk.round()

    assert desk.asked() == ["spot-b"]
    assert len(desk.fleet.alive("spot-b")) == 2
