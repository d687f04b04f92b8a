"""Which removals of ours somebody has undone, and for how long their targets are left alone for that."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.decision import LAUNCHED_AT, Done, Status, Verb
from gpuwatch.model.stops import NOT_PROVED
from gpuwatch.model.undone import GROUP, SIZE, STARTED_AGAIN, Removal, Undone
from gpuwatch.policies.undone import LONGEST, is_over, is_told, judge_undone, note_action, repeats_sentence, sentence_of
from tests.support.builders.fleet import NOW

DAY = timedelta(days=1)


def a_done(verb: Verb = Verb.STOP, *, at: datetime = NOW, target: str = "i-1", **changes: object) -> Done:
    """An action that is over."""
    base = Done(key=f"{verb}-{at}", verb=verb, node_id=target, pool="default", status=Status.SETTLED, at=at)
    return replace(base, **changes)  # type: ignore[arg-type]


def an_end(member: str, size: int, **changes: object) -> Done:
    """The end of a group's member, when the group was so large."""
    done = a_done(Verb.TERMINATE, target=member, arguments={GROUP: "g", SIZE: str(size)}, key=member)
    return replace(done, **changes)  # type: ignore[arg-type]


def noted(*actions: Done) -> dict[str, Removal]:
    """What is left of these."""
    known: dict[str, Removal] = {}
    for each in actions:
        note_action(known, each)
    return known


def undone_again(removal: Removal, at: datetime) -> tuple[Undone, Removal]:
    """It is undone then; and the next removal, a moment after it may be, with what it keeps of that."""
    found = judge_undone(removal, at, at, told=False)
    assert found is not None
    next_at = max(at, found.until or at) + timedelta(minutes=40)
    done = a_done(at=next_at, arguments={LAUNCHED_AT: at.isoformat(), **found.arguments})
    return found, noted(done)["i-1"]


def test_each_rest_is_twice_as_long_and_two_weeks_at_most() -> None:
    """An instance scheduler of which nobody takes care."""
    removal, rests = noted(a_done())["i-1"], list[timedelta]()
    for _ in range(8):
        at = removal.at + timedelta(minutes=5)
        found, removal = undone_again(removal, at)
        rests.append(found.until - at if found.until else timedelta(0))
    assert [each / DAY for each in rests] == [0, 1, 2, 4, 8, 14, 14, 14]


def test_both_must_be_within_a_day() -> None:
    """A schedule that starts it once a day is no war; one that does so twice is."""
    first = noted(a_done())["i-1"]
    _, second = undone_again(first, NOW + timedelta(hours=12))
    for hours, times in ((23.9, 1), (24.1, 0)):
        found = judge_undone(second, NOW + timedelta(hours=hours), NOW + timedelta(hours=hours), told=False)
        assert found is not None
        assert found.times == times


@given(st.lists(st.tuples(st.floats(0.01, 100.0), st.booleans()), max_size=30))
def test_whatever_comes_no_rest_is_longer_than_two_weeks_and_removals_are_few(
    lives: list[tuple[float, bool]],
) -> None:
    """Started again after so many hours, used in between or not: at most two stops a day that nobody needed."""
    removal, wars = noted(a_done())["i-1"], list[datetime]()
    for hours, used in lives:
        at = removal.at + timedelta(hours=hours)
        found = judge_undone(removal, at, at, told=False)
        if found is None or used:
            removal = noted(a_done(at=at + timedelta(hours=1)))["i-1"]
            wars.clear()
            continue
        assert found.until is None or timedelta(0) < found.until - at <= LONGEST
        _, removal = undone_again(removal, at)
        wars.append(removal.at)
        assert sum(each > removal.at - DAY for each in wars) <= 2


def test_what_counts_as_a_stop_of_ours() -> None:
    """Also one that was undone before it was seen; not one that the cloud ascribes to others, or that never left."""
    seen = "the cloud shows it stopped"
    assert noted(a_done(detail=seen)).keys() == {"i-1"}
    assert noted(a_done(detail=f"{seen}; {NOT_PROVED}: it says so")) == {}
    assert noted(a_done(status=Status.FAILED, detail=STARTED_AGAIN)).keys() == {"i-1"}
    assert noted(a_done(status=Status.FAILED, detail=STARTED_AGAIN, reached=False)) == {}
    assert noted(a_done(status=Status.FAILED, detail="given up: no")) == {}
    assert noted(a_done(status=Status.CANCELLED, detail="no longer wanted")) == {}


@pytest.mark.parametrize("status", [Status.SETTLED, Status.FAILED])
def test_an_own_start_or_growth_ends_what_could_be_undone(status: Status) -> None:
    """Also one of which nobody knows whether it was carried out."""
    start, grow = a_done(Verb.START, status=status), a_done(Verb.GROW, target="g", status=status)
    assert noted(a_done(), start) == {}
    assert noted(an_end("m-1", 3), grow) == {}
    assert noted(a_done(), replace(start, status=Status.FAILED, reached=False)).keys() == {"i-1"}


def test_ends_of_one_round_leave_a_group_smaller_by_as_many() -> None:
    """Each knows the size that the round saw; those of later rounds, or after a reset, know another time."""
    assert noted(an_end("m-1", 3), an_end("m-2", 3), an_end("m-3", 3))["g"].left == 0
    assert noted(an_end("m-1", 3), an_end("m-2", 2))["g"].left == 1
    assert noted(an_end("m-1", 3), an_end("m-2", 3, at=NOW + timedelta(hours=1)))["g"].left == 2


def test_a_removal_whose_arguments_nobody_can_read_begins_at_the_beginning() -> None:
    """No value of a record stops a round."""
    for arguments in ({"undone_times": "x"}, {"undone_times": "1", "undone_at": "never"}, {GROUP: "g", SIZE: "-"}):
        for verb in (Verb.STOP, Verb.TERMINATE):
            assert all(each.before is None for each in noted(a_done(verb, arguments=arguments)).values())


def test_what_is_over_is_forgotten() -> None:
    """A stop after a day; one that followed a disagreement two weeks after that."""
    first = noted(a_done())["i-1"]
    assert (is_over(first, NOW + DAY), is_over(first, NOW + 1.01 * DAY)) == (False, True)
    _, second = undone_again(first, NOW + timedelta(minutes=5))
    found, third = undone_again(second, second.at + timedelta(minutes=5))
    assert found.until is not None
    assert not is_over(third, found.until + LONGEST)
    assert is_over(third, found.until + LONGEST + timedelta(minutes=1))


def test_it_says_who_did_what_when() -> None:
    """Of a machine that is stopped the last time alone is known."""
    _, second = undone_again(noted(a_done())["i-1"], NOW + timedelta(minutes=5))
    found, third = undone_again(second, second.at + timedelta(minutes=5))
    waits = judge_undone(third, None, third.at, told=False)
    assert found.until is not None
    assert waits is not None
    assert sentence_of(found, found.until) == (
        "Somebody started it again twice after gpuwatch had stopped it, at 2026-03-02 12:05 UTC and at "
        "2026-03-02 12:50 UTC, and did not use it. gpuwatch leaves it alone until 2026-03-03 12:50 UTC."
    )
    assert "again after gpuwatch had stopped it, the last time at 2026-03-02 12:50" in sentence_of(waits, found.until)


@pytest.mark.parametrize("group", [False, True])
def test_what_is_undone_once_a_day_is_told_on_the_third_day_and_each_week(*, group: bool) -> None:
    """An instance scheduler starts at eight what gpuwatch stops half an hour later; nobody uses it for two weeks."""
    removal, told = noted(an_end("m-1", 3) if group else a_done())["g" if group else "i-1"], list[int]()
    for day in range(1, 15):
        at = removal.at + timedelta(hours=23.5)
        found = judge_undone(removal, at, at, told=False)
        assert found is not None
        assert found.until is None
        assert f"{day} times in a row, each time within a day" in repeats_sentence(found)
        told += [day] if is_told(found) else []
        next_at, kept = at + timedelta(minutes=31), {LAUNCHED_AT: at.isoformat(), **found.arguments}
        stop = an_end("m-2", 3, at=next_at, arguments={GROUP: "g", SIZE: "3", **kept}, key=f"k-{day}")
        removal = noted(stop if group else a_done(at=next_at, arguments=kept))["g" if group else "i-1"]
    assert told == [3, 10]


def test_a_weekend_or_real_work_ends_the_row() -> None:
    """What nobody undid within a day stands."""
    removal = noted(a_done())["i-1"]
    found, removal = undone_again(removal, NOW + timedelta(hours=23))
    assert found.row == 1
    later = removal.at + timedelta(hours=71)
    assert judge_undone(removal, later, later, told=False) is None
    assert is_over(removal, later)
