"""How many nodes a pool has or will have, and which steps bring it to a number: never one too many."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import (
    DECISION_TAG,
    FINAL,
    REMOVALS,
    Done,
    Observation,
    Proposal,
    Status,
    Step,
    Verb,
)
from gpuwatch.model.fleet import CapacityType, Node, NodeGroup, NodeState
from gpuwatch.policies import PoolRules, capacity, machines, resolve
from gpuwatch.policies.capacity import LaunchRules
from tests.support.builders.fleet import NOW, a_node, a_stop
from tests.support.builders.past_steps import REASON, a_group
from tests.support.builders.pending_capacity import ASKED_A, LAUNCH, an_intent, seen, stopped

ASKED_B = {**ASKED_A, "subnet": "subnet-b"}


def failed(verb: Verb, node_id: str, arguments: dict[str, str] | None = None, *, minutes: float = 2.0) -> Done:
    """What was given up some minutes ago."""
    return Done(
        key="f",
        verb=verb,
        node_id=node_id,
        pool="default",
        status=Status.FAILED,
        at=NOW - timedelta(minutes=minutes),
        arguments=arguments or {},
    )


def added(observation: Observation, target: int, launch: LaunchRules = LAUNCH) -> list[tuple[Verb, str]]:
    """The steps to a target, by verb and id, in a pool that may start whatever is stopped."""
    return [(step.verb, step.node_id) for step in capacity.additions(observation, "default", target, launch, "any")]


RUNNING = a_node("i-1")
NAME = "new:default:1"


@pytest.mark.parametrize(
    ("told", "observation", "count"),
    [
        ("running and starting nodes", seen(RUNNING, replace(a_node("i-2"), state=NodeState.PENDING)), 2),
        ("neither stopped nor foreign ones", seen(RUNNING, stopped("i-2"), a_node("i-3", enrolled=False)), 1),
        ("a launch nobody sees yet", seen(RUNNING, open_intents=(an_intent(Verb.LAUNCH, NAME, Status.ACCEPTED),)), 2),
        ("a launch without an answer", seen(open_intents=(an_intent(Verb.LAUNCH, NAME, Status.UNAVAILABLE),)), 1),
        ("a launch about which nothing is written", seen(open_intents=(an_intent(Verb.LAUNCH, NAME, None),)), 1),
        (
            "a launch and its machine once",
            seen(
                a_node("i-2", tags={DECISION_TAG: f"k-{NAME}"}),
                open_intents=(an_intent(Verb.LAUNCH, NAME, Status.ACCEPTED),),
            ),
            1,
        ),
        ("no launch that was throttled", seen(open_intents=(an_intent(Verb.LAUNCH, NAME, Status.THROTTLED),)), 0),
        (
            "a start not shown yet",
            seen(stopped("i-2"), open_intents=(an_intent(Verb.START, "i-2", Status.ACCEPTED),)),
            1,
        ),
        ("a start and its machine once", seen(RUNNING, open_intents=(an_intent(Verb.START, "i-1", None),)), 1),
        (
            "a group's missing members",
            seen(RUNNING, groups=(a_group(desired=3, node_ids=("i-1",)),)),
            4,  # i-1 says nothing of being a member
        ),
        (
            "members once",
            seen(a_node("i-1", group="g-1"), groups=(a_group(desired=3, node_ids=("i-1",)),)),
            3,
        ),
        ("no group without consent", seen(groups=(a_group(enrolled=False, node_ids=()),)), 0),
        (
            "a growth nobody sees yet",
            seen(
                groups=(a_group(node_ids=()),),
                open_intents=(an_intent(Verb.GROW, "g-1", Status.ACCEPTED, {"size": "5", "adds": "2"}),),
            ),
            5,
        ),
        ("no node being removed", seen(RUNNING, open_intents=(an_intent(Verb.STOP, "i-1", Status.UNAVAILABLE),)), 0),
        (
            "a node whose removal was not carried out",
            seen(RUNNING, open_intents=(an_intent(Verb.STOP, "i-1", Status.THROTTLED),)),
            1,
        ),
        (
            "a member that leaves takes its place with it",
            seen(
                a_node("i-1", group="g-1"),
                groups=(a_group(desired=1, node_ids=("i-1",)),),
                open_intents=(an_intent(Verb.TERMINATE, "i-1", Status.ACCEPTED),),
            ),
            0,
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_on_its_way_counts_once(told: str, observation: Observation, count: int) -> None:
    """Capacity is what runs or begins to, and what was asked for and cannot be seen yet."""
    assert machines.now(observation, "default") == count, told


def test_stopped_nodes_come_before_groups_and_groups_before_launches() -> None:
    """Disks are paid for and caches warm; a group is its owner's way to grow; a template is the last."""
    observation = seen(RUNNING, stopped("i-2"), groups=(a_group(desired=0, max_size=2, node_ids=()),))

    steps = capacity.additions(observation, "default", 6, LAUNCH, "any")

    assert [(step.verb, step.node_id, capacity.adds(step)) for step in steps] == [
        (Verb.START, "i-2", 1),
        (Verb.GROW, "g-1", 2),
        (Verb.LAUNCH, "new:default:1", 1),
        (Verb.LAUNCH, "new:default:2", 1),
    ]
    assert steps[1].arguments == {"size": "2", "adds": "2"}
    assert steps[2].arguments == ASKED_A


def test_what_gpuwatch_stopped_last_is_started_first() -> None:
    """Then what it stopped earlier, then what others stopped."""
    past = tuple(a_stop(node_id, at=NOW - timedelta(hours=hours)) for node_id, hours in (("i-2", 9), ("i-3", 1)))

    assert added(seen(stopped("i-1"), stopped("i-2"), stopped("i-3"), stopped=past), 3) == [
        (Verb.START, "i-3"),
        (Verb.START, "i-2"),
        (Verb.START, "i-1"),
    ]


@pytest.mark.parametrize(
    "node",
    [
        stopped("i-1", enrolled=False),
        stopped("i-1", protected="a tag"),
        stopped("i-1", managed_by="EKS"),
        stopped("i-1", group="g-9"),
        stopped("i-1", capacity_type=CapacityType.CAPACITY_BLOCK),
    ],
    ids=["foreign", "protected", "another system's", "a group's", "a block's"],
)
def test_not_every_stopped_node_is_started(node: Node) -> None:
    """What gpuwatch may not touch, or cannot start, is passed over."""
    assert added(seen(node), 1, LaunchRules()) == []


def test_a_snoozed_node_may_be_started() -> None:
    """A snooze asks for more time, which a start gives."""
    assert added(seen(stopped("i-1", snoozed="2026-03-09T00:00Z")), 1) == [(Verb.START, "i-1")]


def test_what_failed_lately_is_passed_over_for_the_next() -> None:
    """Another node, another group, another subnet; after a while the first is tried again."""
    nodes = (stopped("i-1"), stopped("i-2"))
    group = a_group(desired=0, max_size=1, node_ids=())

    assert added(seen(*nodes, recent=(failed(Verb.START, "i-1"),)), 1) == [(Verb.START, "i-2")]
    assert added(seen(*nodes, recent=(failed(Verb.START, "i-1", minutes=4.0),)), 1) == [(Verb.START, "i-1")]
    assert added(seen(groups=(group,), recent=(failed(Verb.GROW, "g-1"),)), 1) == [(Verb.LAUNCH, NAME)]


def test_a_subnet_without_capacity_is_passed_over() -> None:
    """The next one in the list is tried; with all of them failed it is the first again, and the guard waits."""
    a, b = failed(Verb.LAUNCH, NAME, ASKED_A), failed(Verb.LAUNCH, NAME, ASKED_B)

    def asked(*recent: Done) -> object:
        return capacity.additions(seen(recent=recent), "default", 1, LAUNCH)[0].arguments

    assert asked() == ASKED_A
    assert asked(a) == ASKED_B
    assert asked(a, b) == ASKED_A


def test_what_was_not_carried_out_is_asked_for_again_under_its_own_name() -> None:
    """A throttled launch goes on with its own arguments, and a new one takes the next free name."""
    open_intents = (
        an_intent(Verb.LAUNCH, "new:default:1", Status.ACCEPTED, ASKED_A),
        an_intent(Verb.LAUNCH, "new:default:2", Status.THROTTLED, ASKED_B),
    )

    steps = capacity.additions(seen(open_intents=open_intents), "default", 3, LAUNCH)

    assert [(step.node_id, step.arguments) for step in steps] == [
        ("new:default:2", ASKED_B),
        ("new:default:3", ASKED_A),
    ]


@pytest.mark.parametrize("launch", [LaunchRules(), replace(LAUNCH, template="lt-2")], ids=["none", "other"])
def test_a_launch_that_the_pool_no_longer_asks_for_is_not_asked_for_again(launch: LaunchRules) -> None:
    """Whoever takes the template away, or changes it, gets no machine of the old one."""
    entry = an_intent(Verb.LAUNCH, NAME, Status.THROTTLED, ASKED_A)

    steps = capacity.additions(seen(open_intents=(entry,)), "default", 1, launch)

    assert all(step.arguments["template"] == "lt-2" and step.node_id != NAME for step in steps)


@pytest.mark.parametrize(("size", "again"), [("4", True), ("9", False)])
def test_a_growth_is_asked_for_again_only_as_it_was(size: str, again: bool) -> None:
    """An open growth to another size would be carried out as it was written: it is dropped first."""
    entry = an_intent(Verb.GROW, "g-1", Status.THROTTLED, {"size": size, "adds": str(int(size) - 3)})
    observation = seen(groups=(a_group(node_ids=()),), open_intents=(entry,))

    assert added(observation, 4) == ([(Verb.GROW, "g-1")] if again else [])


@pytest.mark.parametrize(
    ("verb", "status", "startable"),
    [
        (Verb.START, Status.THROTTLED, True),
        (Verb.START, Status.UNAVAILABLE, False),
        (Verb.NOTICE, Status.THROTTLED, False),
        (Verb.TERMINATE, Status.THROTTLED, False),
    ],
)
def test_a_node_with_an_open_intent_is_started_only_under_its_own_start(
    verb: Verb, status: Status, startable: bool
) -> None:
    """Whatever else is open about a node comes to its end first."""
    observation = seen(stopped("i-1"), open_intents=(an_intent(verb, "i-1", status),))

    assert added(observation, 2, LaunchRules()) == ([(Verb.START, "i-1")] if startable else [])


def test_a_throttled_stop_does_not_make_room_for_a_launch() -> None:
    """The node is still there, and the wish keeps it: nothing is added in its place."""
    entry = an_intent(Verb.STOP, "i-1", Status.THROTTLED)

    assert added(seen(RUNNING, open_intents=(entry,)), 1) == []


STATUSES = st.sampled_from([None, *sorted(frozenset(Status) - FINAL)])


@st.composite
def pools(draw: st.DrawFn) -> Observation:
    """Any pool with any past."""
    nodes = [
        replace(
            a_node(f"i-{n}"),
            state=draw(st.sampled_from(NodeState)),
            enrolled=draw(st.booleans()),
            protected=draw(st.sampled_from([None, "a tag"])),
            managed_by=draw(st.sampled_from([None, "EKS"])),
            group=draw(st.sampled_from([None, "g-1"])),
        )
        for n in range(draw(st.integers(0, 6)))
    ]
    groups: list[NodeGroup] = []
    if draw(st.booleans()):
        members = tuple(node.id for node in nodes if node.group)
        size = draw(st.integers(0, 6))
        groups = [a_group(desired=size, max_size=size + draw(st.integers(0, 3)), node_ids=members)]
        consent, kept = draw(st.booleans()), draw(st.sampled_from([None, "a tag"]))
        groups = [replace(groups[0], enrolled=consent, protected=kept)]
    entries = [an_intent(draw(st.sampled_from([Verb.STOP, Verb.START])), node.id, draw(STATUSES)) for node in nodes[:2]]
    entries += [
        an_intent(Verb.LAUNCH, f"new:default:{n}", draw(STATUSES), draw(st.sampled_from([ASKED_A, ASKED_B, {}])))
        for n in draw(st.sets(st.integers(1, 3)))
    ]
    if len(groups) > 0 and draw(st.booleans()):
        size = draw(st.integers(1, 8))
        entries.append(an_intent(Verb.GROW, "g-1", draw(STATUSES), {"size": str(size), "adds": "1"}))
    return seen(*nodes, groups=tuple(groups), open_intents=tuple(entries))


def accepted(observation: Observation, steps: tuple[Step, ...]) -> Observation:
    """The same moment after the cloud has said yes to all steps and shows none of it."""
    asked = {step.node_id for step in steps}
    kept = tuple(entry for entry in observation.ledger.open_intents if entry.intent.node_id not in asked)
    new = tuple(an_intent(step.verb, step.node_id, Status.ACCEPTED, dict(step.arguments)) for step in steps)
    return replace(observation, ledger=replace(observation.ledger, open_intents=kept + new))


@given(observation=pools(), target=st.integers(0, 12))
def test_additions_never_exceed_what_is_missing_and_touch_nothing_foreign(
    observation: Observation, target: int
) -> None:
    """Whatever runs, waits or fails: no more than target - now, and only what may be touched (P3, P4)."""
    steps = capacity.additions(observation, "default", target, LAUNCH, "any")

    assert sum(capacity.adds(step) for step in steps) <= max(0, target - machines.now(observation, "default"))
    assert len({step.node_id for step in steps}) == len(steps)
    for step in steps:
        thing = observation.fleet.find(step.node_id) or observation.fleet.group(step.node_id)
        assert step.verb is Verb.LAUNCH or (thing is not None and thing.enrolled and thing.protected is None)
        assert not isinstance(thing, Node) or (thing.managed_by, thing.group) == (None, None)
        assert not isinstance(thing, NodeGroup) or int(step.arguments["size"]) <= thing.max_size
        entry = observation.ledger.open_for(step.node_id)
        assert entry is None or (entry.resumable and entry.intent.verb is step.verb)
        assert entry is None or dict(entry.intent.arguments) == dict(step.arguments)


@given(observation=pools(), target=st.integers(0, 12))
def test_asking_again_adds_nothing(observation: Observation, target: int) -> None:
    """Once the cloud has accepted all steps, and before it shows any, the same target asks for no more (P6, P11)."""
    steps = capacity.additions(observation, "default", target, LAUNCH, "any")
    after = accepted(observation, steps)

    again = capacity.additions(after, "default", target, LAUNCH, "any")
    assert machines.now(after, "default") <= max(target, machines.now(observation, "default"))
    assert sum(capacity.adds(step) for step in (*steps, *again)) <= max(
        0, target - machines.now(observation, "default")
    )


@given(observation=pools(), target=st.integers(0, 12))
def test_an_addition_is_never_decided_beside_a_removal_of_the_same_node(observation: Observation, target: int) -> None:
    """Where terminate_after would end a stopped node and the load wants it, it is started."""
    node_ids = [node.id for node in observation.fleet.nodes if node.state is NodeState.STOPPED]
    ends = tuple(Step(node_id=node_id, verb=Verb.TERMINATE, reason=REASON, change="") for node_id in node_ids)
    wish = Proposal(policy="scaling", pool="default", reason=REASON, desired_nodes=target, grows=True, steps=ends)

    decision = resolve(observation, "default", [wish], PoolRules(launch=LAUNCH, start="any"))

    started = {step.node_id for step in decision.steps if step.verb is Verb.START}
    assert not started & {step.node_id for step in decision.steps if step.verb in REMOVALS}
