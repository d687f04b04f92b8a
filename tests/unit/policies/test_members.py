"""The lives of what groups make: which count, and which ends are their own."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import LAUNCHED_AT, Done, Verb
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.life import MEMBER_OF, End
from gpuwatch.policies.lives import ENDED_AT, HOW, LATE, Use
from gpuwatch.policies.members import Member, lives_of_members, note_members, raised_groups
from tests.support.builders.fleet import NOW, a_node
from tests.support.builders.past_steps import a_group
from tests.support.builders.scaled_pools import done

GROWN = done(Verb.GROW, 3600.0, node_id="g-1")


def a_member(name: str, minutes_ago: float, **changes: object) -> Node:
    """A member that was started so many minutes ago."""
    node = a_node(name, group="g-1", launched_at=NOW - timedelta(minutes=minutes_ago))
    return replace(node, **changes)  # type: ignore[arg-type]


def a_fleet(*nodes: Node, **group: object) -> Fleet:
    """These members in a group of three."""
    about = {"node_ids": tuple(node.id for node in nodes), **group}
    return Fleet(observed_at=NOW, nodes=nodes, groups=(a_group(**about),))


def known(fleet: Fleet, *ended: Done, before: dict[str, Member] | None = None) -> dict[str, Member]:
    """The members that are noted."""
    return note_members(before or {}, raised_groups((GROWN, *ended)), fleet, NOW)


def gone(members: dict[str, Member]) -> dict[str, Member]:
    """The same, of which lists have lacked all for long enough."""
    return {key: replace(each, use=Use(answered=True, gone_at=NOW - LATE)) for key, each in members.items()}


def test_only_what_began_after_the_growth_counts() -> None:
    """What was there before is its owner's; so is what has no launch time, or one that is yet to come."""
    odd = (replace(a_member("i-4", 1.0), launched_at=None), a_member("i-5", -30.0), a_member("i-6", 5.0, group="g-2"))
    fleet = a_fleet(a_member("i-1", 90.0), a_member("i-2", 59.0), a_member("i-3", 5.0), *odd)
    assert [each.life.node_id for each in known(fleet).values()] == ["i-2", "i-3"]
    assert not note_members({}, raised_groups(()), fleet, NOW)
    assert not known(replace(fleet, groups=(a_group(enrolled=False, node_ids=("i-2", "i-3")),)))


def test_a_member_that_its_group_lacks_has_ended() -> None:
    """Once lists have lacked it for three minutes, or at once by the cloud's own word."""
    members = known(a_fleet(a_member("i-1", 5.0)))
    assert not lives_of_members(members, (), (), a_fleet(), NOW)
    (life,) = lives_of_members(gone(members), (), (), a_fleet(), NOW)["g-1"]
    assert (life.end, life.asked[MEMBER_OF], life.recorded) == (End.ENDED, "g-1", False)
    stopped = a_fleet(a_member("i-1", 5.0, state=NodeState.STOPPED))
    assert lives_of_members(members, (), (), stopped, NOW)["g-1"][0].end is End.STOPPED


def test_who_is_gone_while_the_group_wants_fewer_may_have_been_chosen_to_go() -> None:
    """The same of a group that is gone, is consented to no longer, or of a member that runs again."""
    members = known(a_fleet(a_member("i-1", 5.0)))
    assert known(a_fleet(desired=3), before=members)
    assert known(a_fleet(desired=1, seen_now=False), before=members), "nobody knows its size now"
    assert not known(a_fleet(desired=2), before=members)
    assert not known(a_fleet(enrolled=False), before=members)
    assert not known(Fleet(observed_at=NOW, nodes=()), before=members)
    assert [each.life.at for each in known(a_fleet(a_member("i-1", 1.0)), before=members).values()] == [
        NOW - timedelta(minutes=1)
    ]


def test_a_removal_of_ours_is_no_end_of_its_own() -> None:
    """It may be under way, or over."""
    members = gone(known(a_fleet(a_member("i-1", 5.0))))
    ours = done(Verb.TERMINATE, 60.0, node_id="i-1")
    assert not lives_of_members(members, (ours,), (), a_fleet(), NOW)


def test_a_new_process_has_the_ends_that_are_on_record() -> None:
    """And counts what the group makes in their places, though the growth was long ago."""
    began = NOW - timedelta(days=2)
    about = {MEMBER_OF: "g-1", LAUNCHED_AT: began.isoformat(), HOW: "stopped", ENDED_AT: NOW.isoformat()}
    record = replace(done(Verb.ENDED, 60.0, node_id="i-1"), arguments=about)
    (life,) = lives_of_members({}, (record,), (), a_fleet(), NOW)["g-1"]
    assert (life.end, life.at, life.recorded) == (End.STOPPED, began, True)
    assert raised_groups((record,)) == {"g-1": began}


@given(
    verb=st.sampled_from([Verb.ENDED, Verb.LOST, Verb.GROW]),
    arguments=st.dictionaries(
        st.sampled_from([MEMBER_OF, LAUNCHED_AT, HOW, ENDED_AT, "size"]),
        st.sampled_from(["", "g-1", "yesterday", "2026-03-02T05:00:00", "0001-01-01T00:00:00+14:00", "stopped"]),
    ),
)
def test_a_damaged_record_ends_no_round(verb: Verb, arguments: dict[str, str]) -> None:
    """Whatever of it cannot be read; it says nothing of others."""
    record = replace(done(verb, 60.0, node_id="g-1"), arguments=arguments)
    raised = raised_groups((record, GROWN))
    note_members({}, raised, a_fleet(a_member("i-1", 5.0)), NOW)
    found = lives_of_members({}, (record,), (), a_fleet(), NOW)
    assert all(each.ended_at is not None and each.ended_at.tzinfo is not None for each in found.get("g-1", ()))
