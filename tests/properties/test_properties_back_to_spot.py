"""A pool that comes back to spot, over a cloud that gives, refuses and takes back: three promises of its own.

B1: nothing that works is removed unless its pool and its own tag consent at that moment. B2: gpuwatch removes no node
that is wanted: as many others work as are wanted when a removal is sent. B3: never more nodes than the most that were
ever wanted, and than the maximum, plus the declared surge.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.controller.context import Memory
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG
from gpuwatch.model.fleet import CapacityType, Node, NodeState
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


class BackToSpot(RuleBasedStateMachine):
    """Lives of one pool."""

    @initialize(surge=st.integers(0, 3), base=st.integers(0, 1), tagged=st.booleans())
    def begin(self, surge: int, base: int, tagged: bool) -> None:
        """Three nodes are wanted, and no zone has spot."""
        self.desk = Desk(limits=LIMITS)
        self.surge = surge
        mix = MixRules(on_demand_base=base, surge=surge, give_back_notice=60.0)
        self.pool = replace(RULES, offers=OFFERS, capacity=mix, interruptible="any", max_nodes=MOST, warm_up=120.0)
        self.market = SpotMarket(clock=self.desk.clock, tags={INTERRUPTIBLE_TAG: "true"} if tagged else {})
        self.market.room = dict.fromkeys(SPOT, 0)
        self.market.watch_stop = self._before_a_stop
        self.desk.fleet = self.market
        self.most_wanted = 0
        self.the_wish_changes(3)

    def _before_a_stop(self, node_id: str, key: str) -> None:
        """B1 and B2, at the call itself; the machine still runs."""
        del key
        node = self.market.nodes_[node_id]
        if node.activity.state is not State.IDLE:
            assert node.tags.get(INTERRUPTIBLE_TAG) == "true", "B1"
            assert self.desk.pools is not None
            assert self.desk.pools["default"].interruptible == "any", "B1"
            assert node.capacity_type is CapacityType.ON_DEMAND, "B1"
        others = [each for each in self.market.alive() if each != node_id and self._runs(self.market.nodes_[each])]
        assert len(others) >= min(self.wanted, MOST), "B2"

    def _runs(self, node: Node) -> bool:
        return node.state is NodeState.RUNNING

    @rule(count=st.integers(0, MOST + 1))
    def the_wish_changes(self, count: int) -> None:
        """More or fewer nodes are wanted."""
        self.wanted, self.most_wanted = count, max(self.most_wanted, count)
        self._set(self.pool.interruptible == "any")

    @rule(any_=st.booleans())
    def the_pool_consents_or_not(self, any_: bool) -> None:
        """By its settings."""
        self._set(any_)

    def _set(self, consents: bool) -> None:
        window = {"always": Window(min_nodes=self.wanted)} if self.wanted else {}
        self.pool = replace(self.pool, interruptible="any" if consents else "never", schedule=window)
        self.desk.pools = {"default": self.pool}

    @rule(name=st.sampled_from(SPOT), room=st.integers(0, 3))
    def room_changes(self, name: str, room: int) -> None:
        """A zone has more or less spot."""
        self.market.room[name] = room

    @rule(name=st.sampled_from(SPOT))
    def a_machine_is_taken_back(self, name: str) -> None:
        """Without a word."""
        self.market.take(name)

    @rule(pick=st.integers(0, 9), state=st.sampled_from([State.IDLE, State.BUSY, State.UNKNOWN]))
    def work_comes_and_goes(self, pick: int, state: State) -> None:
        """On one machine."""
        alive = self.market.alive()
        if alive:
            self.market.show(alive[pick % len(alive)], state)

    @rule(pick=st.integers(0, 9))
    def an_owner_changes_the_tag(self, pick: int) -> None:
        """Of one machine."""
        alive = self.market.alive()
        if alive:
            node = self.market.nodes_[alive[pick % len(alive)]]
            tags = dict(node.tags)
            if tags.pop(INTERRUPTIBLE_TAG, None) is None:
                tags[INTERRUPTIBLE_TAG] = "true"
            self.market.put(replace(node, tags=tags))

    @rule()
    def the_controller_is_restarted(self) -> None:
        """It keeps nothing but its ledger."""
        self.desk.memory = Memory()

    @rule(rounds=st.sampled_from([1, 3, 8, 20]))
    def time_passes(self, rounds: int) -> None:
        """Rounds."""
        for _ in range(rounds):
            self.desk.round()

    @invariant()
    def never_above_the_surge(self) -> None:
        """B3."""
        assert len(self.market.alive()) <= min(MOST, self.most_wanted) + self.surge, "B3"

    def teardown(self) -> None:
        """Count what was lived."""
        if hasattr(self, "desk"):
            lived(self.desk)


TestBackToSpot = BackToSpot.TestCase
TestBackToSpot.settings = settings(max_examples=LIVES, stateful_step_count=30, deadline=None)
