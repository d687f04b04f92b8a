"""What settled a moment ago and a list does not show yet: it counts once, for ten minutes, and not if it went again."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gpuwatch.model.decision import Done, Intent, OpenIntent, Outcome, Status, Step, Verb
from gpuwatch.model.fleet import Fleet, NodeState
from gpuwatch.model.life import End
from gpuwatch.policies import capacity, machines
from gpuwatch.policies.lives import ENDED_AT, HOW, THERE, lives
from gpuwatch.policies.sizes import Need
from tests.support.builders.fleet import NOW, a_node, a_stop
from tests.support.builders.past_steps import REASON, a_group
from tests.support.builders.pending_capacity import ASKED_A, LAUNCH, an_intent, seen, stopped


def done(verb: Verb, node_id: str, *, minutes: float = 5.0, **changes: object) -> Done:
    """What settled some minutes ago."""
    base = Done(
        key=f"k-{verb}-{node_id}",
        verb=verb,
        node_id=node_id,
        pool="default",
        status=Status.SETTLED,
        at=NOW - timedelta(minutes=minutes),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


LAUNCHED = done(Verb.LAUNCH, "new:default:1", detail="the cloud shows i-9", arguments={"instance_type": "g6.xlarge"})
STARTED = done(Verb.START, "i-1")


@pytest.mark.parametrize(
    ("recent", "count"),
    [
        ((LAUNCHED,), 1),
        ((replace(LAUNCHED, at=NOW - timedelta(minutes=11)),), 0),
        ((replace(LAUNCHED, at=NOW + timedelta(minutes=9)),), 1),
        ((replace(LAUNCHED, at=NOW + timedelta(minutes=11)),), 0),
        ((replace(LAUNCHED, status=Status.FAILED),), 0),
        ((replace(LAUNCHED, pool="dev"),), 0),
        ((replace(LAUNCHED, detail="its tags show it"),), 0),
        ((LAUNCHED, done(Verb.TERMINATE, "i-9", minutes=4.0)), 0),
        ((LAUNCHED, done(Verb.TERMINATE, "i-9", minutes=4.0, status=Status.FAILED)), 1),
        ((LAUNCHED, done(Verb.TERMINATE, "i-9", minutes=6.0)), 1),
        ((LAUNCHED, done(Verb.TERMINATE, "i-8", minutes=4.0)), 1),
        ((LAUNCHED, done(Verb.NOTICE, "i-9", minutes=4.0)), 1),
    ],
)
def test_a_launched_machine_that_a_list_leaves_out(recent: tuple[Done, ...], count: int) -> None:
    """It was shown a moment ago, whatever a clock did in between."""
    assert machines.now(seen(recent=recent), "default") == count


@pytest.mark.parametrize("state", NodeState)
def test_a_launched_machine_that_is_listed_is_as_it_is_listed(state: NodeState) -> None:
    """In whatever state: it is not counted beside that."""
    node = replace(a_node("i-9"), state=state)

    assert machines.now(seen(node, recent=(LAUNCHED,)), "default") == (node.state in THERE)


@pytest.mark.parametrize(
    ("recent", "count"),
    [
        ((STARTED,), 1),
        ((replace(STARTED, at=NOW - timedelta(minutes=11)),), 0),
        ((replace(STARTED, verb=Verb.GROW, arguments={"size": "1"}),), 0),
        ((STARTED, done(Verb.STOP, "i-1", minutes=4.0)), 0),
        ((STARTED, done(Verb.STOP, "i-1", minutes=6.0)), 1),
    ],
)
def test_a_started_machine_that_a_list_shows_stopped(recent: tuple[Done, ...], count: int) -> None:
    """The start was shown: the list is late."""
    assert machines.now(seen(stopped("i-1"), recent=recent), "default") == count


@pytest.mark.parametrize("state", [NodeState.RUNNING, NodeState.STOPPING, NodeState.TERMINATING])
def test_a_started_machine_in_another_state_is_as_it_is_listed(state: NodeState) -> None:
    """Nothing is counted twice, and what goes is going."""
    node = replace(a_node("i-1"), state=state)

    assert machines.now(seen(node, recent=(STARTED,)), "default") == (state is NodeState.RUNNING)


def test_a_machine_that_is_being_started_again_counts_once() -> None:
    """Its open intent counts it already."""
    observation = seen(stopped("i-1"), recent=(STARTED,), open_intents=(an_intent(Verb.START, "i-1", Status.ACCEPTED),))

    assert machines.now(observation, "default") == 1


def test_a_started_machine_that_is_gone_from_the_list_is_gone() -> None:
    """A start makes no machine."""
    assert machines.now(seen(recent=(STARTED,)), "default") == 0


GROWN = done(Verb.GROW, "g-1", arguments={"size": "5", "adds": "2"})


@pytest.mark.parametrize(
    ("recent", "size"),
    [
        ((), 3),
        ((GROWN,), 5),
        ((replace(GROWN, arguments={"size": "2"}),), 3),
        ((replace(GROWN, at=NOW - timedelta(minutes=11)),), 3),
        ((replace(GROWN, node_id="g-2"),), 3),
        ((replace(GROWN, status=Status.FAILED),), 3),
        ((done(Verb.START, "g-1", arguments={"size": "5"}),), 3),
        ((GROWN, done(Verb.TERMINATE, "i-7", minutes=4.0)), 3),
        ((GROWN, done(Verb.TERMINATE, "i-7", minutes=5.0)), 3),
        ((GROWN, done(Verb.TERMINATE, "i-7", minutes=6.0)), 5),
        ((GROWN, done(Verb.TERMINATE, "i-7", minutes=4.0, pool="dev")), 5),
        ((GROWN, done(Verb.STOP, "i-7", minutes=4.0)), 5),
    ],
)
def test_a_group_whose_growth_a_list_does_not_show(recent: tuple[Done, ...], size: int) -> None:
    """It has the size that it was seen to have, unless the pool has lost a node since."""
    observation = seen(groups=(a_group(desired=3, node_ids=()),), recent=recent)

    assert machines.now(observation, "default") == size
    steps = capacity.additions(observation, "default", 7, capacity.LaunchRules())
    assert [dict(step.arguments) for step in steps] == [{"size": "7", "adds": str(7 - size)}]


def test_what_started_a_moment_ago_is_not_started_beside_another() -> None:
    """With a late list a second machine would come for the same wish."""
    nodes = (stopped("i-1"), stopped("i-2"))
    past = tuple(a_stop(each.id, at=NOW - timedelta(hours=1)) for each in nodes)

    assert capacity.additions(seen(*nodes, recent=(STARTED,), stopped=past), "default", 1, capacity.LaunchRules()) == ()


def an_entry(verb: Verb, *, reached: bool, minutes: float | None = 5.0) -> OpenIntent:
    """An open intent whose last attempt that may have been carried out is so old."""
    at = NOW - timedelta(minutes=minutes or 0.0)
    intent = Intent(key="k", verb=verb, node_id="new:default:1", pool="default", at=at, reason=REASON)
    last = Outcome(key="k", at=at, status=Status.INTERRUPTED, detail="")
    return OpenIntent(intent=intent, attempts=1, last=last, reached=reached, reached_at=None if minutes is None else at)


@pytest.mark.parametrize(
    ("entry", "may"),
    [
        (an_entry(Verb.LAUNCH, reached=True), True),
        (an_entry(Verb.LAUNCH, reached=False), False),
        (an_entry(Verb.LAUNCH, reached=True, minutes=11.0), False),
        (an_entry(Verb.LAUNCH, reached=True, minutes=-9.0), True),
        (an_entry(Verb.LAUNCH, reached=True, minutes=None), False),
        (an_entry(Verb.START, reached=True), False),
        (an_entry(Verb.GROW, reached=True), False),
    ],
)
def test_which_launches_may_still_turn_up(entry: OpenIntent, may: bool) -> None:
    """Those that nobody answered, for ten minutes; starts and growths ask for the same again by their nature."""
    assert machines.may_appear(entry, NOW) is may


@pytest.mark.parametrize(("status", "first"), [(Status.INTERRUPTED, Verb.LAUNCH), (Status.THROTTLED, Verb.START)])
def test_a_launch_that_may_have_happened_is_asked_for_before_anything_else(status: Status, first: Verb) -> None:
    """Its machine may turn up beside another one; what certainly did not happen waits its turn."""
    entry = an_intent(Verb.LAUNCH, "new:default:1", status, ASKED_A)
    if status is Status.INTERRUPTED:
        entry = replace(entry, reached=True, reached_at=entry.intent.at)
    past = (a_stop("i-1", at=NOW - timedelta(hours=1)),)
    observation = seen(stopped("i-1"), open_intents=(entry,), stopped=past)

    assert [step.verb for step in capacity.additions(observation, "default", 1, LAUNCH)] == [first]


@pytest.mark.parametrize(("desired", "again"), [(3, {"size": "5", "adds": "2"}), (4, None)])
def test_a_growth_that_is_a_part_of_what_is_wanted_is_asked_for_again(
    desired: int, again: dict[str, str] | None
) -> None:
    """As it was asked, where the group is as it was; the rest comes later. Otherwise it is dropped first."""
    entry = an_intent(Verb.GROW, "g-1", Status.THROTTLED, {"size": "5", "adds": "2"})
    observation = seen(groups=(a_group(desired=desired, node_ids=()),), open_intents=(entry,))

    steps = capacity.additions(observation, "default", 8, capacity.LaunchRules())

    assert [dict(step.arguments) for step in steps] == ([] if again is None else [again])


def test_other_sources_are_those_that_were_not_tried_and_wait_for_nothing() -> None:
    """Neither a group that the round has tried, nor one with an open intent."""
    groups = tuple(a_group(id=f"g-{n}", desired=0, max_size=9, node_ids=()) for n in (1, 2, 3))
    entry = an_intent(Verb.GROW, "g-2", Status.THROTTLED, {"size": "1", "adds": "1"})
    tried = Step(node_id="g-1", verb=Verb.GROW, reason=REASON, change="", arguments={"size": "2", "adds": "2"})
    observation = seen(groups=groups, open_intents=(entry,))

    def found(**grown: int) -> list[tuple[str, int]]:
        document = {name.replace("_", "-"): adds for name, adds in grown.items()}
        steps = capacity.others(
            observation, "default", Need(missing=2), [tried], capacity.LaunchRules(), "own", grown=document
        )
        return [(step.node_id, capacity.adds(step)) for step in steps]

    assert found() == [("g-3", 2)]
    assert found(g_1=2) == [("g-1", 4), ("g-3", 2)]
    assert found(g_1=9) == [("g-3", 2)], "it has reached its maximum"


@pytest.mark.parametrize("about", [{}, {HOW: "eaten"}, {HOW: "stopped", ENDED_AT: "yesterday"}, {ENDED_AT: "12:00"}])
def test_a_record_of_an_end_that_cannot_be_read_is_an_end_at_its_own_time(about: dict[str, str]) -> None:
    """One damaged record must not end every round."""
    end = done(Verb.ENDED, "i-9", minutes=1.0, arguments=about)
    (life,) = lives((LAUNCHED, end), (), Fleet(observed_at=NOW, nodes=()), NOW, {})

    assert life.end is (End.STOPPED if about.get(HOW) == "stopped" else End.ENDED)
    assert life.ended_at == end.at
