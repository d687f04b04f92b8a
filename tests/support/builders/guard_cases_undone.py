"""More rows for `guard_cases.py`: machines and groups whose stops somebody has undone."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

from gpuwatch.guard import Case
from gpuwatch.model.decision import Verb
from gpuwatch.model.undone import Undone
from tests.support.builders.fleet import NOW
from tests.support.builders.guard_cases import asleep, with_node


def undone(*, hours_ago: float = 1.0, **changes: object) -> Undone:
    """Undone so long ago for the second time: its machine is left alone for a day."""
    at = NOW - timedelta(hours=hours_ago)
    base = Undone(
        target="i-1",
        pool="default",
        key="k",
        removed_at=at - timedelta(minutes=5),
        at=at,
        times=1,
        before=at - timedelta(hours=1),
        until=at + timedelta(days=1),
        quiet_at=at + timedelta(days=2),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def with_undone(case: Case, found: Undone) -> Case:
    """The case after that."""
    return replace(case, observation=replace(case.observation, undone=(found,)))


def ended(case: Case, found: Undone) -> Case:
    """The end of that machine after it."""
    return with_undone(replace(case, step=replace(case.step, verb=Verb.TERMINATE)), found)


SPOILED_UNDONE: list[tuple[str, str, Callable[[Case], Case], str]] = [
    ("started again twice", "left_alone", lambda c: with_undone(c, undone()), "at 2026-03-02 10:00 UTC and at"),
    ("a minute before its time", "left_alone", lambda c: with_undone(c, undone(hours_ago=23.98)), "2026-03-02 12:01"),
    (
        "of its group",
        "left_alone",
        lambda c: with_undone(with_node(c, group="g-1"), undone(target="g-1", group=True)),
        "the group alone",
    ),
    ("to be ended days later", "left_alone", lambda c: ended(c, undone(hours_ago=300.0)), "2026-03-0"),
    (
        "stopped once more",
        "left_alone",
        lambda c: with_undone(asleep(c), undone(hours_ago=200.0, waits=True, before=None)),
        "again after gpuwatch",
    ),
]

FAIR_UNDONE: list[tuple[str, Callable[[Case], Case]]] = [
    ("left alone, and tried", lambda c: with_undone(c, undone(hours_ago=24.1))),
    ("undone once", lambda c: with_undone(c, undone(times=0, until=None, quiet_at=None, before=None))),
    ("another machine is left alone", lambda c: with_undone(c, undone(target="i-2"))),
    (
        "ended two weeks after it was left alone",
        lambda c: with_undone(asleep(c), undone(hours_ago=24 * 15.1, waits=True)),
    ),
]
