"""Since when groups lack members: by the monotonic clock, and never from a time in which nobody could see them."""

from dataclasses import replace
from datetime import timedelta

from gpuwatch.controller.observe.short_groups import Short, with_short
from gpuwatch.model.decision import LedgerView, Verb
from gpuwatch.model.fleet import NodeGroup
from tests.support.builders.fleet import NOW
from tests.support.builders.past_steps import a_done, a_group

SHORT = a_group(desired=5)


def look(
    group: NodeGroup, known: Short, *, minutes: float, wall: float | None = None, ledger: LedgerView
) -> float | None:
    """For how many minutes the group is said to be short, so many minutes after the first look."""
    now = NOW + timedelta(minutes=minutes if wall is None else wall)
    (told,) = with_short([group], known, ledger, now, minutes * 60.0)
    return None if told.short_since is None else (now - told.short_since).total_seconds() / 60


def test_the_time_begins_with_the_first_look_and_ends_with_the_last_member() -> None:
    """Whole groups have none."""
    known: Short = {}
    empty = LedgerView()
    assert look(SHORT, known, minutes=0.0, ledger=empty) == 0.0
    assert look(SHORT, known, minutes=7.0, ledger=empty) == 7.0
    assert look(a_group(), known, minutes=8.0, ledger=empty) is None
    assert look(SHORT, known, minutes=9.0, ledger=empty) == 0.0


def test_a_step_of_the_wall_clock_changes_nothing() -> None:
    """A clock that is set forward by hours would let every group be left at once."""
    known: Short = {}
    look(SHORT, known, minutes=0.0, ledger=LedgerView())
    assert look(SHORT, known, minutes=3.0, wall=300.0, ledger=LedgerView()) == 3.0


def test_a_restart_begins_with_the_growth_that_the_ledger_knows() -> None:
    """Of the size that the group still wants: an older growth to less is another matter."""
    growth = replace(a_done("g-1", minutes_ago=8.0), verb=Verb.GROW, arguments={"size": "5", "adds": "2"})
    assert look(SHORT, {}, minutes=0.0, ledger=LedgerView(recent=(growth,))) == 8.0
    smaller = replace(growth, arguments={"size": "4", "adds": "1"})
    assert look(SHORT, {}, minutes=0.0, ledger=LedgerView(recent=(smaller,))) == 0.0


def test_a_group_that_nobody_sees_begins_anew() -> None:
    """It may have filled itself up behind the silence: what it lacks is waited for when it is seen again."""
    known: Short = {}
    look(SHORT, known, minutes=0.0, ledger=LedgerView())
    silent = replace(SHORT, seen_now=False)
    assert look(silent, known, minutes=30.0, ledger=LedgerView()) is None
    assert look(SHORT, known, minutes=31.0, ledger=LedgerView()) == 0.0
