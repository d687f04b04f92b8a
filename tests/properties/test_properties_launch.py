"""P17: capacity that was asked for is capacity, shown or not: never more than wanted, at any step and any power cut."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.clouds import CloudUnavailableError, ThrottledError
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import Node, NodeGroup, NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import LIVES, Desk, FakeFleet, lived
from tests.support.crash_points import Fate, PowerCut, a_mortal

LIMITS = Limits(
    max_additions_per_round=9,
    max_additions_per_hour=999,
    max_stops_per_round=9,
    max_stops_per_hour=999,
    max_stops_per_hour_ratio=1.0,
    mass_idleness_nodes=99,
)
FOREVER = 1e9
ALIVE = {NodeState.RUNNING, NodeState.PENDING}
KINDS = ["a node", "a node", "no GPU", "another pool", "no tag", "ends at once"]


@dataclass(slots=True)
class LateFleet(FakeFleet):
    """A cloud whose lists are late, leave out what is new, or never show a machine; its truth is plain fields."""

    kind: str = "a node"
    delay: float = 0.0
    shown_at: dict[str, float] = field(default_factory=dict)
    pool_of: dict[str, str] = field(default_factory=dict)  # what each machine was launched for
    late_groups: tuple[NodeGroup, ...] | None = None
    wanted: int = 0
    blink: bool = False

    def there(self) -> int:
        """What the pool costs: its running machines, and all that were launched for it."""
        nodes = [self._now(node) for node in list(self.nodes_.values())]
        mine = [node for node in nodes if self.pool_of.get(node.id, node.pool) == "default"]
        return sum(node.state in ALIVE for node in mine)

    def launch(self, arguments: Mapping[str, str], key: str) -> str:
        """A machine of the kind of the hour."""
        before, born = self.there(), set(self.nodes_)
        try:
            return FakeFleet.launch(self, arguments, key)
        finally:
            for node_id in set(self.nodes_) - born:
                self.pool_of[node_id] = arguments["pool"]
                self.shown_at[node_id] = self.clock.monotonic() + self.delay
                self._judge(before)

    def start(self, node_id: str, key: str) -> None:
        """Seen by a list a little later."""
        before, slept = self.there(), self.nodes_[node_id].state not in ALIVE
        FakeFleet.start(self, node_id, key)
        if slept:
            self._judge(before)

    def grow(self, group_id: str, size: int, key: str) -> None:
        """Its members are listed a little later."""
        before, born = self.there(), set(self.nodes_)
        try:
            FakeFleet.grow(self, group_id, size, key)
        finally:
            for node_id in set(self.nodes_) - born:
                self.shown_at[node_id] = self.clock.monotonic() + min(self.delay, 240.0)
            if set(self.nodes_) - born:
                self._judge(before)

    def groups(self) -> tuple[NodeGroup, ...]:
        """As they are, or as they were."""
        now = FakeFleet.groups(self)
        return now if self.late_groups is None else self.late_groups

    def _judge(self, before: int) -> None:
        after = self.there()
        assert after <= max(before, self.wanted), f"P17: {after} machines, {self.wanted} are wanted"

    def shows(self, node: Node) -> bool:
        """Whether a list has it: from its time on, and for some minutes after that only now and then."""
        since = self.clock.monotonic() - self.shown_at.get(node.id, 0.0)
        return node.gpu_count != 0 and since >= 0 and not (self.blink and node.id in self.shown_at and since < 240)

    def make(self, node: Node) -> Node:
        """What comes of a launch."""
        changes: dict[str, dict[str, Any]] = {
            "no GPU": {"gpu_count": 0},
            "another pool": {"pool": "dev"},
            "no tag": {"enrolled": False},
            "ends at once": {"state": NodeState.TERMINATED},
        }
        return replace(node, **changes.get(self.kind, {}))


class TwoPools(Desk):
    """The pool, and another in which nothing is wanted."""

    @property
    def rulebook(self) -> Rulebook:
        """Both pools' rules."""
        return Rulebook(pools={"default": self.rules, "dev": PoolRules()}, limits=self.limits, enforce=True)


class LaunchLife(RuleBasedStateMachine):
    """The wish changes, lists are late, answers are lost, machines are odd, and the controller dies anywhere."""

    @initialize(start=st.sampled_from(["own", "any"]), grouped=st.booleans())
    def begin(self, start: Any, grouped: bool) -> None:  # noqa: ANN401  one of two words
        """An empty pool that has a template, and may have a group."""
        rules = PoolRules(
            warm_up=0.0,
            start=start,
            idle=IdleRules(timeout=300.0, grace_period=60.0),
            launch=LaunchRules(template="lt-1", subnets=("subnet-a", "subnet-b")),
        )
        self.desk = TwoPools(rules=rules, limits=LIMITS)
        self.fleet = LateFleet(clock=self.desk.clock)
        self.fleet.born, self.fleet.listed = self.fleet.make, self.fleet.shows
        self.desk.fleet = self.fleet
        if grouped:
            self.fleet.groups_["g-1"] = NodeGroup(
                id="g-1", name="g", pool="default", min_size=0, max_size=3, desired=0, region="r", enrolled=True
            )

    @rule(count=st.integers(0, 6))
    def the_wish_changes(self, count: int) -> None:
        """More or fewer nodes are wanted."""
        window = {"always": Window(min_nodes=count)} if count else {}
        self.desk.rules = replace(self.desk.rules, schedule=window)
        self.fleet.wanted = count

    @rule(kind=st.sampled_from(KINDS), delay=st.sampled_from([0.0, 90.0, 1500.0, FOREVER]), hidden=st.booleans())
    def launches_turn_odd(self, kind: str, delay: float, hidden: bool) -> None:
        """What is launched from now on; a search by key may be as blind as the list, if answers arrive."""
        self.fleet.kind, self.fleet.delay = kind, delay
        clock, shown = self.desk.clock, self.fleet.shown_at
        late = (lambda node: clock.monotonic() >= shown.get(node.id, 0.0)) if hidden else (lambda _: True)
        self.fleet.found = late
        self.fleet.lose = lambda _call, _node: None

    @rule(call=st.sampled_from(["launch", "start", "grow", "nothing"]), throttled=st.booleans())
    def answers_are_lost(self, call: str, throttled: bool) -> None:
        """The cloud does it and nobody hears of it, or refuses; what it did it shows within minutes."""
        self.fleet.delay = min(self.fleet.delay, 300.0)
        error = ThrottledError("busy")
        self.fleet.fault = lambda asked, _: error if throttled and asked == call else None
        self.fleet.lose = lambda asked, _: CloudUnavailableError("lost") if asked == call else None

    @rule(late=st.booleans(), blink=st.booleans())
    def lists_are_late(self, late: bool, blink: bool) -> None:
        """The sizes of groups are those of now for a while; new machines are left out."""
        self.fleet.late_groups = tuple(self.fleet.groups_.values()) if late else None
        self.fleet.blink = blink

    @rule()
    def everybody_goes_home(self) -> None:
        """All machines turn idle."""
        for node_id in list(self.fleet.nodes_):
            self.fleet.show(node_id, State.IDLE, 0.0)

    @rule(count=st.sampled_from([1, 2, 6, 15]))
    def rounds(self, count: int) -> None:
        """The controller works; late sizes are shown after some rounds."""
        for number in range(count):
            if number == 3:
                self.fleet.late_groups = None
            self.desk.round()

    @rule(where=st.integers(1, 40), downtime=st.sampled_from([0.0, 61.0, 1800.0]))
    def the_power_fails(self, where: int, downtime: float) -> None:
        """At any call, before or after its effect; only the ledger is left."""
        try:
            step(a_mortal(self.desk, Fate(where)))
        except PowerCut:
            self.desk.rest(downtime)
        self.desk.rest(60.0)

    @rule(hours=st.sampled_from([2, 30]))
    def time_passes(self, hours: int) -> None:
        """A round an hour: what limits look back on is forgotten."""
        self.fleet.late_groups = None
        for _ in range(hours):
            self.desk.round(seconds=3600.0)

    @invariant()
    def nobody_counts_more_than_there_is_for_ever(self) -> None:
        """The other way: an open launch has a machine, or ends."""
        if hasattr(self, "desk"):
            view = self.desk.ledger.view(self.desk.clock.now())
            assert len(view.open_intents) <= 30, [each.last for each in view.open_intents]

    def teardown(self) -> None:
        """Once all is well again the pool gets what it wants."""
        if not hasattr(self, "desk"):
            return
        fleet = self.fleet
        fleet.kind, fleet.delay, fleet.blink, fleet.late_groups = "a node", 0.0, False, None
        fleet.found = lambda _: True
        fleet.fault = fleet.lose = lambda _call, _node: None
        for node_id, node in list(fleet.nodes_.items()):  # people end what is no node
            if node_id in fleet.pool_of and (node.pool != "default" or not node.enrolled or node.gpu_count == 0):
                fleet.put(replace(node, state=NodeState.TERMINATED))
            fleet.shown_at.pop(node_id, None)
        self.desk.rest(3600.0)
        for number in range(40):
            if number == 2:  # and say so
                self.desk.ledger.resume("default", "ann", self.desk.clock.now())
            self.desk.round()
        lived(self.desk)
        assert fleet.there() >= fleet.wanted, f"{fleet.there()} machines, {fleet.wanted} are wanted"


LaunchLife.TestCase.settings = settings(max_examples=LIVES, stateful_step_count=30, deadline=None)
TestLaunchLife = LaunchLife.TestCase
