"""P14 where the wait is learned and holds its notice: what was told is kept, whoever comes and whatever is learned."""

from dataclasses import dataclass, replace
from datetime import datetime

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.decision import Intent, Outcome, Status, Verb
from gpuwatch.model.fleet import DEFAULT_POOL, Node, NodeReport, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import ATTENDED_WAIT_SECONDS, IdleRules
from gpuwatch.policies.idle_timeout import gap_history as gaps
from gpuwatch.policies.idle_timeout.break_even import MINIMUM_WAIT_SECONDS
from gpuwatch.policies.idle_timeout.gap_history import GapHistory
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
        history = gaps.aged(history, at)
        for node_id in IDS if length > RESTART else ():
            history = gaps.reclaimed(gaps.aged(history, at + RESTART), node_id, at + RESTART)
        at += length
        for node_id in IDS:
            history = gaps.needed(gaps.aged(history, at), node_id, at)
        at += 300.0
    return history


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """When a notice was given, on the clock that nobody sets, and the grace of whoever was there."""

    at: float
    grace: float


class LearnedLife(RuleBasedStateMachine):
    """Machines pause and work, people come and go, somebody edits the graces; the pool has learned to stop early."""

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
        self.desk.fleet.answer = self.answer
        self.desk.fleet.watch_stop = self.stops
        settle = self.desk.ledger.settle

        def watched(intent: Intent, status: Status, detail: str, at: datetime) -> Outcome:
            if intent.verb is Verb.NOTICE and status is Status.SETTLED:
                self.tells(intent.node_id)
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
        return NodeReport(verdict=replace(verdict, at=self.desk.clock.now(), activity=activity, age_seconds=0.5))

    def grace(self, node_id: str) -> float:
        """By the rules of now, for whoever is there."""
        node, idle = self.desk.fleet.nodes_[node_id], self.desk.rules.idle
        alone = node.owner is None and self.present[node_id] == "nobody"
        return idle.unattended_grace_period if alone else idle.grace_period

    def tells(self, node_id: str) -> None:
        """A notice is never given in the first minute, nor in the first half hour where people may be."""
        held = self.desk.fleet.nodes_[node_id].activity.held_seconds
        least = MINIMUM_WAIT_SECONDS if self.present[node_id] == "nobody" else ATTENDED_WAIT_SECONDS
        assert held >= least, f"P9: told after {held} s of idleness, {self.present[node_id]} there"
        self.told[node_id] = Told(at=self.desk.clock.monotonic(), grace=self.grace(node_id))

    def stops(self, node_id: str, _key: str) -> None:
        """P14: the grace that was told is over, or that of whoever came since; the node was idle throughout."""
        node, told = self.desk.fleet.nodes_[node_id], self.told[node_id]
        waited = self.desk.clock.monotonic() - told.at
        promised = max(told.grace, self.grace(node_id))
        assert waited >= promised, f"P14: {promised} s were promised, it were {waited}"
        assert waited > 0, "P14: it was stopped in the round of its notice"
        assert node.activity.state is State.IDLE, f"P2: it was stopped while {node.activity.state}"
        assert node.activity.held_seconds >= waited - 5.0, "P14: it worked since its notice"

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
    )
    def the_settings_change(self, grace: float, unattended: float, cost: float) -> None:
        """A file is edited and read anew."""
        idle = replace(self.desk.rules.idle, grace_period=grace, unattended_grace_period=unattended, restart_cost=cost)
        self.desk.rules = replace(self.desk.rules, idle=idle)

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
