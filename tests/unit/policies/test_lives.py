"""How lives of launched and started machines end: a removal of ours that may be under way is no end of theirs."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import Done, OpenIntent, Status, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.life import End, Life
from gpuwatch.policies.lives import (
    LATE,
    NEVER_RAN,
    SHOWN,
    Use,
    launched_machine,
    lives,
    nodes_we_may_remove,
    offers_past,
)
from gpuwatch.policies.members import lives_of_members, note_members, raised_groups
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.offers import SPOT_A
from tests.support.builders.past_steps import a_group
from tests.support.builders.pending_capacity import an_intent
from tests.support.builders.scaled_pools import done

CAME = replace(
    done(Verb.LAUNCH, 7200.0, node_id="new:default:1"),
    key="came",
    detail=f"{SHOWN}i-1",
    arguments=SPOT_A.arguments("spot-a", "default"),
)
STARTED = replace(done(Verb.START, 7200.0, node_id="i-1"), key="started")
DOWN = (NodeState.STOPPING, NodeState.STOPPED, NodeState.TERMINATING, NodeState.TERMINATED)
MAY_BE_DONE = (None, Status.ASKED, Status.ACCEPTED, Status.UNAVAILABLE)
CERTAINLY_NOT = (Status.THROTTLED, Status.BUSY, Status.REFUSED, Status.DENIED, Status.SKEWED, Status.UNSENT)


def shown(state: NodeState | None) -> Fleet:
    """A list with the machine in that state; None: without it."""
    nodes = () if state is None else (replace(a_node("i-1"), state=state),)
    return Fleet(observed_at=NOW, nodes=nodes)


def life_of(fleet: Fleet, *opened: OpenIntent, began: Done = CAME, ended: tuple[Done, ...] = ()) -> Life:
    """Its life; lists have not shown it run for longer than they may be late."""
    use = Use(answered=True, worked=False, gone_at=NOW - LATE)
    (life,) = [each for each in lives((began, *ended), opened, fleet, NOW, {began.key: use}) if each.key == began.key]
    return life


@pytest.mark.parametrize(
    ("detail", "machine"),
    [
        ("the cloud launches i-1", "i-1"),
        ("the cloud launched i-1, and after 10m it does not appear as a node of pool a: it is shut down", "i-1"),
        ("the cloud shows i-1", "i-1"),
        ("i-1 was launched and is terminated", "i-1"),
        (f"i-1 {NEVER_RAN}", "i-1"),
        ("the cloud shows no machine with its key", None),
        ("the cloud launched no machine with its key, and after 10m it does not appear as a node of pool a: no", None),
        ("the cloud shows it running", None),
    ],
)
def test_an_outcome_of_a_launch_names_its_machine_or_none(detail: str, machine: str | None) -> None:
    """A launch that the cloud does not know is sent again at once, and waits for no machine."""
    assert launched_machine(detail) == machine


@pytest.mark.parametrize("began", [CAME, STARTED], ids=["launched", "started"])
@given(
    state=st.sampled_from([None, *DOWN]),
    verb=st.sampled_from([Verb.STOP, Verb.TERMINATE]),
    status=st.sampled_from(MAY_BE_DONE),
)
def test_a_machine_that_we_may_be_removing_has_not_ended_by_itself(
    began: Done, state: NodeState | None, verb: Verb, status: Status | None
) -> None:
    """Whatever its cloud shows of it: the removal's own outcome will say how it ended."""
    assert life_of(shown(state), an_intent(verb, "i-1", status), began=began).end is None


@pytest.mark.parametrize("began", [CAME, STARTED], ids=["launched", "started"])
@given(state=st.sampled_from([None, *DOWN[1:]]), status=st.sampled_from(CERTAINLY_NOT))
def test_a_removal_that_was_certainly_not_carried_out_ends_nothing(
    began: Done, state: NodeState | None, status: Status
) -> None:
    """The machine went by itself, and its source is to blame."""
    assert life_of(shown(state), an_intent(Verb.TERMINATE, "i-1", status), began=began).end in {End.ENDED, End.STOPPED}


def test_a_removal_in_doubt_that_may_be_tried_again_is_one_that_may_be_under_way() -> None:
    """Its first call had no answer, its second was refused."""
    entry = replace(an_intent(Verb.TERMINATE, "i-1", Status.THROTTLED), reached=True)
    assert life_of(shown(NodeState.TERMINATED), entry).end is None


def test_what_goes_soon_after_its_removal_was_given_up_counts_neither_way() -> None:
    """Its cloud may have carried it out all the same; what goes an hour later went by itself."""
    doubt = replace(done(Verb.TERMINATE, 300.0, node_id="i-1", status=Status.FAILED), key="t", reached=True)
    assert life_of(shown(NodeState.TERMINATED), ended=(doubt,)).end is End.REMOVED
    long_ago = replace(doubt, at=NOW - timedelta(hours=1))
    assert life_of(shown(NodeState.TERMINATED), ended=(long_ago,)).end is End.ENDED
    assert life_of(shown(NodeState.TERMINATED), ended=(replace(doubt, reached=False),)).end is End.ENDED
    assert life_of(shown(NodeState.RUNNING), ended=(doubt,)).end is None


def test_a_record_of_an_end_stands_whatever_is_under_way() -> None:
    """It ended, and its removal was asked for before anybody had seen that."""
    record = replace(done(Verb.ENDED, 60.0, node_id="i-1"), key="e", arguments={"how": "stopped"})
    entry = an_intent(Verb.TERMINATE, "i-1", Status.ACCEPTED)
    assert life_of(shown(NodeState.STOPPED), entry, ended=(record,)).end is End.STOPPED


@given(state=st.sampled_from([None, *DOWN]), status=st.sampled_from(MAY_BE_DONE))
def test_spot_that_we_may_be_removing_is_no_loss_of_its_offer(state: NodeState | None, status: Status | None) -> None:
    """Otherwise our own removal would make the offer look as if its market took machines back."""
    entry = an_intent(Verb.TERMINATE, "i-1", status)

    known = offers_past((CAME,), shown(state), "default", NOW, ours=nodes_we_may_remove((entry,)))
    assert known.offers["spot-a"].losses == 0
    gone = offers_past((CAME,), shown(NodeState.TERMINATED), "default", NOW)
    assert gone.offers["spot-a"].losses == 1


@given(state=st.sampled_from([None, *DOWN]), status=st.sampled_from([*MAY_BE_DONE, *CERTAINLY_NOT]))
def test_members_and_launched_machines_end_by_the_same_rule(state: NodeState | None, status: Status | None) -> None:
    """One machine, made by a group or launched: the same removal says the same of both."""
    node: Node = a_node("i-1", group="g-1", launched_at=NOW - timedelta(minutes=5))
    group, raised = a_group(node_ids=("i-1",)), raised_groups((done(Verb.GROW, 3600.0, node_id="g-1"),))
    known = note_members({}, raised, Fleet(observed_at=NOW, nodes=(node,), groups=(group,)), NOW)
    known = {key: replace(each, use=Use(answered=True, gone_at=NOW - LATE)) for key, each in known.items()}
    fleet, entry = replace(shown(state), groups=(group,)), an_intent(Verb.TERMINATE, "i-1", status)

    members = lives_of_members(known, (), (entry,), fleet, NOW)
    launched = life_of(fleet, entry)
    assert [each.end for each in members.get("g-1", ())] == ([] if launched.end is None else [launched.end])
