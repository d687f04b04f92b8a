"""A pool over a cloud that gives, refuses, takes back and lies: one machine, whose pools and vices are drawn.

What holds of every life: C1 never more nodes than the most that were ever wanted (and one for each notice) and than
the maximum, plus both declared surges (P17). C2 nothing that works is removed unless its pool and its own tag consent
at that moment, and no spot machine that works. C3 no storm: what was refused is left alone for three minutes, an offer
refuses once a round, and the limit of an hour holds for tries. C4 once the cloud is honest again, the pool has what it
wants and asks for no more: no trouble of the past holds it up for good, and none makes it buy twice.

Over an honest cloud, whose lists are in time and whose answers all arrive: C5 no node that is wanted is removed. In a
pool that besides wants the same all the time and never comes back to spot: C6 never two replacements for one loss, C7
what a notice takes is replaced in its round, or the decision says why not.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from gpuwatch.controller.context import Round
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import INTERRUPTIBLE_TAG, Status, Verb
from gpuwatch.model.fleet import CapacityType, NodeState
from gpuwatch.policies import machines
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import LIVES, RULES, Desk, lived
from tests.support.builders.market_life import MarketLife
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

LIMITS = Limits(
    max_additions_per_round=9, max_additions_per_hour=60, max_stops_per_hour=60, max_stops_per_hour_ratio=1.0
)
SPOT = ("spot-a", "spot-b")
MOST, WANTED = 4, 3
PLAIN = MixRules(surge=0)  # one that never comes back to spot
MIXES = st.just(PLAIN) | st.builds(
    MixRules,
    surge=st.integers(0, 3),
    on_demand_base=st.integers(0, 2),
    fallback_after=st.sampled_from([0.0, 600.0]),
    give_back_notice=st.just(60.0),
)


class SpotMarkets(MarketLife):
    """Lives of one pool."""

    names = sorted(OFFERS)

    @initialize(
        mix=MIXES,
        replaced=st.integers(0, 2),
        tagged=st.booleans(),
        steady=st.booleans(),
        vices=st.booleans(),
        dry=st.booleans(),
        plain=st.booleans(),
    )
    def begin(
        self, mix: MixRules, replaced: int, *, tagged: bool, steady: bool, vices: bool, dry: bool, plain: bool
    ) -> None:
        """Three nodes are wanted, and come if there is room: on demand where spot is `dry`."""
        if plain:  # for C6 and C7, which would be tried in one life of ten if each of the three were drawn apart
            mix, steady, vices = PLAIN, True, False
        self.desk = Desk(limits=LIMITS)
        self.steady, self.vices, self.plain = steady, vices, steady and mix == PLAIN and not vices
        self.surges = replaced + mix.surge
        pool = replace(RULES, offers=OFFERS, interruptible="any", max_nodes=MOST, surge_nodes=replaced, warm_up=120.0)
        self.pool = replace(pool, capacity=mix)
        self.opened(SpotMarket(clock=self.desk.clock, tags={INTERRUPTIBLE_TAG: "true"} if tagged else {}))
        self.market.room = dict.fromkeys(SPOT, 0) if dry else {}
        self.wanted = self.most_wanted = WANTED
        self.refused_at: dict[str, float] = {}
        self._set()
        self.time_passes(2)

    def before_a_stop(self, node_id: str) -> None:
        """C2 and C5."""
        node = self.market.nodes_[node_id]
        if node.activity.state is not State.IDLE:
            assert node.tags.get(INTERRUPTIBLE_TAG) == "true", "C2: its tag does not consent"
            assert self.pool.interruptible == "any", "C2: its pool does not consent"
            assert node.capacity_type is CapacityType.ON_DEMAND, "C2: a spot machine that works was given back"
        others = [self.market.nodes_[each] for each in self.market.alive() if each != node_id]
        assert self.vices or sum(each.state is NodeState.RUNNING for each in others) >= min(self.wanted, MOST), "C5"

    @precondition(lambda self: not self.steady)
    @rule(count=st.integers(0, MOST + 2))
    def the_wish_changes(self, count: int) -> None:
        """More or fewer nodes are wanted."""
        self.wanted, self.most_wanted = count, max(self.most_wanted, count)
        self._set()

    @rule(consents=st.booleans())
    def the_pool_consents_or_not(self, *, consents: bool) -> None:
        """By its settings."""
        self.pool = replace(self.pool, interruptible="any" if consents else "never")
        self._set()

    def _set(self) -> None:
        window = {"always": Window(min_nodes=self.wanted)} if self.wanted else {}
        self.desk.pools = {"default": replace(self.pool, schedule=window)}

    @precondition(lambda self: not self.vices)
    @rule(pick=st.integers(0, 9))
    def an_owner_changes_the_tag(self, pick: int) -> None:
        """Of one machine."""
        if alive := self.market.alive():
            node = self.market.nodes_[alive[pick % len(alive)]]
            tags = {name: text for name, text in node.tags.items() if name != INTERRUPTIBLE_TAG}
            self.market.put(replace(node, tags={**tags, INTERRUPTIBLE_TAG: "true"} if tags == node.tags else tags))

    @rule(enforce=st.booleans())
    def it_only_observes(self, *, enforce: bool) -> None:
        """Or acts again."""
        self.desk.enforce = enforce

    @rule(rounds=st.sampled_from([1, 1, 2, 5, 20]))
    def time_passes(self, rounds: int) -> None:
        """Each round answers what it sees, and asks nobody who refused lately."""
        for _ in range(rounds):
            self.market.refusals.clear()
            now = self.desk.clock.monotonic()
            done = self.desk.round()
            assert all(count == 1 for count in self.market.refusals.values()), f"C3: {self.market.refusals}"
            self._left_alone(done, now)
            if self.plain:
                (decision,) = done.decisions
                asked = sum(each.step.verb is Verb.LAUNCH for each in done.reviews)
                waits = any("more nodes are needed" in clamp for clamp in decision.clamps)
                assert waits or machines.now(done.observation, "default") + asked >= WANTED, "C7"

    def _left_alone(self, done: Round, now: float) -> None:
        for act in done.acts:
            name = act.review.step.arguments.get("offer")
            if act.review.step.verb is Verb.LAUNCH and name is not None:
                assert now - self.refused_at.get(name, -1e9) >= 180.0, f"C3: {name}"
                if act.outcome.status is Status.FAILED:
                    self.refused_at[name] = now

    @invariant()
    def never_above_what_was_wanted_nor_the_maximum(self) -> None:
        """C1, whatever the cloud says; what is about to be taken has its replacement beside it."""
        assert len(self.market.alive()) <= min(MOST, self.most_wanted + self.announced) + self.surges, "C1"

    @invariant()
    def the_clouds_calls_are_bounded(self) -> None:
        """C3, but for the next offers of a round."""
        hours = self.desk.clock.monotonic() / 3600 + 1
        tries = sum(call == "launch" for call, _, _ in self.market.calls)
        assert tries <= hours * LIMITS.max_additions_per_hour + len(self.names), "C3"

    @invariant()
    def one_loss_has_one_replacement(self) -> None:
        """C6: also over crashes, moved deadlines, and notices that are taken back."""
        assert not self.plain or sum(self.market.made.values()) <= WANTED + self.losses, "C6"

    def teardown(self) -> None:
        """C4, and what was lived."""
        if not hasattr(self, "desk"):
            return
        if self.vices and self.pool.capacity.on_demand_base:
            lived(self.desk)  # an offer rests for hours once its machines do not last: a base on demand waits for it
            return
        self.the_pool_consents_or_not(consents=True)
        self.the_cloud_is_honest_again()
        for _ in range(70):
            self.desk.round()
        assert len(self.market.alive()) >= min(self.wanted, MOST), "C4: it lacks nodes"
        made = sum(self.market.made.values())
        for _ in range(15):
            self.desk.round()
        assert sum(self.market.made.values()) == made, "C4: it goes on buying"
        lived(self.desk)


TestSpotMarkets = SpotMarkets.TestCase
TestSpotMarkets.settings = settings(max_examples=LIVES * 3 // 2, stateful_step_count=30, deadline=None)
