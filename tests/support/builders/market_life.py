"""One pool on a played spot market: everything that may happen to it, for lives of several kinds of pools."""

from collections.abc import Sequence
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from gpuwatch.clouds import CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.controller.context import Memory
from gpuwatch.model.activity import State
from tests.support.builders.fleet import Desk
from tests.support.fakes.spot_market import SpotMarket

_ANY = st.integers(0, 59)  # picks an offer


class MarketLife(RuleBasedStateMachine):
    """A subclass begins with a desk whose fleet is the market, and says what is promised."""

    names: ClassVar[Sequence[str]]  # of the offers
    desk: Desk
    market: SpotMarket
    vices: bool = True  # whether offers lie, lists are late and answers get lost
    old: float = 0.0  # seconds by which the lists are late
    announced: int = 0  # machines that had a notice
    losses: int = 0  # what may be replaced: these, and machines that went without one

    def opened(self, market: SpotMarket) -> None:
        """The market as the desk's fleet."""
        self.market, self.old = market, 0.0
        self.market.stale = lambda _now: self.old
        self.market.watch_stop = lambda node_id, _key: self.before_a_stop(node_id)
        self.desk.fleet = self.market

    def before_a_stop(self, node_id: str) -> None:
        """What is promised of a machine at the call that stops it."""
        raise NotImplementedError

    def _name(self, number: int) -> str:
        return self.names[number % len(self.names)]

    @rule(offer=_ANY, room=st.integers(0, 4))
    def room_changes(self, offer: int, room: int) -> None:
        """An offer has more or less."""
        self.market.room[self._name(offer)] = room

    @precondition(lambda self: self.vices)
    @rule(offer=_ANY)
    def an_offer_lies(self, offer: int) -> None:
        """What it gives ends at once; or no longer does so."""
        self.market.lies ^= {self._name(offer)}

    @rule(offer=_ANY)
    def a_quota_is_used_up(self, offer: int) -> None:
        """Or raised."""
        self.market.quota ^= {self._name(offer)}

    @rule(offer=_ANY)
    def a_machine_is_taken_back(self, offer: int) -> None:
        """Without a word: also one that has a notice, before its deadline."""
        gone = set(self.market.alive(self._name(offer))[:1])
        self.losses += len(gone - self.market.notices.keys())
        self.market.take(self._name(offer))

    @rule(numbers=st.sets(st.integers(0, 5), min_size=1), minutes=st.sampled_from([0.5, 2.0, 5.0, 45.0, 90.0]))
    def notices_come(self, numbers: set[int], minutes: float) -> None:
        """Several at once, or deadlines move; a round sees them."""
        alive = self.market.alive()
        for node_id in dict.fromkeys(alive[number % len(alive)] for number in sorted(numbers)) if alive else ():
            self.announced += node_id not in self.market.notices
            self.losses += node_id not in self.market.notices
            self.market.announce(node_id, minutes=minutes)
        self.time_passes(1)

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

    @rule(offer=st.none() | _ANY, lost=st.booleans())
    def calls_fail(self, offer: int | None, *, lost: bool) -> None:
        """Launches from an offer are throttled, or not answered; or the cloud answers again."""
        error: CloudError = CloudUnavailableError("no answer") if lost else ThrottledError("too many calls")
        name = None if offer is None else self._name(offer)
        self.market.fault = lambda call, target: error if (call, target) == ("launch", name) else None

    @precondition(lambda self: self.vices)
    @rule(offer=st.none() | _ANY)
    def answers_are_lost(self, offer: int | None) -> None:
        """A machine comes, and no answer says so."""
        error, name = CloudUnavailableError("no answer"), None if offer is None else self._name(offer)
        self.market.lose = lambda call, target: error if (call, target) == ("launch", name) else None

    @precondition(lambda self: self.vices)
    @rule(seconds=st.sampled_from([0.0, 60.0, 240.0]))
    def lists_are_old(self, seconds: float) -> None:
        """By so much, or no longer."""
        self.old = seconds

    @rule()
    def the_controller_is_restarted(self) -> None:
        """It keeps nothing but its ledger."""
        self.desk.memory = Memory()

    @rule(rounds=st.sampled_from([1, 1, 2, 5, 20]))
    def time_passes(self, rounds: int) -> None:
        """Rounds."""
        for _ in range(rounds):
            self.desk.round()

    def the_cloud_is_honest_again(self) -> None:
        """It has everything, and all nodes work; the controller acts."""
        self.market.room, self.market.lies, self.market.quota = {}, set(), set()
        self.market.notices.clear()
        self.market.mute, self.old, self.desk.enforce = set(), 0.0, True
        self.market.fault = self.market.lose = lambda _call, _target: None
        for node_id in self.market.alive():
            self.market.show(node_id, State.BUSY)
