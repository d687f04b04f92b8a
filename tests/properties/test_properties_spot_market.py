"""A pool of spot and on demand over a cloud with all vices at once: it refuses, takes back, lies, is late or silent.

Three promises, over lists that are minutes old, lost answers, restarts and pauses (docs/adr/0032-offers.md). M1: never
more machines than the maximum and both surges. M2: nothing that works is ended without both consents, and nothing at
all that is spot. M3: once the cloud is honest again, the pool has what it wants and asks for no more: no trouble of the
past holds it up for good, and none makes it buy twice.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from gpuwatch.guard import Limits
from gpuwatch.model.decision import INTERRUPTIBLE_TAG
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import LIVES, RULES, Desk, lived
from tests.support.builders.market_life import MarketLife
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

LIMITS = Limits(
    max_additions_per_round=9, max_additions_per_hour=60, max_stops_per_hour=60, max_stops_per_hour_ratio=1.0
)
NAMES, SPOT = sorted(OFFERS), ["spot-a", "spot-b"]
MOST = 4


class SpotMarkets(MarketLife):
    """Lives of one pool."""

    names = NAMES

    @initialize(
        surge=st.integers(0, 2), replaced=st.integers(0, 2), tagged=st.booleans(), wait=st.sampled_from([0.0, 600.0])
    )
    def begin(self, surge: int, replaced: int, wait: float, *, tagged: bool) -> None:
        """Three nodes are wanted."""
        self.desk = Desk(limits=LIMITS)
        self.surge, self.replaced = surge, replaced
        mix = MixRules(surge=surge, give_back_notice=60.0, fallback_after=wait)
        self.pool = replace(
            RULES,
            offers=OFFERS,
            capacity=mix,
            interruptible="any",
            max_nodes=MOST,
            surge_nodes=replaced,
            warm_up=120.0,
        )
        market = SpotMarket(clock=self.desk.clock, tags={INTERRUPTIBLE_TAG: "true"} if tagged else {})
        self.opened(market, tagged=tagged)
        self.the_wish_changes(3)

    @rule(count=st.integers(0, MOST + 1))
    def the_wish_changes(self, count: int) -> None:
        """More or fewer nodes are wanted."""
        self.wanted = count
        window = {"always": Window(min_nodes=count)} if count else {}
        self.desk.pools = {"default": replace(self.pool, schedule=window)}

    @rule(enforce=st.booleans())
    def it_only_observes(self, *, enforce: bool) -> None:
        """Or acts again."""
        self.desk.enforce = enforce

    @invariant()
    def never_above_the_maximum_and_the_surges(self) -> None:
        """M1."""
        assert len(self.market.alive()) <= MOST + self.surge + self.replaced, "M1"

    def teardown(self) -> None:
        """M3, and what was lived."""
        if not hasattr(self, "desk"):
            return
        self.the_cloud_is_honest_again()
        for _ in range(70):
            self.desk.round()
        assert len(self.market.alive()) >= min(self.wanted, MOST), "M3: it lacks nodes"
        made = sum(self.market.made.values())
        for _ in range(15):
            self.desk.round()
        assert sum(self.market.made.values()) == made, "M3: it goes on buying"
        lived(self.desk)


TestSpotMarkets = SpotMarkets.TestCase
TestSpotMarkets.settings = settings(max_examples=LIVES, stateful_step_count=30, deadline=None)
