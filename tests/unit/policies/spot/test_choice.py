"""Which offers missing nodes are asked from: spot while it is to be had, on demand in its place, none that rests."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import Node
from gpuwatch.model.measurement import OfferPast, OffersPast
from gpuwatch.model.money import Price
from gpuwatch.policies import capacity
from gpuwatch.policies.sizes import Need
from gpuwatch.policies.spot.batch import BatchRules
from gpuwatch.policies.spot.choice import choose_offers, resting_seconds
from gpuwatch.policies.spot.mix import MixRules
from gpuwatch.policies.spot.settings import OfferRules, Offers
from tests.support.builders.fleet import NOW
from tests.support.builders.offers import OFFERS, SPOT_A, SPOT_B, SURE, a_node_of, prices, refused
from tests.support.builders.pending_capacity import an_intent, seen


def asked(
    missing: int = 1,
    *nodes: Node,
    past: dict[str, OfferPast] | None = None,
    mix: MixRules | None = None,
    offers: dict[str, OfferRules] | None = None,
    usd: dict[str, Price] | None = None,
    coming: tuple[str, ...] = (),
    minutes_refused: float | None = None,
) -> list[str]:
    """The offers of so many missing nodes."""
    since = None if minutes_refused is None else NOW - timedelta(minutes=minutes_refused)
    known = {"default": OffersPast(offers=past or {}, spot_refused_since=since)}
    observation = replace(seen(*nodes), offers=known, prices=usd or {})
    here = Offers(offers=offers or OFFERS, mix=mix or MixRules())
    wanted = len(nodes) + len(coming) + missing
    return choose_offers(observation, "default", here, Need(wanted=wanted, missing=missing, coming=coming))


def test_missing_nodes_are_spread_over_offers_of_one_price() -> None:
    """What comes counts in its offer, and so does what was chosen a moment ago."""
    assert asked(4) == ["spot-a", "spot-b", "spot-a", "spot-b"]
    assert asked(1, a_node_of(SPOT_A, "i-1")) == ["spot-b"]
    assert asked(1, coming=("spot-a",)) == ["spot-b"]


def test_a_cheaper_offer_comes_first_by_the_gpu() -> None:
    """A machine with two GPUs at a price and a half is cheaper."""
    usd = prices(spot_a="1.0", spot_b="1.5", sure="9.0")

    assert asked(2, usd=usd) == ["spot-a", "spot-a"]
    assert asked(2, usd=usd, offers={**OFFERS, "spot-b": replace(SPOT_B, gpus=2)}) == ["spot-b", "spot-b"]


def test_one_unknown_price_leaves_prices_out() -> None:
    """Nothing is guessed: an offer is not preferred because its price is unknown, nor avoided."""
    assert asked(2, usd=prices(spot_b="0.1", sure="9.0")) == ["spot-a", "spot-b"]
    stand_in = {key: replace(price, exact=False) for key, price in prices(spot_b="0.1").items()}
    assert asked(2, usd=prices(spot_a="1.0", sure="9.0") | stand_in) == ["spot-a", "spot-b"]


def test_what_is_known_to_be_too_dear_is_not_bought_because_another_price_is_unknown() -> None:
    """`max_price_ratio` is about each offer by itself."""
    assert asked(2, usd=prices(spot_a="0.95", sure="1.0")) == ["spot-b", "spot-b"]
    assert asked(2, usd=prices(spot_a="0.95", spot_b="0.5")) == ["spot-b", "spot-b"]
    assert asked(1, usd=prices(spot_a="0.95", sure="1.0"), offers={"spot-a": SPOT_A, "sure": SURE}) == ["sure"]


def test_on_demand_takes_the_place_of_spot_that_rests_or_costs_too_much() -> None:
    """At once, unless the rules say after how long."""
    none = {"spot-a": refused(), "spot-b": refused()}

    assert asked(2, past=none, minutes_refused=1.0) == ["sure", "sure"]
    assert asked(2, past={"spot-a": refused()}, minutes_refused=1.0) == ["spot-b", "spot-b"]
    assert asked(1, usd=prices(spot_a="0.95", spot_b="0.95", sure="1.0")) == ["sure"]


def test_on_demand_waits_for_fallback_after() -> None:
    """From the first refusal since any spot node came; where spot was never asked it does not wait."""
    none, mix = {"spot-a": refused(), "spot-b": refused()}, MixRules(fallback_after=600.0)

    assert asked(1, past=none, mix=mix, minutes_refused=9.0) == []
    assert asked(1, past=none, mix=mix, minutes_refused=10.0) == ["sure"]
    assert asked(1, mix=mix, usd=prices(spot_a="0.95", spot_b="0.95", sure="1.0")) == ["sure"]
    assert asked(1, mix=mix, offers={"sure": SURE}) == ["sure"]


@pytest.mark.parametrize(("times", "minutes", "own", "rests"), [
    (1, 2.9, 0, True),
    (1, 3.1, 0, False),
    (3, 7.9, 0, True),
    (3, 8.1, 0, False),
    (6, 39.0, 0, True),
    (6, 41.0, 0, False),
    (6, 239.0, 1, True),
    (6, 241.0, 1, False),
])  # fmt: skip
def test_a_refused_offer_rests_for_a_growing_time(times: int, minutes: float, own: int, *, rests: bool) -> None:
    """Three minutes at least, forty at most; four hours where it holds nodes of the pool."""
    nodes = [a_node_of(SPOT_A, f"i-{number}") for number in range(own)]
    found = asked(1, *nodes, past={"spot-a": refused(times, minutes=minutes)}, offers={"spot-a": SPOT_A})

    assert found == ([] if rests else ["spot-a"])


def test_work_with_a_deadline_asks_sooner_for_what_it_waits_for() -> None:
    """By the length of the outage, and not by the refusals before it; an offer that holds nodes rests as elsewhere."""
    known = OfferPast(refusals=6, refused_at=NOW - timedelta(minutes=5), refused_since=NOW - timedelta(minutes=25))
    work = BatchRules(work=3600.0, since=NOW.isoformat(), by=(NOW + timedelta(hours=9)).isoformat())
    observation = replace(seen(), offers={"default": OffersPast(offers={"spot-a": known})})
    need = Need(wanted=1, missing=1)

    assert choose_offers(
        observation, "default", Offers(offers={"spot-a": SPOT_A}, mix=MixRules(), batch=work), need
    ) == ["spot-a"]
    assert choose_offers(observation, "default", Offers(offers={"spot-a": SPOT_A}, mix=MixRules()), need) == []
    assert resting_seconds(observation, known, own=1, waited_for=True) == 4 * 3600.0 - 300.0


@pytest.mark.parametrize(
    ("minutes", "hours_left", "expected"),
    [(2.0, 1.2, ["sure"]), (5.0, 1.2, ["spot-a"]), (5.0, 9.0, [])],
    ids=["just refused", "once more", "has time"],
)
def test_before_work_with_a_deadline_orders_on_demand_it_asks_spot_once_more(
    minutes: float, hours_left: float, expected: list[str]
) -> None:
    """Even where spot rests, but for the three minutes after a refusal; who may wait goes on waiting."""
    at = NOW - timedelta(minutes=minutes)
    known = OfferPast(refusals=6, refused_at=at, refused_since=at - timedelta(hours=5))
    ends = NOW + timedelta(hours=hours_left)
    work = BatchRules(work=1800.0, since=(NOW - timedelta(hours=2)).isoformat(), by=ends.isoformat())
    observation = replace(seen(), offers={"default": OffersPast(offers={"spot-a": known})})
    offers = Offers(offers={"spot-a": SPOT_A, "sure": SURE}, mix=MixRules(), batch=work)

    assert choose_offers(observation, "default", offers, Need(wanted=1, missing=1)) == expected


@given(
    seconds=st.tuples(st.floats(0, 4000), st.floats(0, 4000)),
    outage=st.floats(0, 90_000),
    refusals=st.integers(1, 6),
    hours_left=st.floats(0.1, 12),
    missing=st.integers(1, 4),
)
def test_no_work_is_so_late_that_a_refused_offer_is_asked_within_three_minutes(
    seconds: tuple[float, float], outage: float, refusals: int, hours_left: float, missing: int
) -> None:
    """So one offer is tried twenty times an hour at most, and never more nodes are asked for than are missing."""
    names = ("spot-a", "spot-b")
    since = dict(zip(names, seconds, strict=True))
    past = {
        name: OfferPast(refusals=refusals, refused_at=at, refused_since=at - timedelta(seconds=outage))
        for name, at in ((name, NOW - timedelta(seconds=each)) for name, each in since.items())
    }
    ends = NOW + timedelta(hours=hours_left)
    work = BatchRules(work=9000.0, since=(NOW - timedelta(hours=9)).isoformat(), by=ends.isoformat(), nodes=missing)
    observation = replace(seen(), offers={"default": OffersPast(offers=past)})
    found = choose_offers(
        observation,
        "default",
        Offers(offers=OFFERS, mix=MixRules(), batch=work),
        Need(wanted=missing, missing=missing),
    )

    assert len(found) <= missing
    assert all(since[name] >= 180 for name in found if name in since)


def test_the_base_is_on_demand_and_reserved_capacity_comes_first() -> None:
    """Which is paid for already; one that is refused is left for the next."""
    offers = {**OFFERS, "paid": replace(SURE, capacity="reserved")}
    mix = MixRules(on_demand_base=2)

    assert asked(3, mix=mix, offers=offers) == ["spot-a", "paid", "paid"]
    assert asked(3, mix=mix, offers=offers, past={"paid": refused()}) == ["spot-a", "sure", "sure"]
    assert asked(1, a_node_of(SURE, "i-1"), a_node_of(SURE, "i-2"), mix=mix) == ["spot-a"]


def test_a_throttled_launch_is_asked_again_unless_its_offer_rests_since() -> None:
    """Its place is then another offer's."""
    arguments = SPOT_A.arguments("spot-a", "default")
    throttled = an_intent(Verb.LAUNCH, "new:default:1", Status.THROTTLED, arguments)
    sources = Offers(offers=OFFERS, mix=MixRules())
    observation = seen(open_intents=(throttled,))
    rests = {"default": OffersPast(offers={"spot-a": refused()})}

    (again,) = capacity.additions(observation, "default", 1, sources)
    (other,) = capacity.additions(replace(observation, offers=rests), "default", 1, sources)
    assert (again.node_id, again.arguments["offer"]) == ("new:default:1", "spot-a")
    assert (other.node_id, other.arguments["offer"]) == ("new:default:2", "spot-b")


NODES = st.lists(st.sampled_from([SPOT_A, SPOT_B, SURE]), max_size=6).map(
    lambda offers: [a_node_of(offer, f"i-{number}") for number, offer in enumerate(offers)]
)
PAST = st.dictionaries(
    st.sampled_from(sorted(OFFERS)),
    st.builds(refused, st.integers(1, 9), minutes=st.floats(0.0, 70.0)),
)
MIX = st.builds(
    MixRules,
    on_demand_base=st.integers(0, 4),
    spot_share=st.floats(0.0, 1.0),
    fallback_after=st.sampled_from([0.0, 600.0]),
)


@given(nodes=NODES, past=PAST, mix=MIX, missing=st.integers(0, 6), minutes=st.none() | st.floats(0.0, 60.0))
def test_never_more_than_is_missing_and_never_what_rests(
    nodes: list[Node], past: dict[str, OfferPast], mix: MixRules, missing: int, minutes: float | None
) -> None:
    """With spot and on demand to be had, and no wait, all that is missing is asked for."""
    found = asked(missing, *nodes, past=past, mix=mix, minutes_refused=minutes)
    lately = {name for name, each in past.items() if NOW - (each.refused_at or NOW) < timedelta(minutes=3)}

    assert len(found) <= missing
    assert not lately & set(found)
    if not past and minutes is None and mix.fallback_after == 0:
        assert len(found) == missing
