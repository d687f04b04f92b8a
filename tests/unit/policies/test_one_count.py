"""Where two counts of a pool disagreed, the safer one holds for all; test_machines.py has the first of them."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.guard.groups import group_takes_back
from gpuwatch.guard.launches import launch_lasts
from gpuwatch.guard.pool_bounds import min_nodes
from gpuwatch.model.decision import Done, Observation, Status, Verb
from gpuwatch.model.fleet import GroupRefusal, NodeState
from gpuwatch.model.life import MEMBER_OF, End, Life
from gpuwatch.model.verbs import REMOVAL_STEPS
from gpuwatch.policies import PoolRules, capacity, machines, replacement, uncounted
from gpuwatch.policies.floors import keep_floor
from gpuwatch.policies.health_settings import HealthRules
from gpuwatch.policies.launches import LaunchRules
from gpuwatch.policies.replacement import FAILING_SINCE, KIND
from gpuwatch.policies.sizes import NODES
from gpuwatch.policies.spot import back
from tests.support.builders.fleet import NOW, RULES, a_node
from tests.support.builders.guard_cases import a_case
from tests.support.builders.guard_cases_gpus import TAKEN
from tests.support.builders.offers import OFFERS, SURE, a_node_of
from tests.support.builders.past_steps import a_group, a_step
from tests.support.builders.pending_capacity import ASKED_A, an_intent, seen
from tests.support.builders.scaled_pools import done

POOL = replace(RULES, offers=OFFERS, interruptible="any")
MINUTE = timedelta(minutes=1)
IN_DOUBT = {"reached": True, "reached_at": NOW - 3 * MINUTE}
REFUSED = {"reached": True, "reached_at": None}  # its only answer was the refusal


@given(
    verb=st.sampled_from(sorted(REMOVAL_STEPS)),
    status=st.sampled_from([None, Status.ACCEPTED, Status.THROTTLED, Status.UNAVAILABLE]),
)
def test_floors_of_policies_and_of_the_guard_count_the_same_nodes_as_leaving(verb: Verb, status: Status | None) -> None:
    """A drain is half a removal, and what was refused is tried again: a floor counts without such a node."""
    observation = seen(a_node("i-1"), a_node("i-2"), a_node("i-3"), open_intents=(an_intent(verb, "i-1", status),))
    kept, _ = keep_floor(observation, "default", [a_step("i-2")], 2, PoolRules())
    case = replace(a_case(), step=a_step("i-2"), observation=observation, pool_rules=replace(RULES, min_nodes=2))

    assert list(kept) == ["i-2"]
    assert min_nodes(case)[0]


def came(status: Status, **changes: object) -> Done:
    """A launch that ended two minutes ago."""
    launch = Done(
        key="k", verb=Verb.LAUNCH, node_id="new:default:1", pool="default", status=status, at=NOW - 2 * MINUTE,
        arguments=ASKED_A, detail="given up: no answer",
    )  # fmt: skip
    return replace(launch, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("launch", "owed"),
    [
        (came(Status.SETTLED), 0),
        (came(Status.FAILED, **IN_DOUBT), 0),
        (came(Status.FAILED, **REFUSED), 1),
        (came(Status.FAILED, reached=False), 1),
        (came(Status.CANCELLED, reached=False), 1),
    ],
    ids=["came", "in doubt", "refused", "not sent", "cancelled"],
)
def test_what_may_have_come_since_a_loss_replaces_it_and_what_was_refused_does_not(launch: Done, owed: int) -> None:
    """For spot that is taken and for sick nodes alike: one count took no doubt for a node, the other a refusal."""
    notice = replace(TAKEN, seen_at=NOW - 5 * MINUTE)
    taken = seen(replace(a_node("i-1"), cloud_notice=notice), recent=(launch,))
    ended = replace(done(Verb.TERMINATE, 300.0), arguments={FAILING_SINCE: NOW.isoformat(), KIND: "g6.xlarge"})
    sick = seen(a_node("i-2"), a_node("i-3"), recent=(replace(ended, pool="default"), launch))
    rules = HealthRules(action="replace", max_failing_ratio=1.0)

    assert len(machines.came_since(taken, "default", NODES, NOW - 5 * MINUTE)) == 1 - owed
    assert replacement.owed_replacements(sick, "default", rules)[0] == owed


def test_what_no_cloud_shows_now_is_no_reason_for_another_to_go() -> None:
    """Two on demand are wanted; of four the region of two gives no answer, and nobody knows whether they run."""
    hidden = [replace(a_node_of(SURE, f"i-{n}"), state=NodeState.UNKNOWN) for n in (3, 4)]
    observation = seen(a_node_of(SURE, "i-1"), a_node_of(SURE, "i-2"), *hidden)
    has = back.nodes_now(observation, "default", POOL)

    assert machines.now(observation, "default") == 4, "they count, so that nothing is bought for them"
    assert machines.there(observation, "default") == 2
    assert (has.on_demand, has.on_demand_coming) == (4, 2)


def on_trial(members: int, desired: int, *growths: Done) -> Observation:
    """A group of which three members ended, hours ago."""
    lives = tuple(
        Life(
            key=f"m-{number}", pool="default", at=NOW - timedelta(hours=9), asked={MEMBER_OF: "g-1"},
            node_id=f"m-{number}", end=End.ENDED, ended_at=NOW - timedelta(hours=8.5), recorded=True,
        )
        for number in range(3)
    )  # fmt: skip
    nodes = [a_node(f"i-{number}", group="g-1") for number in range(members)]
    group = a_group(desired=desired, node_ids=tuple(node.id for node in nodes), max_size=9)
    return replace(seen(*nodes, groups=(group,), recent=growths), members={"g-1": lives})


def test_a_group_on_trial_gets_one_more_and_the_next_once_that_one_is_there() -> None:
    """Each round grew it by one until the first of them was shown: places that come count as the one that is tried."""
    rested, grown = on_trial(1, 1), on_trial(1, 2)
    late = on_trial(1, 1, replace(done(Verb.GROW, 60.0, node_id="g-1"), pool="default", arguments={"size": "2"}))

    def refused(observation: Observation) -> bool:
        (group,) = observation.fleet.groups
        step = replace(a_step("g-1", Verb.GROW), arguments={"size": str(group.desired + 1), "adds": "1"})
        case = replace(a_case(), step=step, node=None, group=group, observation=observation)
        return launch_lasts(case)[0]

    assert [refused(each) for each in (rested, grown, late)] == [False, True, True]
    for each, grows in ((rested, True), (grown, False), (late, False)):
        steps = capacity.additions(each, "default", 5, LaunchRules(template="lt-1"))
        assert any(step.verb is Verb.GROW for step in steps) is grows
        assert any(step.verb is Verb.LAUNCH for step in steps) is not grows


def test_a_size_that_no_list_shows_yet_is_not_taken_back() -> None:
    """Raised to four a moment ago; the list says two, and its cloud refuses the second: "one" would take three away."""
    group = a_group(
        desired=2, node_ids=("i-1",), refused=GroupRefusal(at=NOW, why="none"), short_since=NOW - 5 * MINUTE
    )
    grown = replace(done(Verb.GROW, 60.0, node_id="g-1"), pool="default", arguments={"size": "4"})
    nodes = (a_node("i-1", group="g-1", scale_in_protected=True), a_node("i-2"), a_node("i-3"), a_node("i-4"))
    stale, shown = seen(*nodes, groups=(group,), recent=(grown,)), seen(*nodes, groups=(group,))

    def refused(observation: Observation) -> bool:
        step = replace(a_step("g-1", Verb.SHRINK), arguments={"size": "1", "takes": "1"})
        case = replace(a_case(), step=step, node=None, group=group, observation=observation)
        return group_takes_back(case)[0]

    assert [len(list(uncounted.taken_back(each, "default", 2, 9))) for each in (shown, stale)] == [1, 0]
    assert (refused(shown), refused(stale)) == (False, True)
