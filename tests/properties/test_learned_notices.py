"""P14 where the wait is learned and holds its notice: what was told is kept, whoever comes and whatever is learned."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gpuwatch.clouds import ThrottledError
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.decision import Intent, Outcome, Status, Verb
from gpuwatch.model.fleet import DEFAULT_POOL, Node, NodeReport, NodeState
from gpuwatch.model.promise import promise_of
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.break_even import MINIMUM_WAIT_SECONDS
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
from gpuwatch.policies.idle_timeout.node_wait import ATTENDED_WAIT_SECONDS
from tests.support.builders.fleet import LIVES, NOW, Desk, a_node, lived

IDS = ("i-0", "i-1", "i-2")
RESTART = 600.0
IDLE = IdleRules(
    timeout="learned", fresh_timeout=None, restart_cost=RESTART, grace_period=600.0, unattended_grace_period=0.0
)
RULES = PoolRules(warm_up=0.0, idle=IDLE)
_PEOPLE = Evidence(
    name="people", says=State.IDLE, observed=None, limit=None, unit="seconds since input", source="sessions"
)


def learned_from(length: float) -> GapHistory:
    """What a pool knows whose three nodes paused sixty times for so long, and were stopped by break-even's rule."""
    history, at = GapHistory(), NOW.timestamp() - 63 * (length + 300.0)
    for _ in range(60):
        for node_id in IDS:
            history = gaps.went_idle(history, node_id, at, RESTART)
        history = gaps.after_time(history, at)
        for node_id in IDS if length > RESTART else ():
            history = gaps.reclaim_node(gaps.after_time(history, at + RESTART), node_id, at + RESTART)
        at += length
        for node_id in IDS:
            history = gaps.need_node(gaps.after_time(history, at), node_id, at)
        at += 300.0
    return history


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """When a notice was given, on the clock that nobody sets, the grace that it promised, and for which action.

    `interrupted`: nothing was done for a while since.
    """

    at: float
    grace: float
    action: str = "stop"
    interrupted: bool = False


class LearnedLife(RuleBasedStateMachine):
    """Machines pause and work, people come and go, and the pool has learned to stop early.

    Somebody edits waits, graces and actions, so that a notice of one kind of wait meets the rules of another; rounds
    are paused or only observe, notices get through late, and the wall clock is set.
    """

    @initialize(
        length=st.sampled_from([40.0, 700.0, 5000.0, 90000.0]), owner=st.sampled_from([None, None, "ann@example.org"])
    )
    def begin(self, length: float, owner: str | None) -> None:
        """Three nodes at work, and a history of pauses."""
        self.desk = Desk(rules=RULES)
        for node_id in IDS:
            self.desk.fleet.put(a_node(node_id, State.BUSY, 60.0, owner=owner))
        self.desk.ledger.record_round(self.desk.plan().observation, gaps={DEFAULT_POOL: learned_from(length)})
        self.present: dict[str, str] = dict.fromkeys(IDS, "nobody")
        self.told: dict[str, Told] = {}
        self.late: set[str] = set()
        self.jumped_seconds = 0.0
        self.desk.fleet.answer = self.answer
        self.desk.fleet.fault = lambda call, _: ThrottledError("busy") if call in self.late else None
        self.desk.fleet.watch_stop = self.stops
        settle = self.desk.ledger.settle

        def watched(intent: Intent, status: Status, detail: str, at: datetime) -> Outcome:
            if intent.verb is Verb.NOTICE and status is Status.SETTLED:
                self.tells(intent)
            return settle(intent, status, detail, at)

        self.desk.ledger.settle = watched  # type: ignore[method-assign]  # the record that people are told by

    def answer(self, node: Node) -> NodeReport:
        """What its agent says, also of people; one that cannot see them says nothing of them."""
        verdict, who = node.signal.verdict, self.present[node.id]
        if verdict is None:
            return node.signal
        seen = replace(_PEOPLE, observed=7200.0 if who == "somebody" else None)
        evidence = verdict.activity.evidence if who == "not seen" else (*verdict.activity.evidence, seen)
        activity = replace(verdict.activity, evidence=evidence)
        at = self.desk.clock.now() - timedelta(seconds=self.jumped_seconds)  # the hosts' clocks are right
        return NodeReport(verdict=replace(verdict, at=at, activity=activity, age_seconds=0.5))

    def tells(self, intent: Intent) -> None:
        """A notice is never given in the first minute, nor in the first half hour where people may be."""
        node_id, rules = intent.node_id, self.desk.rules.idle
        held, who = self.desk.fleet.nodes_[node_id].activity.held_seconds, self.present[node_id]
        least = MINIMUM_WAIT_SECONDS if who == "nobody" or rules.timeout != "learned" else ATTENDED_WAIT_SECONDS
        assert held >= least, f"P9: told after {held} s of idleness, {who} there"
        promise = promise_of(intent.pool, intent.arguments)
        assert promise is not None
        self.told[node_id] = Told(
            at=self.desk.clock.monotonic(), grace=promise.grace_seconds, action=promise.action, interrupted=False
        )

    def stops(self, node_id: str, key: str) -> None:
        """P14: the grace that was told is over, or that of whoever came since; the node was idle throughout."""
        node, told, idle = self.desk.fleet.nodes_[node_id], self.told[node_id], self.desk.rules.idle
        waited = self.desk.clock.monotonic() - told.at
        came = node.owner is not None or self.present[node_id] != "nobody"
        promised = max(told.grace, idle.grace_period if came else 0.0)
        verb = next(
            each for each in self.desk.ledger.view(self.desk.clock.now()).open_intents if each.intent.key == key
        )
        assert waited >= promised, f"P14: {promised} s were promised, it were {waited}"
        assert waited > 0, "P14: it was stopped in the round of its notice"
        assert verb.intent.verb is Verb.STOP or told.action == "terminate", "P14: a stop was promised"
        assert not told.interrupted, "P14: nothing was done for a while since the notice"
        assert node.activity.state is State.IDLE, f"P2: it was stopped while {node.activity.state}"
        assert node.activity.held_seconds >= waited - 5.0, "P14: it worked since its notice"

    def interrupted(self) -> None:
        """Every notice so far came before this."""
        self.told = {node_id: replace(told, interrupted=True) for node_id, told in self.told.items()}

    @rule(node_id=st.sampled_from(IDS), state=st.sampled_from([State.BUSY, State.IDLE, State.IDLE, State.UNKNOWN]))
    def turn(self, node_id: str, state: State) -> None:
        """A node begins to do something else."""
        if self.desk.fleet.nodes_[node_id].state is NodeState.RUNNING:
            self.desk.fleet.show(node_id, state, 0.0)

    @rule(node_id=st.sampled_from(IDS), who=st.sampled_from(["nobody", "nobody", "somebody", "not seen"]))
    def people_come_and_go(self, node_id: str, who: str) -> None:
        """Somebody logs in, however silent, or out; or the agent no longer sees sessions."""
        self.present[node_id] = who

    @rule(
        grace=st.sampled_from([60.0, 600.0, 3600.0]),
        unattended=st.sampled_from([0.0, 0.0, 60.0, 240.0]),
        cost=st.sampled_from([120.0, RESTART, 1800.0]),
        timeout=st.sampled_from(["learned", "learned", "learned", "break_even", 300.0, 1800.0]),
        fresh=st.sampled_from([None, None, 1800.0]),
        action=st.sampled_from(["stop", "stop", "terminate", "report"]),
    )
    def the_settings_change(
        self, grace: float, unattended: float, cost: float, timeout: float | str, fresh: float | None, action: str
    ) -> None:
        """A file is edited and read anew: also another kind of wait, and another end."""
        idle = replace(
            self.desk.rules.idle,
            grace_period=grace,
            unattended_grace_period=unattended,
            restart_cost=cost,
            timeout=timeout,  # type: ignore[arg-type]  # one of its words
            fresh_timeout=fresh if timeout == "learned" else None,
            action=action,  # type: ignore[arg-type]  # likewise
        )
        self.desk.rules = replace(self.desk.rules, idle=idle)

    @rule(count=st.sampled_from([0, 1, 4]), observes=st.booleans())
    def nothing_is_done_for_a_while(self, count: int, observes: bool) -> None:
        """A pause, or rounds in the other mode."""
        if observes:
            self.desk.enforce = False
        else:
            self.desk.ledger.pause(None, "ann", "a drill", self.desk.clock.now())
        for _ in range(count):
            self.desk.round()
        if count or not observes:
            self.interrupted()
        self.desk.enforce = True
        self.desk.ledger.resume(None, "ann", self.desk.clock.now())

    @rule()
    def tags_get_through_or_do_not(self) -> None:
        """The cloud throttles what notices are made of, until it does not."""
        self.late ^= {"tag"}

    @rule(seconds=st.sampled_from([-3600.0, -30.0, 30.0, 3600.0]))
    def the_clock_is_set(self, seconds: float) -> None:
        """The controller's wall clock jumps; what was promised is not counted by it."""
        self.desk.clock.jump(seconds)
        self.jumped_seconds += seconds

    @rule(node_id=st.sampled_from(IDS))
    def start_again(self, node_id: str) -> None:
        """Whoever needs a stopped node starts it, and works."""
        if self.desk.fleet._now(self.desk.fleet.nodes_[node_id]).state is NodeState.STOPPED:
            self.desk.fleet.start(node_id, "owner")
            self.desk.fleet.show(node_id, State.BUSY, 0.0)

    @rule(count=st.sampled_from([1, 1, 2, 5, 12]), seconds=st.sampled_from([5.0, 60.0, 60.0, 300.0]))
    def rounds(self, count: int, seconds: float) -> None:
        """The controller works, sooner or later than a round a minute."""
        for _ in range(count):
            self.desk.round(seconds=seconds)

    def teardown(self) -> None:
        """One life more."""
        if hasattr(self, "desk"):
            lived(self.desk)


LearnedLife.TestCase.settings = settings(max_examples=LIVES, stateful_step_count=30, deadline=None)
TestLearnedLife = LearnedLife.TestCase


def test_a_pool_that_has_learned_stops_within_minutes_and_told_before() -> None:
    """The life above meets what it is about: a notice without grace in the second minute, the stop a round later."""
    life = LearnedLife()
    life.begin(length=90000.0, owner=None)
    life.turn("i-0", State.IDLE)
    life.rounds(4, 60.0)

    assert life.desk.fleet.stops() == ["i-0"]
    assert life.told["i-0"].grace == 0.0
