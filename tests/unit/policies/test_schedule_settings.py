"""Schedule windows that cannot be meant as they are written, and what would be right."""

import pytest

from gpuwatch.model.setting import Contradiction
from gpuwatch.policies import schedule
from gpuwatch.policies.schedule import Window

CALENDARS = {"holidays": ["2026-12-24"]}
PATH = ("pools", "a", "schedule")


def found(window: Window) -> list[Contradiction]:
    """What is wrong with a window."""
    return list(schedule.contradictions({"w": window}, CALENDARS, PATH))


@pytest.mark.parametrize(
    "window",
    [
        Window(min_nodes=1),
        Window(days=("Mon-Fri", "sun"), hours="22:00-06:00", zone="Asia/Kolkata", min_nodes=1, max_nodes=1),
        Window(except_on=("holidays", "2026-01-01", "2026-12-24/2027-01-01"), idle_timeout=60.0),
        Window(first_day="2026-02-28", last_day="2026-02-28", max_nodes=0),
    ],
)
def test_a_right_window_is_not_doubted(window: Window) -> None:
    """Nothing is wrong with it."""
    assert found(window) == []


@pytest.mark.parametrize(
    ("window", "key", "wrong", "right"),
    [
        (Window(days=("mon-fry",), min_nodes=1), "days", "'mon-fry', which is no day", "mon-fri"),
        (Window(days=("",), min_nodes=1), "days", "'', which is no day", "mon-fri"),
        (Window(days=(), min_nodes=1), "days", "never begins", "mon-fri"),
        (Window(hours="8-18", min_nodes=1), "hours", "'8-18'", "such as 08:00-18:00"),
        (Window(hours="08:00-25:00", min_nodes=1), "hours", "'08:00-25:00'", "08:00-18:00"),
        (Window(hours="08:00-08:00", min_nodes=1), "hours", "'08:00-08:00'", "00:00-24:00"),
        (Window(hours="24:00-08:00", min_nodes=1), "hours", "'24:00-08:00'", "08:00-18:00"),
        (Window(zone="Europe/Berlim", min_nodes=1), "zone", "'Europe/Berlim', which is no time zone", "Europe/Berlin"),
        (Window(zone="europe/berlin", min_nodes=1), "zone", "'europe/berlin'", "Europe/Berlin"),
        (Window(zone="Berlin", min_nodes=1), "zone", "'Berlin'", "Europe/Berlin"),
        (Window(zone="New York", min_nodes=1), "zone", "'New York'", "America/New_York"),
        (Window(zone="../../etc/passwd", min_nodes=1), "zone", "which is no time zone", "IANA"),
        (Window(zone="", min_nodes=1), "zone", "which is no time zone", "IANA"),
        (Window(first_day="24.12.2026", min_nodes=1), "first_day", "'24.12.2026', which is no date", "2026-12-24"),
        (Window(last_day="2026-02-30", min_nodes=1), "last_day", "'2026-02-30', which is no date", "2026-12-24"),
        (Window(last_day="20261224", min_nodes=1), "last_day", "'20261224', which is no date", "2026-12-24"),
        (
            Window(first_day="2026-12-24", last_day="2026-12-23", min_nodes=1),
            "first_day",
            "after last_day",
            "2026-12-23 or before",
        ),
        (
            Window(except_on=("holiday",), min_nodes=1),
            "except_on",
            "'holiday', which is no date",
            "the calendar holidays",
        ),
        (Window(except_on=("xmas",), min_nodes=1), "except_on", "'xmas', which is no date", "name of a calendar"),
        (
            Window(except_on=("2027-01-01/2026-12-24",), min_nodes=1),
            "except_on",
            "ends before it begins",
            "2026-12-24/2027-01-01",
        ),
        (Window(min_nodes=4, max_nodes=3), "min_nodes", "(4) is above max_nodes (3)", "3 or less"),
        (Window(), "min_nodes", "the window does nothing", "one of the three"),
    ],
)
def test_a_wrong_window_is_told_with_its_key_its_value_and_the_remedy(
    window: Window, key: str, wrong: str, right: str
) -> None:
    """The first key is the culprit's."""
    (problem,) = found(window)

    assert problem.keys[0] == (*PATH, "w", key)
    assert f"pools.a.schedule.w.{key} " in problem.wrong
    assert wrong in problem.wrong
    assert right in problem.right


def test_dates_of_a_calendar_are_checked_where_they_stand() -> None:
    """The calendar and the text are named."""
    calendars = {"good": ["2026-05-01", "2026-12-24/2026-12-26"], "bad": ["1st of May"]}
    (problem,) = schedule.calendar_contradictions(calendars, ("calendars",))

    assert problem.keys == (("calendars", "bad"),)
    assert "calendars.bad has '1st of May', which is no date" in problem.wrong
