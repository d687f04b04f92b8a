"""P21 with offers: whatever the guard allows of a wanted growth comes in that round, from whichever offer it may."""

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.guard import Limits, Rulebook, case_of, judge, review
from gpuwatch.model.decision import Done, Intent, LedgerView, Observation, OpenIntent, Outcome, Status, Step, Verb
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.measurement import OffersPast
from gpuwatch.policies import PoolRules, machines, resolve
from gpuwatch.policies.schedule import Window, propose
from gpuwatch.policies.spot.choice import resting_seconds
from gpuwatch.policies.spot.settings import OfferRules
from tests.support.builders.fleet import NOW
from tests.support.builders.offers import refused
from tests.support.builders.past_steps import REASON
from tests.support.nightly import examples

ZONES = ("us-east-1a", "us-east-1b", "eu-west-1a")
KINDS = [(zone, capacity) for zone in ZONES for capacity in ("spot", "on_demand")]


def an_offer(zone: str, capacity: str) -> OfferRules:
    """One of that zone."""
    return OfferRules(
        capacity=capacity,  # type: ignore[arg-type]
        template=f"lt-{capacity}",
        instance_type="g6.xlarge",
        region=zone[:-1],
        zone=zone,
    )


def a_failure(offer: OfferRules, name: str, number: int, *, ended: bool) -> Done:
    """A launch that came to nothing half an hour ago: its machine ended, or there was none."""
    return Done(
        key=f"k-{name}-{number}",
        verb=Verb.LAUNCH,
        node_id=f"new:a:{number}",
        pool="a",
        status=Status.FAILED,
        at=NOW - timedelta(minutes=30 - number),
        arguments=offer.arguments(name, "a"),
        detail="i-9 was launched and is terminated" if ended else "there is none now",
    )


def never_seen(offer: OfferRules, name: str) -> OpenIntent:
    """A launch whose machine is no node of the pool."""
    arguments = offer.arguments(name, "a")
    at = NOW - timedelta(minutes=40)
    intent = Intent(
        key=f"k-{name}", verb=Verb.LAUNCH, node_id=f"new:a:{name}", pool="a", at=at, reason=REASON, arguments=arguments
    )
    last = Outcome(
        key=intent.key, at=at, status=Status.UNSEEN, detail="the cloud launched i-8, and after 10m it is not"
    )
    return OpenIntent(intent=intent, attempts=1, last=last, reached=True)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Observation, Rulebook]:
    """One pool without a node, whose offers were refused, lied, or may not be used, and limits that bind."""
    offers = {
        f"{capacity}-{zone}": an_offer(zone, capacity)
        for zone, capacity in draw(st.sets(st.sampled_from(KINDS), min_size=1))
    }
    troubles = {name: draw(st.sampled_from(["", "", "rests", "ended", "cooling", "unseen"])) for name in offers}
    recent = [
        a_failure(offers[name], name, number, ended=trouble == "ended")
        for name, trouble in troubles.items()
        if trouble in {"ended", "cooling"}
        for number in range(3 if trouble == "ended" else 1)
    ]
    entries = [never_seen(offers[name], name) for name, trouble in troubles.items() if trouble == "unseen"]
    past = {name: refused() for name, trouble in troubles.items() if trouble == "rests"}
    pool = PoolRules(
        offers=offers,
        interruptible="any",
        regions=draw(st.sampled_from([(), ("us-*",), ("eu-*",)])),
        schedule={"always": Window(min_nodes=draw(st.integers(1, 6)))},
    )
    limits = Limits(max_additions_per_round=draw(st.integers(0, 6)), capacity_cooldown=3600.0)
    fleet = Fleet(observed_at=NOW, nodes=(), named=("a",))
    ledger = LedgerView(recent=tuple(recent), open_intents=tuple(entries))
    observation = Observation(now=NOW, fleet=fleet, ledger=ledger, offers={"a": OffersPast(offers=past)})
    return observation, Rulebook(pools={"a": pool}, limits=limits, enforce=True)


@settings(deadline=None, max_examples=examples(300))
@given(situation=situations())
def test_no_offer_that_the_guard_allows_is_left_out(situation: tuple[Observation, Rulebook]) -> None:
    """Where nodes are missing after the round's launches, no offer that does not rest could have brought one more."""
    observation, rules = situation
    pool = rules.pool("a")
    proposal = propose(observation, "a", pool.schedule)
    decision = resolve(observation, "a", [proposal], pool)
    launched = tuple(
        each.step for each in review(observation, [decision], rules) if each.allowed and each.step.verb is Verb.LAUNCH
    )

    assert decision.target is not None
    missing = decision.target - machines.now(observation, "a") - len(launched)
    assert missing >= 0 or not launched, "more comes than is wanted"
    assert len({step.node_id for step in launched}) == len(launched)
    for name, offer in pool.offers.items() if missing > 0 else ():
        past = observation.offers["a"].offers.get(name)
        if past is not None and resting_seconds(observation, past, 0) > 0:
            continue
        arguments = offer.arguments(name, "a")
        more = Step(node_id="new:a:99", verb=Verb.LAUNCH, reason=REASON, change="", arguments=arguments)
        case = case_of(more, observation, "a", rules, frozen=None, granted=launched)
        assert not judge(case).allowed, f"{name} could have brought a node"
