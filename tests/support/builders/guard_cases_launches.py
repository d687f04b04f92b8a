"""More rows for `guard_cases.py`: launches after machines that did not last."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from gpuwatch.guard import Case
from gpuwatch.model.life import MEMBER_OF, End, Life
from tests.support.builders.fleet import NOW
from tests.support.builders.guard_cases import a_growth, a_launch, with_ledger
from tests.support.builders.guard_cases_growth import ASKED


def ended(minutes_ago: float, **changes: object) -> Life:
    """A machine that ended before it was a node."""
    at = NOW - timedelta(minutes=minutes_ago)
    asked = {**ASKED, "subnet": "s-1"}
    life = Life(key=f"k-{minutes_ago}", pool="default", at=at, asked=asked, node_id="i-9", end=End.ENDED, ended_at=at)
    return replace(life, **changes)  # type: ignore[arg-type]


def with_lives(case: Case, *lives: Life) -> Case:
    """A launch after these machines."""
    case = a_launch(case)
    return replace(case, observation=replace(case.observation, lives=lives))


def three_ended(case: Case, **changes: object) -> Case:
    """A launch after three of which nothing was left."""
    return with_lives(case, *(ended(minutes, **changes) for minutes in (10.0, 20.0, 59.0)))


def members_ended(case: Case, *minutes_ago: float, adds: int = 1, **changes: object) -> Case:
    """The growth of a group whose newest members did not last."""
    case, asked = a_growth(case, 3 + adds), {MEMBER_OF: "g-1"}
    lives = tuple(replace(ended(each, asked=asked), **changes) for each in minutes_ago)  # type: ignore[arg-type]
    return replace(case, observation=replace(case.observation, members={"g-1": lives}))


SPOILED_LAUNCHES: list[tuple[str, str, Callable[[Case], Case], str]] = [
    ("ended", "launch_lasts", three_ended, "The last 3 machines"),
    ("ended in another pool", "launch_lasts", lambda c: three_ended(c, pool="dev"), "i-9 ended by itself after 0s"),
    (
        "all of them idle for hours",
        "launch_lasts",
        lambda c: three_ended(c, at=NOW - timedelta(hours=5), worked=False),
        "The last 3 machines",
    ),
    (
        "a pause is over",
        "launch_lasts",
        lambda c: with_ledger(three_ended(c), resumed=(("default", NOW),), resume_orders=((None, NOW),)),
        "The last 3 machines",
    ),
    (
        "resumed before",
        "launch_lasts",
        lambda c: with_ledger(three_ended(c), resume_orders=(("default", NOW - timedelta(minutes=61)), ("dev", NOW))),
        "The last 3 machines",
    ),
    (
        "one is tried",
        "launch_lasts",
        lambda c: with_lives(c, *(ended(each) for each in (70.0, 80.0, 90.0)), ended(9.0, end=None, ended_at=None)),
        "has lasted for an hour",
    ),
    (
        "one is tried in this round",
        "launch_lasts",
        lambda c: replace(
            with_lives(c, *(ended(each) for each in (70.0, 80.0, 90.0))),
            granted=(replace(a_launch(c).step, node_id="new:default:7"),),
        ),
        "one machine is tried now",
    ),
    (
        "its members ended",
        "launch_lasts",
        lambda c: members_ended(c, 9.0, 20.0, 30.0),
        "members of the group did not last",
    ),
    (
        "its members ended, two are tried",
        "launch_lasts",
        lambda c: members_ended(c, 61.0, 70.0, 90.0, adds=2),
        "one more is tried now",
    ),
]

FAIR_LAUNCHES: list[tuple[str, Callable[[Case], Case]]] = [
    ("two members of its group ended", lambda c: members_ended(c, 10.0, 20.0, adds=2)),
    ("one more member of a group is tried", lambda c: members_ended(c, 61.0, 70.0, 90.0)),
    ("three members that gpuwatch removed", lambda c: members_ended(c, 10.0, 20.0, 30.0, end=End.REMOVED)),
    ("three that ended, launched otherwise", lambda c: three_ended(c, asked={**ASKED, "zone": "us-east-1f"})),
    ("two ended", lambda c: with_lives(c, ended(10.0), ended(20.0))),
    ("three ended, long ago", lambda c: with_lives(c, *(ended(each) for each in (61.0, 70.0, 90.0)))),
    ("three that lasted", lambda c: three_ended(c, at=NOW - timedelta(hours=5))),
    ("three that gpuwatch removed", lambda c: three_ended(c, end=End.REMOVED)),
    ("resumed", lambda c: with_ledger(three_ended(c), resume_orders=(("default", NOW - timedelta(minutes=5)),))),
]
