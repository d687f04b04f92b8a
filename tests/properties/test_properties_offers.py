"""A pool with offers over a cloud that gives, refuses, takes back and lies: no storm, and never more than wanted."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.clouds import CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.controller.context import Memory
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.model.decision import Status, Verb
from gpuwatch.policies.schedule import Window
from gpuwatch.policies.spot.mix import MixRules
from tests.support.builders.fleet import LIVES, RULES, Desk, lived
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

LIMITS = Limits(max_additions_per_round=9, max_additions_per_hour=60)
NAMES = sorted(OFFERS)
MOST = 6


class PoolsWithOffers(RuleBasedStateMachine):
    """Lives of one pool; each invariant is a promise."""

    @initialize(wait=st.sampled_from([0.0, 600.0]), base=st.integers(0, 2))
    def begin(self, wait: float, base: int) -> None:
        """Three nodes are wanted at first."""
        mix = MixRules(fallback_after=wait, on_demand_base=base)
        self.desk = Desk(limits=LIMITS)
        self.pool = replace(RULES, offers=OFFERS, capacity=mix, interruptible="any", max_nodes=MOST)
        self.fleet = SpotMarket(clock=self.desk.clock)
        self.desk.fleet = self.fleet
        self.most_wanted = 0
        self.the_wish_changes(3)

    @rule(count=st.integers(0, MOST + 2))
    def the_wish_changes(self, count: int) -> None:
        """More or fewer nodes are wanted."""
        window = {"always": Window(min_nodes=count)} if count else {}
        self.desk.pools = {"default": replace(self.pool, schedule=window)}
        self.most_wanted = max(self.most_wanted, count)

    @rule(name=st.sampled_from(NAMES), room=st.integers(0, 4))
    def room_changes(self, name: str, room: int) -> None:
        """An offer has more or less."""
        self.fleet.room[name] = room

    @rule(name=st.sampled_from(NAMES))
    def an_offer_lies(self, name: str) -> None:
        """It says that it gives a machine, and the machine ends at once; or it no longer does so."""
        self.fleet.lies ^= {name}

    @rule(name=st.sampled_from(NAMES))
    def a_quota_is_used_up(self, name: str) -> None:
        """Or raised."""
        self.fleet.quota ^= {name}

    @rule(name=st.sampled_from(NAMES))
    def a_machine_is_taken_back(self, name: str) -> None:
        """Without a word."""
        self.fleet.take(name)

    @rule(name=st.none() | st.sampled_from(NAMES), lost=st.booleans())
    def calls_fail(self, name: str | None, *, lost: bool) -> None:
        """The cloud throttles launches from an offer, or does not answer them; or it answers again."""
        error: CloudError = CloudUnavailableError("no answer") if lost else ThrottledError("too many calls")
        self.fleet.fault = lambda call, target: error if (call, target) == ("launch", name) else None

    @rule()
    def the_controller_is_restarted(self) -> None:
        """It keeps nothing but its ledger."""
        self.desk.memory = Memory()

    @rule(rounds=st.sampled_from([1, 1, 1, 4, 15]))
    def time_passes(self, rounds: int) -> None:
        """In each round an offer refuses once at most."""
        for _ in range(rounds):
            self.fleet.refusals.clear()
            done = step(self.desk.parts)
            assert all(count == 1 for count in self.fleet.refusals.values()), self.fleet.refusals
            self._nothing_that_rests_was_asked(done)
            self.desk.rest(60.0)

    def _nothing_that_rests_was_asked(self, done: object) -> None:
        """What was refused within the last three minutes is left alone."""
        before: dict[str, float] = getattr(self, "refused_at", {})
        now = self.desk.clock.monotonic()
        for act in done.acts:  # type: ignore[attr-defined]
            name = act.review.step.arguments.get("offer")
            if act.review.step.verb is Verb.LAUNCH and name is not None:
                assert now - before.get(name, -1e9) >= 180.0, name
                if act.outcome.status is Status.FAILED:
                    before = {**before, name: now}
        self.refused_at = before

    @invariant()
    def never_above_the_maximum_nor_what_was_wanted(self) -> None:
        """P17, whatever the cloud says."""
        assert len(self.fleet.alive()) <= min(MOST, self.most_wanted)

    @invariant()
    def the_clouds_calls_are_bounded(self) -> None:
        """No storm: the limit of an hour holds for tries, too, but for the next offers of a round."""
        hours = self.desk.clock.monotonic() / 3600 + 1
        tries = sum(call == "launch" for call, _, _ in self.fleet.calls)
        assert tries <= hours * LIMITS.max_additions_per_hour + len(NAMES)

    def teardown(self) -> None:
        """Count what was lived."""
        if hasattr(self, "desk"):
            lived(self.desk)


TestPoolsWithOffers = PoolsWithOffers.TestCase
TestPoolsWithOffers.settings = settings(max_examples=LIVES, stateful_step_count=30, deadline=None)
