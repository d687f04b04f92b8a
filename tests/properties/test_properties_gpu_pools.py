"""A pool that counts GPUs, on machines of 8, 4 and 1, over a cloud that gives, refuses, takes back, lies, or is late.

Four promises. G1: never more GPUs than the maximum, nor more machines, and both surges; never more than was ever
wanted, but for the last machine, and the surges. G2: nothing that works is ended without both consents, nor anything
that is spot. G3: once the cloud is honest again the pool has the GPUs that it wants, or all the machines that it may
have, and asks for no more: no loss is replaced twice. G4: growth is cut to what limits allow, never refused whole.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from gpuwatch import guard
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.model.activity import State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG, Review, Verb
from gpuwatch.model.fleet import CapacityType
from gpuwatch.model.measurement import OffersPast
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import LIVES, Desk, lived
from tests.support.builders.gpu_pools import GPUS, MIXED, decided, gpu_rules, of_gpus
from tests.support.builders.market_life import MarketLife
from tests.support.builders.offers import refused
from tests.support.builders.pending_capacity import seen
from tests.support.fakes.spot_market import SpotMarket
from tests.support.nightly import examples

LIMITS = Limits(
    max_additions_per_round=30, max_additions_per_hour=400, max_stops_per_hour=200, max_stops_per_hour_ratio=1.0
)
NAMES, SPOT = sorted(MIXED), [name for name in MIXED if name.startswith("spot-")]
LARGEST = 8


class GpuPools(MarketLife):
    """Lives of one pool."""

    names = NAMES

    @initialize(
        surge=st.integers(0, 2),
        replaced=st.integers(0, 2),
        most=st.sampled_from([8, 13, 20]),
        machines=st.none() | st.integers(2, 6),
        wait=st.sampled_from([0.0, 600.0]),
        base=st.sampled_from([0, 2, 8]),
        tagged=st.booleans(),
    )
    def begin(
        self, surge: int, replaced: int, most: int, machines: int | None, wait: float, base: int, *, tagged: bool
    ) -> None:
        """Half of its maximum is wanted."""
        self.desk = Desk(limits=LIMITS)
        self.surge, self.replaced, self.most, self.machines = surge, replaced, most, machines
        self.most_wanted = 0
        mix = MixRules(surge=surge, give_back_notice=60.0, fallback_after=wait, on_demand_base=base)
        self.pool = gpu_rules(
            offers=MIXED, capacity=mix, max_gpus=most, max_nodes=machines, surge_nodes=replaced, warm_up=120.0
        )
        market = SpotMarket(clock=self.desk.clock, tags={INTERRUPTIBLE_TAG: "true"} if tagged else {}, offers=MIXED)
        self.tagged = tagged
        self.opened(market)
        self.the_wish_changes(most // 2)

    def before_a_stop(self, node_id: str) -> None:
        """G2: no machine that works goes without both consents, nor one on spot."""
        node = self.market.nodes_[node_id]
        if node.activity.state is not State.IDLE:
            assert self.tagged, "G2: a machine that works went without consent"
            assert node.capacity_type is CapacityType.ON_DEMAND, "G2: a spot machine that works was given back"

    @rule(count=st.integers(0, 24))
    def the_wish_changes(self, count: int) -> None:
        """More or fewer GPUs are wanted."""
        self.wanted = count
        self.most_wanted = max(self.most_wanted, count)
        window = {"always": Window(min_gpus=count)} if count else {}
        self.desk.pools = {"default": replace(self.pool, schedule=window)}

    @rule(untold=st.booleans())
    def the_cloud_tells_no_gpus(self, *, untold: bool) -> None:
        """Of the machines that come from now on; or it does."""
        self.market.untold = untold

    @invariant()
    def never_above_the_maximum_and_the_surges(self) -> None:
        """G1."""
        if not hasattr(self, "market"):
            return
        more = (self.surge + self.replaced) * LARGEST
        assert self.market.gpus() <= self.most + more, "G1: above max_gpus"
        assert self.market.gpus() < self.most_wanted + LARGEST + more, "G1: above what was wanted"
        if self.machines is not None:
            assert len(self.market.alive()) <= self.machines + self.surge + self.replaced, "G1: above max_nodes"

    def teardown(self) -> None:
        """G3, and what was lived."""
        if not hasattr(self, "desk"):
            return
        self.the_cloud_is_honest_again()
        for _ in range(70):
            self.desk.round()
        full = self.machines is not None and len(self.market.alive()) >= self.machines
        assert full or self.market.gpus() >= min(self.wanted, self.most), "G3: it lacks GPUs"
        made = sum(self.market.made.values())
        for _ in range(15):
            self.desk.round()
        assert sum(self.market.made.values()) == made, "G3: it goes on buying"
        lived(self.desk)


TestGpuPools = GpuPools.TestCase
TestGpuPools.settings = settings(max_examples=LIVES, stateful_step_count=30, deadline=None)


@given(
    wanted=st.integers(1, 40),
    has=st.lists(st.sampled_from([8, 4, 1]), max_size=5),
    bounds=st.tuples(st.none() | st.integers(8, 40), st.none() | st.integers(0, 9), st.integers(0, 9)),
    gone=st.sets(st.sampled_from(NAMES)),
    shares=st.tuples(st.integers(0, 9), st.sampled_from([0.0, 0.5, 1.0])),
)
@settings(max_examples=examples(300), deadline=None)
def test_growth_is_cut_to_what_limits_allow(
    wanted: int,
    has: list[int],
    bounds: tuple[int | None, int | None, int],
    gone: set[str],
    shares: tuple[int, float],
) -> None:
    """G4: what comes is needed and allowed; what is still missing no machine could bring within the limits."""
    (most, machines, per_round), (base, share) = bounds, shares
    mix = MixRules(on_demand_base=base, spot_share=share)
    rules = gpu_rules(wanted, offers=MIXED, capacity=mix, max_gpus=most, max_nodes=machines)
    nodes = [of_gpus(gpus, f"i-{number}") for number, gpus in enumerate(has)]
    known = OffersPast(offers={name: refused() for name in gone})
    observation = replace(seen(*nodes), offers={"default": known})
    limits = Limits(max_additions_per_round=per_round, max_additions_per_hour=99)
    decision = decided(observation, rules)
    reviews = guard.review(observation, [decision], Rulebook(pools={"default": rules}, limits=limits, enforce=True))
    comes = [GPUS[each.step.arguments["instance_type"]] for each in reviews if each.allowed and _launch(each)]
    after = sum(has) + sum(comes)
    room = None if most is None else most - after

    assert len(comes) <= per_round
    assert not comes or machines is None or len(has) + len(comes) <= machines
    assert not comes or room is None or room >= 0
    assert not comes or sum(comes[:-1]) < wanted - sum(has), "one of them was not needed when it was asked for"
    target = wanted if most is None else min(wanted, most)
    if after < target and len(comes) < per_round and (machines is None or len(has) + len(comes) < machines):
        spot_left = [name for name in SPOT if name not in gone]
        firm_left = [name for name in MIXED if name not in SPOT and name not in gone]
        able = firm_left if base or share < 1.0 else firm_left + spot_left
        fitting = [name for name in able if room is None or (MIXED[name].gpus or 0) <= room]
        assert not fitting, f"{fitting} would fit"


def _launch(review: Review) -> bool:
    return review.step.verb is Verb.LAUNCH
