"""P1 to P15 over generated lives of a fleet: whatever happens in whatever order, these sentences stay true."""

from dataclasses import dataclass, replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.clouds import CloudError, CloudUnavailableError, NotFoundError, ProtectedError, ThrottledError
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Intent, Outcome, Status, Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.orders import BacktestRecord
from gpuwatch.policies import PoolRules
from gpuwatch.policies.fingerprint import fingerprint
from gpuwatch.policies.idle import IdleRules
from tests.support.builders.backtests import a_backtest
from tests.support.builders.fleet import LIVES, Desk, a_node, lived

IDS = [f"i-{n}" for n in range(5)]
ERRORS = [ThrottledError("busy"), ProtectedError("no"), CloudUnavailableError("silence"), NotFoundError("unknown")]
AFTER = 300.0
# Short waits, so that a few dozen events make a whole life.
LATER = 900.0
OWNED = IdleRules(occupied_timeout=LATER, parked_timeout=LATER, stalled="report", owner_grace_period=240.0)
RULES = PoolRules(min_nodes=1, warm_up=600.0, idle=replace(OWNED, timeout=AFTER, grace_period=120.0))
# How long a node must have been so before it is stopped.
WAITS = {State.IDLE: AFTER, State.OCCUPIED: LATER, State.PARKED: LATER}
LIMITS = Limits(max_stops_per_round=2, max_stops_per_hour=3, max_stops_per_hour_ratio=0.8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an owner was told, and when on the clock that nobody sets; `interrupted`: nothing was done for a while."""

    at: float
    pool: str
    rules: PoolRules
    state: State
    interrupted: bool = False


class FleetLife(RuleBasedStateMachine):
    """Machines live, agents fail, clocks jump, clouds refuse, people protect and change the settings."""

    @initialize(
        required=st.sampled_from([None, None, 86400.0]),
        asks=st.sampled_from([*[None] * 4, "told", "approved"]),
        slow=st.sampled_from([0.0, 0.0, 18.0]),
    )
    def begin(self, required: float | None, asks: str | None, slow: float) -> None:
        """Five idle machines, long up; now and then a backtest, a message to people or an approval is required."""
        limits = replace(LIMITS, require_backtest=required, require_notification=asks == "told")
        self.desk = Desk(rules=replace(RULES, approval=asks == "approved"), limits=limits)
        self.asks = asks
        self.spoken: set[str] = set()  # the notices of which people were told, and to which they said yes
        self.tried: dict[str, BacktestRecord] = {}  # by rules
        self.told: dict[str, Told] = {}  # by node
        for node_id in IDS:
            self.desk.fleet.put(a_node(node_id, held=0.0))
        self.deaf: set[str] = set()
        self.asked: dict[str, float] = {}  # when each agent was asked last, by a clock that also runs in sleep
        # By call: whether the controller's machine sleeps meanwhile, and for how long.
        self.slow: dict[str, tuple[bool, float]] = {"stop": (False, slow)}
        self.error: tuple[str, CloudError | None] = ("", None)
        self.desk.fleet.fault = self.strike
        self.jumped_seconds = 0.0
        self.started: dict[str, float] = {}  # on the clock that does not jump
        self.desk.fleet.answer = self.answer
        self.watch()

    def watch(self) -> None:
        """Look over the shoulder of every call that stops something, and of every settlement."""
        fleet, ledger = self.desk.fleet, self.desk.ledger
        self.stopped_at: list[float] = []  # on the clock that does not jump
        self.rules_of: dict[str, tuple[PoolRules, State]] = {}  # under which a notice was first tried, by its key
        settle = ledger.settle

        def watched_stop(node_id: str, key: str) -> None:
            node = fleet._now(fleet.nodes_[node_id])
            open_intents = [entry.intent for entry in ledger.view(self.desk.clock.now()).open_intents]
            assert key in {each.key for each in open_intents}, "P12: a mutation without an earlier ledger record"
            assert node_id not in self.deaf, f"P1: {node_id} was stopped while its agent was silent"
            state, held = node.activity.state, node.activity.held_seconds
            assert state in WAITS, f"P2: {node_id} was stopped while {state}"
            assert held >= WAITS[state], f"P9: {state} for {held} s only"
            assert node.enrolled, f"P3: {node_id} is not enrolled"
            assert node.protected is None, f"P3: {node_id} is protected"
            assert self.up_for(node) >= RULES.warm_up, f"P10: {node_id} was stopped in its warm-up"
            assert node.state is NodeState.RUNNING, f"P6: {node_id} was told to stop while {node.state}"
            age = self.desk.clock.uptime() - self.asked[node_id]
            assert age <= LIMITS.max_confirmation_age, f"P15: {node_id} was stopped on a word {age} s old"
            assert self.vouched_for(), f"{node_id} was stopped under rules that no backtest vouches for"
            notice = ledger.view(self.desk.clock.now()).notice(node_id)
            assert notice is not None, f"{node_id} was stopped without a notice"
            result = self.told[node_id]
            asks = self.asks == "told" or (self.asks == "approved" and result.rules.approval)
            assert not asks or notice.key in self.spoken, f"{node_id} was stopped and nobody had {self.asks} it"
            self.as_told(node, result, next(each for each in open_intents if each.key == key).verb)
            self.stopped_at.append(self.desk.clock.monotonic())

        def watched_settle(intent: Intent, status: Status, detail: str, at: object) -> Outcome:
            if intent.verb is Verb.STOP and status is Status.SETTLED:
                state = fleet._now(fleet.nodes_[intent.node_id]).state
                assert state in {NodeState.STOPPED, NodeState.TERMINATED}, f"P13: settled while the cloud says {state}"
            if intent.verb is Verb.NOTICE and intent.key not in self.rules_of:
                self.rules_of[intent.key] = self.desk.rules, fleet.nodes_[intent.node_id].activity.state
            if intent.verb is Verb.NOTICE and status is Status.SETTLED:
                (rules, was), at_ = self.rules_of[intent.key], self.desk.clock.monotonic()
                self.told[intent.node_id] = Told(at=at_, pool=intent.pool, rules=rules, state=was)
            return settle(intent, status, detail, at)  # type: ignore[arg-type]

        fleet.watch_stop = watched_stop
        ledger.settle = watched_settle  # type: ignore[method-assign]

    def as_told(self, node: Node, result: Told, verb: Verb) -> None:
        """P14: the action, the pool and the grace are those that the owner was told, or milder."""
        waited = self.desk.clock.monotonic() - result.at
        idle = result.rules.idle
        grace = idle.grace_period if result.state is State.IDLE else idle.owner_grace_period
        assert waited >= grace, f"P14: {grace} s were promised, it were {waited}"
        assert node.activity.state is result.state, f"P14: it was {result.state} when its owner was told"
        ends = idle.action if result.state is State.IDLE else "stop"
        assert verb is Verb.STOP or ends == "terminate", "P14: a stop was promised"
        assert result.pool == node.pool, f"P14: the notice was for pool {result.pool}"
        assert not result.interrupted, "P14: nothing was done for a while since the notice"

    def interrupted(self) -> None:
        """Every notice so far came before this."""
        self.told = {node_id: replace(result, interrupted=True) for node_id, result in self.told.items()}

    @rule(
        notice=st.sampled_from([1.0, 120.0, 600.0]),
        then=st.sampled_from(["stop", "stop", "terminate", "report"]),
        approval=st.booleans(),
    )
    def the_settings_change(self, notice: float, then: str, approval: bool) -> None:
        """A file is edited and read anew; the approval goes and comes only where the machine's story has one."""
        idle = replace(self.desk.rules.idle, grace_period=notice, action=then)  # type: ignore[arg-type]  # one of its words
        approval = approval and self.asks == "approved"
        self.desk.rules = replace(self.desk.rules, idle=idle, approval=approval)

    @rule(node_id=st.sampled_from(IDS), pool=st.sampled_from(["default", "other"]))
    def retag(self, node_id: str, pool: str) -> None:
        """Somebody moves a machine to another pool."""
        self.desk.fleet.put(replace(self.desk.fleet.nodes_[node_id], pool=pool))

    @rule(seconds=st.none() | st.sampled_from([60.0, 600.0]), count=st.sampled_from([0, 1, 4]))
    def a_pause(self, seconds: float | None, count: int) -> None:
        """Somebody pauses everything, for a time or until it is resumed."""
        now = self.desk.clock.now()
        self.desk.ledger.pause(None, "ann", "", now, None if seconds is None else now + timedelta(seconds=seconds))
        self.interrupted()
        for _ in range(count):
            self.desk.round()
        if seconds is None:
            self.desk.ledger.resume(None, "ann", self.desk.clock.now())

    @rule(count=st.sampled_from([1, 4]))
    def observing(self, count: int) -> None:
        """The other mode for a few rounds."""
        self.desk.enforce = False
        for _ in range(count):
            if self.desk.round().trouble is None:
                self.interrupted()
        self.desk.enforce = True

    def vouched_for(self) -> bool:
        """Whether no backtest is required, or the newest of these rules passed, lately by the controller's clock."""
        limit, found = self.desk.limits.require_backtest, self.tried.get(fingerprint(self.desk.rules))
        if limit is None:
            return True
        return (
            found is not None
            and found.failure is None
            and 0 <= (self.desk.clock.now() - found.at).total_seconds() <= limit
        )

    def up_for(self, node: Node) -> float:
        """Seconds since the machine was started, on the fleet's own clock."""
        return self.desk.clock.monotonic() - self.started.get(node.id, float("-inf"))

    def strike(self, call: str, _: str) -> CloudError | None:
        """What becomes of a call: it takes its time, and may fail."""
        asleep, seconds = self.slow.get(call, (False, 0.0))
        (self.desk.clock.suspend if asleep else self.desk.clock.advance)(seconds)
        return self.error[1] if self.error[0] == call else None

    def answer(self, node: Node) -> NodeReport:
        """An agent's answer: the truth, or nothing."""
        self.asked[node.id] = self.desk.clock.uptime()
        if node.id in self.deaf:
            return NodeReport(failure="its agent did not answer within 5s")
        verdict = node.signal.verdict
        if verdict is None:
            return node.signal
        at = self.desk.clock.now() - timedelta(seconds=self.jumped_seconds)  # the hosts' clocks are right
        return NodeReport(verdict=replace(verdict, at=at, age_seconds=0.5))

    @rule(node_id=st.sampled_from(IDS), state=st.sampled_from(State))
    def turn(self, node_id: str, state: State) -> None:
        """A machine begins to do something else."""
        self.desk.fleet.show(node_id, state, 0.0)

    @rule(node_id=st.sampled_from(IDS))
    def fall_silent_or_speak_again(self, node_id: str) -> None:
        """An agent dies, or comes back."""
        self.deaf ^= {node_id}

    @rule(node_id=st.sampled_from(IDS), why=st.none() | st.just("tag gpuwatch:protect"))
    def protect(self, node_id: str, why: str | None) -> None:
        """Somebody sets or removes the protection tag."""
        self.desk.fleet.put(replace(self.desk.fleet.nodes_[node_id], protected=why))

    @rule(node_id=st.sampled_from(IDS), enrolled=st.booleans())
    def enrol(self, node_id: str, enrolled: bool) -> None:
        """Somebody sets or removes the fleet tag."""
        self.desk.fleet.put(replace(self.desk.fleet.nodes_[node_id], enrolled=enrolled))

    @rule(node_id=st.sampled_from(IDS))
    def start_again(self, node_id: str) -> None:
        """An owner starts a stopped machine."""
        node = self.desk.fleet._now(self.desk.fleet.nodes_[node_id])
        if node.state is NodeState.STOPPED:
            self.desk.fleet.start(node_id, "owner")
            self.desk.fleet.show(node_id, State.IDLE, 0.0)
            self.desk.fleet.calls.pop()
            self.started[node_id] = self.desk.clock.monotonic()

    @rule(rules=st.sampled_from([RULES, RULES, PoolRules()]), failure=st.none() | st.just("wrong stops, 2 of 9"))
    def somebody_backtests(self, rules: PoolRules, failure: str | None) -> None:
        """The pool's rules, or others, are tried, and pass or do not."""
        rules = self.desk.rules if rules is RULES else rules
        made = a_backtest(rules=fingerprint(rules), at=self.desk.clock.now(), failure=failure)
        self.desk.ledger.keep_backtest(made)
        self.tried[made.rules] = made

    @rule(node_id=st.sampled_from(IDS))
    def people_hear_of_a_notice_and_agree(self, node_id: str) -> None:
        """A message about it arrives, and an operator approves it."""
        now = self.desk.clock.now()
        notice = self.desk.ledger.view(now).notice(node_id)
        if notice is not None and self.asks is not None:
            self.spoken.add(notice.key)
            self.desk.ledger.messages.keep(notice.key, "ops", now, reached=True, detail="")
            self.desk.ledger.approve(node_id, "ann@host", "", now)

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
        call=st.sampled_from(["nodes", "node", "stop", "tag", "nothing"]),
        error=st.sampled_from(ERRORS),
        lost=st.booleans(),
        lag=st.sampled_from([0.0, 90.0, 1200.0]),
    )
    def the_cloud_misbehaves(self, call: str, error: CloudError, lost: bool, lag: float) -> None:
        """From now on one kind of call fails, before or after its effect; or all is well again."""
        fleet = self.desk.fleet
        self.error = (call, None if lost else error)
        fleet.lose = lambda asked, _: CloudUnavailableError("lost") if asked == call and lost else None
        fleet.lag = lambda: lag

    @rule(
        call=st.sampled_from(["stop", "stop", "node", "tag"]),
        asleep=st.booleans(),
        seconds=st.sampled_from([0.0, 0.0, 2.0, 4.0, 18.0, 90.0]),
    )
    def a_call_takes_its_time(self, call: str, asleep: bool, seconds: float) -> None:
        """From now on: credentials, connections, or a controller that is suspended meanwhile."""
        self.slow[call] = (asleep, seconds)

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
        """P5: unless the round first settles something, plan and round review the same, at the same time."""
        slow, self.slow = self.slow, {}  # calls that take time would put the round behind the plan
        plan = self.desk.plan()
        done = step(self.desk.parts)
        self.slow = slow

        assert done.settled or (plan.decisions, plan.reviews) == (done.decisions, done.reviews), "P5: plan differs"

    @invariant()
    def the_pool_keeps_its_minimum(self) -> None:
        """P7: gpuwatch alone never empties a pool."""
        if not getattr(self, "stopped_at", []):
            return
        running = sum(node.state is NodeState.RUNNING for node in self.desk.fleet.nodes_.values())
        assert running >= RULES.min_nodes, "P7: the pool fell below its minimum"

    @invariant()
    def no_hour_sees_too_many_stops(self) -> None:
        """P4: limits hold whatever happens between the rounds."""
        for end in getattr(self, "stopped_at", []):
            within = sum(end - 3600.0 < at <= end for at in self.stopped_at)
            assert within <= LIMITS.max_stops_per_hour, f"P4: {within} stops within the hour before {end:.0f} s"

    def teardown(self) -> None:
        """One life more."""
        if hasattr(self, "desk"):
            lived(self.desk)


FleetLife.TestCase.settings = settings(max_examples=max(25, LIVES), stateful_step_count=50, deadline=None)
TestFleetLife = FleetLife.TestCase
