"""P1 to P13 and P20 over lives of a pool that grows and shrinks: launches, starts, a group, ends, terminate_after."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.clouds import (
    CloudError,
    CloudUnavailableError,
    InsufficientCapacityError,
    NotFoundError,
    ProtectedError,
    ThrottledError,
)
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import ADDITIONS, Intent, Outcome, Status, Verb
from gpuwatch.model.fleet import Node, NodeGroup, NodeReport, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.scaling import Metric, ScalingRules
from tests.support.builders.fleet import IDLE, LIVES, Desk, a_node, lived

POOL, GROUP = "default", "g-1"
IDS = ["i-0", "i-1", "i-2", "i-s"]
ERRORS = [
    ThrottledError("busy"),
    ProtectedError("no"),
    CloudUnavailableError("silence"),
    NotFoundError("unknown"),
    InsufficientCapacityError("none left"),
]
CALLS = ["nodes", "node", "tag", "terminate", "start", "launch", "find", "grow", "group", "groups"]
CALLS += ["protect", "nothing"]
RULES = PoolRules(
    min_nodes=1,
    max_nodes=8,
    warm_up=600.0,
    idle=replace(IDLE, timeout=300.0, grace_period=120.0, action="terminate", terminate_after=3600.0),
    scaling=ScalingRules(
        metrics={"queue": Metric(signal="promql", expression="queue", target=10.0, per_node=True)},
        cooldown_out=60.0,
        cooldown_in=120.0,
        stabilisation=120.0,
    ),
    launch=LaunchRules(template="lt-1", subnets=("subnet-a", "subnet-b")),
    start="any",
)
LIMITS = Limits(
    max_stops_per_round=2,
    max_stops_per_hour=4,
    max_stops_per_hour_ratio=1.0,
    max_additions_per_round=3,
    max_additions_per_hour=6,
    mass_idleness_nodes=50,
)


class PoolLife(RuleBasedStateMachine):
    """Load comes and goes, agents fail, clouds refuse and forget, people protect, the clock jumps."""

    @initialize(after=st.sampled_from([300.0, "learned"]))
    def begin(self, after: float | str) -> None:
        """Three idle machines, one stopped, and a consented group with one member; waits are set or learned."""
        idle = replace(RULES.idle, timeout=after)  # type: ignore[arg-type]  # one of its words
        self.least = after if isinstance(after, float) else 60.0
        self.desk = Desk(rules=replace(RULES, idle=idle), limits=LIMITS)
        fleet = self.desk.fleet
        for node_id in IDS[:3]:
            fleet.put(a_node(node_id, held=0.0))
        fleet.put(a_node("i-s", state=State.IDLE, held=0.0))
        fleet.put(replace(fleet.nodes_["i-s"], state=NodeState.STOPPED))
        fleet.put(a_node("i-g", held=0.0, group=GROUP))
        fleet.groups_[GROUP] = NodeGroup(
            id=GROUP, name="trainers", pool=POOL, min_size=0, max_size=3, desired=1, region="us-east-1", enrolled=True,
            node_ids=("i-g",),
        )  # fmt: skip
        self.deaf: set[str] = set()
        self.jumped_seconds = 0.0
        self.protected: set[str] = set()
        self.taken_over: int | None = None  # after how many calls the member's owner protected it
        fleet.answer = self.answer
        fleet.numbers[POOL, "queue"] = 30.0
        self.watch()

    def watch(self) -> None:
        """Look over the shoulder of every removal, and of every settlement."""
        fleet, ledger = self.desk.fleet, self.desk.ledger
        self.removed_at: list[datetime] = []
        settle = ledger.settle

        def watched(node_id: str, key: str) -> None:
            node = fleet._now(fleet.nodes_[node_id])
            open_keys = {entry.intent.key for entry in ledger.view(self.desk.clock.now()).open_intents}
            assert key in open_keys, "P12: a mutation without an earlier ledger record"
            assert node.enrolled, f"P3: {node_id} is not enrolled"
            assert node.protected is None, f"P3: {node_id} is protected"
            self.removed_at.append(self.desk.clock.now())
            if node.state is NodeState.STOPPED:
                stopped = {each.node_id for each in ledger.view(self.desk.clock.now()).stopped}
                assert node_id in stopped, f"{node_id} was terminated although somebody else stopped it"
                return
            assert node_id not in self.deaf, f"P1: {node_id} was removed while its agent was silent"
            assert node.activity.state is State.IDLE, f"P2: {node_id} was removed while {node.activity.state}"
            assert node.activity.held_seconds >= self.least, f"P9: idle for {node.activity.held_seconds} s only"

        def watched_settle(intent: Intent, status: Status, detail: str, at: datetime) -> Outcome:
            if intent.verb is Verb.TERMINATE and status is Status.SETTLED:
                state = fleet._now(fleet.nodes_[intent.node_id]).state
                assert state is NodeState.TERMINATED, f"P13: settled while the cloud says {state}"
            return settle(intent, status, detail, at)

        fleet.watch_stop = watched
        ledger.settle = watched_settle  # type: ignore[method-assign]  # the way to look over its shoulder

    def answer(self, node: Node) -> NodeReport:
        """An agent's answer: the truth, or nothing."""
        verdict = node.signal.verdict
        if node.id in self.deaf or verdict is None:
            return NodeReport(failure="its agent did not answer within 5s")
        at = self.desk.clock.now() - timedelta(seconds=self.jumped_seconds)
        return NodeReport(verdict=replace(verdict, at=at, age_seconds=0.5))

    @rule(load=st.none() | st.sampled_from([0.0, 5.0, 25.0, 60.0, 500.0]))
    def the_load_changes(self, load: float | None) -> None:
        """The queue grows, empties, or is not known."""
        self.desk.fleet.numbers[POOL, "queue"] = load

    @rule(node_id=st.sampled_from([*IDS, "i-g", "newest"]), state=st.sampled_from(State))
    def turn(self, node_id: str, state: State) -> None:
        """A machine begins to do something else."""
        fleet = self.desk.fleet
        found = list(fleet.nodes_)[-1] if node_id == "newest" else node_id
        fleet.show(found, state, 0.0)

    @rule()
    def everybody_goes_home(self) -> None:
        """All machines turn idle."""
        for node_id in list(self.desk.fleet.nodes_):
            self.desk.fleet.show(node_id, State.IDLE, 0.0)

    @rule(node_id=st.sampled_from([*IDS, "i-g"]))
    def fall_silent_or_speak_again(self, node_id: str) -> None:
        """An agent dies, or comes back."""
        self.deaf ^= {node_id}

    @rule(node_id=st.sampled_from([*IDS, "i-g"]), why=st.none() | st.just("tag gpuwatch:protect"))
    def protect(self, node_id: str, why: str | None) -> None:
        """Somebody sets or removes the protection tag."""
        self.desk.fleet.put(replace(self.desk.fleet.nodes_[node_id], protected=why))

    @rule()
    def the_owner_protects_the_member(self) -> None:
        """Whatever protection there is goes, a round sees that, and the owner sets it again."""
        fleet = self.desk.fleet
        self.taken_over = None
        fleet.put(replace(fleet.nodes_["i-g"], scale_in_protected=False))
        self.desk.rest(120.0)
        seen = self.desk.round().trouble is None
        if seen and not fleet.nodes_["i-g"].scale_in_protected:
            fleet.put(replace(fleet.nodes_["i-g"], scale_in_protected=True))
            self.taken_over = len(fleet.calls)

    @rule()
    def the_owner_no_longer_minds(self) -> None:
        """The owner's protection goes."""
        if self.taken_over is not None:
            self.desk.fleet.put(replace(self.desk.fleet.nodes_["i-g"], scale_in_protected=False))
            self.taken_over = None

    @rule(seconds=st.sampled_from([1.0, 60.0, 240.0, 600.0, 3600.0]))
    def time_passes(self, seconds: float) -> None:
        """Nothing happens for a while."""
        self.desk.rest(seconds)

    @rule(seconds=st.sampled_from([-7200.0, -30.0, 30.0, 7200.0]))
    def the_clock_jumps(self, seconds: float) -> None:
        """The controller's wall clock is set."""
        self.desk.clock.jump(seconds)
        self.jumped_seconds += seconds

    @rule(
        call=st.sampled_from(CALLS),
        error=st.sampled_from(ERRORS),
        lost=st.booleans(),
        lag=st.sampled_from([0.0, 90.0, 1200.0]),
    )
    def the_cloud_misbehaves(self, call: str, error: CloudError, lost: bool, lag: float) -> None:
        """From now on one kind of call fails, before or after its effect; or all is well again."""
        fleet = self.desk.fleet
        fleet.fault = lambda asked, _: error if asked == call and not lost else None
        fleet.lose = lambda asked, _: CloudUnavailableError("lost") if asked == call and lost else None
        fleet.lag = lambda: lag

    @rule()
    def a_day_passes(self) -> None:
        """A day with a round every four hours."""
        for _ in range(6):
            self.desk.round(seconds=4 * 3600.0)

    @rule(count=st.sampled_from([1, 2, 6, 20]))
    def rounds(self, count: int) -> None:
        """The controller works, a round a minute."""
        for _ in range(count):
            self.desk.round()

    @rule()
    def a_plan_equals_its_round(self) -> None:
        """P5: unless the round first settles something, plan and round review the same."""
        plan = self.desk.plan()
        done = step(self.desk.parts)

        assert done.settled or (plan.decisions, plan.reviews) == (done.decisions, done.reviews), "P5: plan differs"

    @invariant()
    def the_pool_keeps_its_minimum(self) -> None:
        """P7: gpuwatch alone never empties a pool."""
        if getattr(self, "removed_at", []):
            running = sum(node.state is NodeState.RUNNING for node in self.desk.fleet.nodes_.values())
            assert running >= RULES.min_nodes, "P7: the pool fell below its minimum"

    @invariant()
    def what_its_owner_protects_stays(self) -> None:
        """P20: neither its protection nor the member itself is taken."""
        if getattr(self, "taken_over", None) is None:
            return
        since = self.desk.fleet.calls[self.taken_over :]
        assert not {("unprotect", "i-g"), ("terminate", "i-g")} & {(call, name) for call, name, _ in since}, "P20"

    @invariant()
    def the_pool_keeps_its_maximum(self) -> None:
        """The ceiling holds, whatever was lost on the way."""
        if hasattr(self, "desk"):
            there = [node.id for node in self.desk.fleet.nodes_.values() if node.state is NodeState.RUNNING]
            assert len(there) <= 8, f"{len(there)} nodes run, max_nodes is 8"

    @invariant()
    def no_hour_sees_too_many_changes(self) -> None:
        """P4: limits hold in both directions, whatever happens between the rounds."""
        if not hasattr(self, "desk"):
            return
        for end in self.removed_at:
            within = sum(end - timedelta(hours=1) < at <= end for at in self.removed_at)
            assert within <= LIMITS.max_stops_per_hour, f"P4: {within} removals within the hour before {end}"

    @invariant()
    def an_intent_is_carried_out_once(self) -> None:
        """P6, P12: every launch has its own key and intent, and no key launches twice."""
        if not hasattr(self, "desk"):
            return
        launched = Counter(key for call, _, key in self.desk.fleet.calls if call == "launch")
        machines = Counter(node.tags.get("gpuwatch:decision-id") for node in self.desk.fleet.nodes_.values())
        for key in launched:
            assert machines[key] <= 1, f"P6: {key} brought {machines[key]} machines"

    def teardown(self) -> None:
        """Whatever happened: once all is well again, the clock right and everybody at work, nothing stays open."""
        if not hasattr(self, "desk"):
            return
        fleet = self.desk.fleet
        self.desk.clock.jump(-self.jumped_seconds)
        self.jumped_seconds = 0.0
        fleet.fault = fleet.lose = lambda _asked, _node: None
        for node in list(fleet.nodes_.values()):
            if node.state is NodeState.RUNNING:
                fleet.show(node.id, State.BUSY, 0.0)
        for _ in range(30):
            self.desk.round()
        view = self.desk.ledger.view(self.desk.clock.now())
        lived(self.desk)
        waiting = [entry for entry in view.open_intents if entry.intent.verb not in ADDITIONS or not entry.resumable]
        assert waiting == [], f"half an hour of calm left {[(each.intent.verb, each.last) for each in waiting]} open"


PoolLife.TestCase.settings = settings(max_examples=LIVES, stateful_step_count=40, deadline=None)
TestPoolLife = PoolLife.TestCase
