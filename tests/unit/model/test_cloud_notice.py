"""model/cloud_notice.py: when a cloud's word takes a machine out of the capacity, and for how long."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.cloud_notice import CloudNotice, arguments_of, notice_of, standing
from tests.support.builders.fleet import NOW


def a_cloud_notice(
    minutes: float | None = 2.0, kind: str = "spot_interruption", action: str = "terminate"
) -> CloudNotice:
    """One that was seen now, with a deadline so many minutes ahead."""
    deadline = None if minutes is None else NOW + timedelta(minutes=minutes)
    return CloudNotice(kind=kind, action=action, deadline=deadline, seen_at=NOW)


@pytest.mark.parametrize(
    ("kind", "action", "takes"),
    [
        ("spot_interruption", "terminate", True),
        ("spot_interruption", "hibernate", True),
        ("termination", "Terminate", True),
        ("maintenance", "instance-retirement", True),
        ("maintenance", "instance-stop", True),
        ("maintenance", "terminate_on_host_maintenance", True),
        ("maintenance", "system-reboot", False),
        ("maintenance", "Freeze", False),
        ("maintenance", "Redeploy", False),
        ("maintenance", "migrate_on_host_maintenance", False),
        ("rebalance", "rebalance", False),
        ("a later agent's word", "terminate", False),
    ],
)
def test_what_ends_a_machine_takes_it(kind: str, action: str, takes: bool) -> None:
    """Advice, and what the machine comes back from, take nothing."""
    assert a_cloud_notice(kind=kind, action=action).takes(NOW) is takes


@pytest.mark.parametrize(
    ("minutes", "takes"), [(61, False), (59, True), (2, True), (0, True), (-9, True), (-11, False), (None, True)]
)
def test_a_notice_counts_from_an_hour_before_to_ten_minutes_after(minutes: float | None, takes: bool) -> None:
    """Without a deadline it counts from its first sight."""
    assert a_cloud_notice(minutes).takes(NOW) is takes


def test_the_agents_word_of_now_is_the_truth() -> None:
    """Silence leaves what is on record; an answer without notices takes it back; of several the soonest counts."""
    soon, later = a_cloud_notice(2), a_cloud_notice(30, "termination")

    assert standing(None, (), None, NOW) is None
    assert standing(None, (), soon, NOW) == soon
    assert standing((), (), soon, NOW) is None
    assert standing((later, soon), (), None, NOW) == soon
    assert standing((later,), (), soon, NOW) == later
    assert standing(None, (), soon, NOW + timedelta(minutes=13)) is None


def test_the_clouds_lists_say_what_no_agent_says() -> None:
    """Of one kind the agent knows more; where a list gives no answer, the record holds; a new time replaces an old."""
    soon, later, moved = a_cloud_notice(2), a_cloud_notice(30, "termination"), a_cloud_notice(20)

    assert standing(None, (soon,), None, NOW) == soon
    assert standing((), (soon,), None, NOW) == soon
    assert standing((moved,), (soon,), None, NOW) == moved
    assert standing((later,), (soon,), None, NOW) == soon
    assert standing((), None, soon, NOW) == soon
    assert standing(None, (moved,), soon, NOW) == moved


def test_lists_that_never_say_anything_keep_no_notice_that_the_agent_takes_back() -> None:
    """What the agent has said is the agent's to take back; its silence takes back nothing."""
    soon = a_cloud_notice(2)

    assert standing((), None, soon, NOW, by_agent=True) is None
    assert standing(None, None, soon, NOW, by_agent=True) == soon
    assert standing(None, (), soon, NOW, by_agent=True) == soon


TIMES = st.none() | st.timedeltas(timedelta(days=-3), timedelta(days=30)).map(lambda each: NOW + each)


@given(kind=st.text(max_size=9), action=st.text(max_size=9), deadline=TIMES, saved=TIMES)
def test_a_record_says_what_the_notice_said(kind: str, action: str, deadline: None, saved: None) -> None:
    """Whatever the agent's words are; they are made readable once."""
    notice = CloudNotice(kind=kind, action=action, deadline=deadline, seen_at=NOW, checkpoint_at=saved)
    once = notice_of(arguments_of(notice))
    assert once is not None
    assert (once.deadline, once.checkpoint_at, once.seen_at) == (deadline, saved, NOW)
    assert notice_of(arguments_of(once)) == once


@pytest.mark.parametrize("words", [{}, {"kind": "x", "action": "y", "seen": "soon"}, {"kind": "x"}])
def test_what_cannot_be_read_is_no_notice(words: dict[str, str]) -> None:
    """A record of an older or later gpuwatch."""
    assert notice_of(words) is None
