"""A pool over a cloud that gives, refuses, takes back, and lies about each: one loss, one replacement.

Three promises besides P1 to P21 (docs/adr/0033-interruptions.md): S1 never above the maximum and the declared surge,
S2 never two replacements for one loss, S3 what a notice takes is replaced in its round, or the decision says why not.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.clouds import CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.controller.context import Memory, Round
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.model.decision import Verb
from gpuwatch.policies import machines
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import LIVES, RULES, Desk, lived
from tests.support.builders.offers import OFFERS
from tests.support.fakes.spot_market import SpotMarket

LIMITS = Limits(max_additions_per_round=9, max_additions_per_hour=60)
NAMES = sorted(OFFERS)
WANTED, MOST = 3, 4


class PoolsThatAreInterrupted(RuleBasedStateMachine):
    """Lives of one pool that wants three nodes; each invariant is a promise."""

    @initialize(surge=st.integers(0, 2))
    def begin(self, surge: int) -> None:
        """All three are there."""
        self.desk, self.surge = Desk(limits=LIMITS), surge
        window = {"always": Window(min_nodes=WANTED)}
        pool = replace(RULES, offers=OFFERS, interruptible="any", max_nodes=MOST, surge_nodes=surge, schedule=window)
        self.desk.pools = {"default": pool}
        self.fleet = self.desk.fleet = SpotMarket(clock=self.desk.clock)
        self.losses = 0  # what may be replaced: notices, and machines that went without one
        self.time_passes(2)

    @rule(numbers=st.sets(st.integers(0, 5), min_size=1), minutes=st.sampled_from([0.5, 2.0, 5.0, 45.0, 90.0]))
    def notices_come(self, numbers: set[int], minutes: float) -> None:
        """Several at once, or deadlines move; a round sees them."""
        alive = self.fleet.alive()
        for number in numbers if alive else ():
            node_id = alive[number % len(alive)]
            self.losses += node_id not in self.fleet.notices
            self.fleet.announce(node_id, minutes=minutes)
        self.time_passes(1)

    @rule()
    def notices_are_taken_back(self) -> None:
        """Those machines stay."""
        self.fleet.notices.clear()

    @rule()
    def the_cloud_carries_out(self) -> None:
        """It takes what is due; what it does not take survives its deadline."""
        self.fleet.carry_out()

    @rule(name=st.sampled_from(NAMES))
    def a_machine_goes_without_a_word(self, name: str) -> None:
        """Also one that has a notice, before its deadline."""
        gone = set(self.fleet.alive(name)[:1])
        self.losses += len(gone - self.fleet.notices.keys())
        self.fleet.take(name)

    @rule(name=st.sampled_from(NAMES), room=st.integers(0, 4))
    def room_changes(self, name: str, room: int) -> None:
        """An offer has more or less."""
        self.fleet.room[name] = room

    @rule(number=st.integers(0, 5))
    def an_agent_falls_silent(self, number: int) -> None:
        """Or all answer again."""
        alive = self.fleet.alive()
        self.fleet.mute = {alive[number]} if number < len(alive) else set()

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
        """Each round answers what it sees."""
        for _ in range(rounds):
            self._answered(step(self.desk.parts))
            self.desk.rest(60.0)

    def _answered(self, done: Round) -> None:
        """S3: the pool has what it wants, or is getting it, or its decision or the guard says why not."""
        (decision,) = done.decisions
        asked = sum(each.step.verb is Verb.LAUNCH for each in done.reviews)
        waits = any("more nodes are needed" in clamp for clamp in decision.clamps)
        assert waits or machines.now(done.observation, "default") + asked >= WANTED

    @invariant()
    def never_above_the_maximum_and_the_surge(self) -> None:
        """S1, whatever the cloud says."""
        assert len(self.fleet.alive()) <= MOST + self.surge

    @invariant()
    def one_loss_has_one_replacement(self) -> None:
        """S2: also over crashes, moved deadlines, and notices that are taken back."""
        assert sum(self.fleet.made.values()) <= WANTED + self.losses

    def teardown(self) -> None:
        """Count what was lived."""
        if hasattr(self, "desk"):
            lived(self.desk)


TestPoolsThatAreInterrupted = PoolsThatAreInterrupted.TestCase
TestPoolsThatAreInterrupted.settings = settings(max_examples=LIVES, stateful_step_count=30, deadline=None)
