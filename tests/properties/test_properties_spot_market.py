"""A pool of spot and on demand over a cloud with all vices at once: it refuses, takes back, lies, is late or silent.

Three promises, over lists that are minutes old, lost answers, restarts and pauses (docs/adr/0032-offers.md). M1: never
more machines than the maximum and both surges. M2: nothing that works is ended without both consents, and nothing at
all that is spot. M3: once the cloud is honest again, the pool has what it wants and asks for no more: no trouble of the
past holds it up for good, and none makes it buy twice.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.clouds import CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.controller.context import Memory
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG
from gpuwatch.model.fleet import CapacityType
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import LIVES, RULES, Desk, lived
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

LIMITS = Limits(
    max_additions_per_round=9, max_additions_per_hour=60, max_stops_per_hour=60, max_stops_per_hour_ratio=1.0
)
NAMES, SPOT = sorted(OFFERS), ["spot-a", "spot-b"]
MOST = 4


class SpotMarkets(RuleBasedStateMachine):
    """Lives of one pool."""

    @initialize(
        surge=st.integers(0, 2), replaced=st.integers(0, 2), tagged=st.booleans(), wait=st.sampled_from([0.0, 600.0])
    )
    def begin(self, surge: int, replaced: int, wait: float, *, tagged: bool) -> None:
        """Three nodes are wanted."""
        self.desk = Desk(limits=LIMITS)
        self.surge, self.replaced, self.tagged, self.old = surge, replaced, tagged, 0.0
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
        self.market = SpotMarket(clock=self.desk.clock, tags={INTERRUPTIBLE_TAG: "true"} if tagged else {})
        self.market.stale = lambda _now: self.old
        self.market.watch_stop = self._before_a_stop
        self.desk.fleet = self.market
        self.the_wish_changes(3)

    def _before_a_stop(self, node_id: str, key: str) -> None:
        """M2, at the call itself."""
        del key
        node = self.market.nodes_[node_id]
        if node.activity.state is not State.IDLE:
            assert self.tagged, "M2"
            assert node.capacity_type is CapacityType.ON_DEMAND, "M2"

    @rule(count=st.integers(0, MOST + 1))
    def the_wish_changes(self, count: int) -> None:
        """More or fewer nodes are wanted."""
        self.wanted = count
        window = {"always": Window(min_nodes=count)} if count else {}
        self.desk.pools = {"default": replace(self.pool, schedule=window)}

    @rule(name=st.sampled_from(NAMES), room=st.integers(0, 4))
    def room_changes(self, name: str, room: int) -> None:
        """An offer has more or less."""
        self.market.room[name] = room

    @rule(name=st.sampled_from(NAMES))
    def an_offer_lies(self, name: str) -> None:
        """What it gives ends at once; or no longer does so."""
        self.market.lies ^= {name}

    @rule(name=st.sampled_from(NAMES))
    def a_quota_is_used_up(self, name: str) -> None:
        """Or raised."""
        self.market.quota ^= {name}

    @rule(name=st.sampled_from(NAMES))
    def a_machine_is_taken_back(self, name: str) -> None:
        """Without a word."""
        self.market.take(name)

    @rule(number=st.integers(0, 5), minutes=st.sampled_from([0.5, 2.0, 45.0]))
    def a_notice_comes(self, number: int, minutes: float) -> None:
        """Or its deadline moves."""
        alive = self.market.alive()
        if alive:
            self.market.announce(alive[number % len(alive)], minutes=minutes)

    @rule(taken=st.booleans())
    def notices_end(self, *, taken: bool) -> None:
        """What is due is taken; or all of them are taken back."""
        if taken:
            self.market.carry_out()
        else:
            self.market.notices.clear()

    @rule(number=st.integers(0, 5))
    def an_agent_falls_silent(self, number: int) -> None:
        """Or all answer again."""
        alive = self.market.alive()
        self.market.mute = {alive[number]} if number < len(alive) else set()

    @rule(pick=st.integers(0, 9), state=st.sampled_from([State.IDLE, State.BUSY, State.UNKNOWN]))
    def work_comes_and_goes(self, pick: int, state: State) -> None:
        """On one machine."""
        alive = self.market.alive()
        if alive:
            self.market.show(alive[pick % len(alive)], state)

    @rule(name=st.none() | st.sampled_from(NAMES), lost=st.booleans())
    def calls_fail(self, name: str | None, *, lost: bool) -> None:
        """Launches from an offer are throttled, or not answered; or the cloud answers again."""
        error: CloudError = CloudUnavailableError("no answer") if lost else ThrottledError("too many calls")
        self.market.fault = lambda call, target: error if (call, target) == ("launch", name) else None

    @rule(name=st.none() | st.sampled_from(NAMES))
    def answers_are_lost(self, name: str | None) -> None:
        """A machine comes, and nobody says so."""
        error = CloudUnavailableError("no answer")
        self.market.lose = lambda call, target: error if (call, target) == ("launch", name) else None

    @rule(seconds=st.sampled_from([0.0, 60.0, 240.0]))
    def lists_are_old(self, seconds: float) -> None:
        """By so much, or no longer."""
        self.old = seconds

    @rule()
    def the_controller_is_restarted(self) -> None:
        """It keeps nothing but its ledger."""
        self.desk.memory = Memory()

    @rule(enforce=st.booleans())
    def it_only_observes(self, *, enforce: bool) -> None:
        """Or acts again."""
        self.desk.enforce = enforce

    @rule(rounds=st.sampled_from([1, 1, 2, 5, 20]))
    def time_passes(self, rounds: int) -> None:
        """Rounds."""
        for _ in range(rounds):
            self.desk.round()

    @invariant()
    def never_above_the_maximum_and_the_surges(self) -> None:
        """M1."""
        assert len(self.market.alive()) <= MOST + self.surge + self.replaced, "M1"

    def teardown(self) -> None:
        """M3, and what was lived."""
        if not hasattr(self, "desk"):
            return
        self._the_cloud_is_honest_again()
        for _ in range(70):
            self.desk.round()
        assert len(self.market.alive()) >= min(self.wanted, MOST), "M3: it lacks nodes"
        made = sum(self.market.made.values())
        for _ in range(15):
            self.desk.round()
        assert sum(self.market.made.values()) == made, "M3: it goes on buying"
        lived(self.desk)

    def _the_cloud_is_honest_again(self) -> None:
        self.market.room, self.market.lies, self.market.quota = {}, set(), set()
        self.market.notices.clear()
        self.market.mute, self.old, self.desk.enforce = set(), 0.0, True
        self.market.fault = self.market.lose = lambda _call, _target: None
        for node_id in self.market.alive():
            self.market.show(node_id, State.BUSY)


TestSpotMarkets = SpotMarkets.TestCase
TestSpotMarkets.settings = settings(max_examples=LIVES, stateful_step_count=30, deadline=None)
