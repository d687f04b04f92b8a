"""A group whose cloud has no more machines: its pool asks elsewhere, and never has more than its maximum for it."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.clouds import CloudError, CloudUnavailableError, ThrottledError
from gpuwatch.controller.context import Memory
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import LIVES, RULES, Desk, lived
from tests.support.builders.light_desk import a_daily_ledger
from tests.support.builders.past_steps import a_group

LIMITS = Limits(max_additions_per_round=9, max_additions_per_hour=99)
MOST = 6


class GroupsWithoutStock(RuleBasedStateMachine):
    """Lives of a pool with a group and a template; all its nodes work. Each invariant is a promise."""

    @initialize(mute=st.booleans(), by_name=st.booleans(), most=st.sampled_from([MOST, None]))
    def begin(self, *, mute: bool, by_name: bool, most: int | None) -> None:
        """An empty group with stock for two; three nodes are wanted."""
        self.desk = Desk(limits=LIMITS, ledger=a_daily_ledger())
        self.pool = replace(RULES, launch=LaunchRules(template="lt-1"), max_nodes=most)
        self.fleet = self.desk.fleet
        self.fleet.groups_["g-1"] = a_group(desired=0, max_size=9, node_ids=(), gives_back_places=by_name)
        self.fleet.room_["g-1"] = 2
        self.fleet.mute_groups = mute
        self.most_wanted, self.failing = 0, False
        self.the_wish_changes(3)

    @rule(count=st.integers(0, MOST + 2))
    def the_wish_changes(self, count: int) -> None:
        """More or fewer nodes are wanted."""
        window = {"always": Window(min_nodes=count)} if count else {}
        self.desk.pools = {"default": replace(self.pool, schedule=window)}
        self.most_wanted = max(self.most_wanted, count)

    @rule(room=st.integers(0, 5))
    def stock_changes(self, room: int) -> None:
        """More or less of it; what is missing comes without a word."""
        self.fleet.room_["g-1"] = room

    @rule()
    def a_member_is_taken(self) -> None:
        """Its group wants another one in its place."""
        group = self.fleet.groups_["g-1"]
        for node_id in group.node_ids[:1]:
            self.fleet.put(replace(self.fleet.nodes_[node_id], state=NodeState.TERMINATED))
            self.fleet.groups_["g-1"] = replace(group, node_ids=group.node_ids[1:])

    @rule(call=st.sampled_from(["", "grow", "shrink", "launch", "protect", "groups"]), lost=st.booleans())
    def calls_fail(self, call: str, *, lost: bool) -> None:
        """One kind of call is throttled, or is not answered; or all are answered again."""
        error: CloudError = CloudUnavailableError("no answer") if lost else ThrottledError("too many calls")
        self.fleet.fault = lambda name, _: error if name == call else None
        self.failing = self.failing or bool(call)

    @rule(seconds=st.sampled_from([-7200.0, 7200.0]))
    def the_clock_is_set(self, seconds: float) -> None:
        """By two hours."""
        self.desk.clock.jump(seconds)

    @rule()
    def the_controller_is_restarted(self) -> None:
        """It keeps nothing but its ledger."""
        self.desk.memory = Memory()

    @rule(rounds=st.sampled_from([1, 1, 4, 15, 40]))
    def time_passes(self, rounds: int) -> None:
        """Nodes that have come work."""
        for _ in range(rounds):
            step(self.desk.parts)
            self.desk.rest(60.0)

    @rule()
    def all_is_well_for_an_hour(self) -> None:
        """A template with stock is asked for what the group does not bring, whatever became of the calls before."""
        self.fleet.fault = lambda _call, _node: None
        wanted = next(iter(self.desk.pools.values())).schedule  # type: ignore[union-attr]
        for _ in range(60):
            step(self.desk.parts)
            self.desk.rest(60.0)
        floor = wanted["always"].min_nodes if wanted else 0
        limit = self.pool.max_nodes
        reach = (floor or 0) if limit is None else min(floor or 0, limit)
        done = step(self.desk.parts, act=False)
        said = [(each.step.verb, [a.sentence for a in each.refusals]) for each in done.reviews if not each.allowed]
        assert self._alive() >= reach, f"{reach - self._alive()} nodes are missing: {said} {done.decisions[0].clamps}"

    def _alive(self) -> int:
        return sum(node.state in {NodeState.RUNNING, NodeState.PENDING} for node in self.fleet.nodes_.values())

    @invariant()
    def never_above_the_maximum(self) -> None:
        """P17, whatever the group brings later."""
        if self.pool.max_nodes is not None:
            assert self._alive() <= self.pool.max_nodes

    @invariant()
    def nothing_that_works_goes_for_it(self) -> None:
        """Taking back a size ends nobody."""
        assert State.BUSY not in self.fleet.stopped_while

    def teardown(self) -> None:
        """Count what was lived."""
        if hasattr(self, "desk"):
            lived(self.desk)


TestGroupsWithoutStock = GroupsWithoutStock.TestCase
TestGroupsWithoutStock.settings = settings(max_examples=LIVES, stateful_step_count=25, deadline=None)
