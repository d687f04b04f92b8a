"""Where a job with a deadline runs: spot when it is there, waiting while there is time, never late."""

from dataclasses import replace

import pytest

from gpuwatch.policies.spot.deadline import Job, Place, place

HOUR, MOVE = 3600.0, 600.0
# Ten hours of work in twenty: 9 h 50 min of slack.
FRESH = Job(work=10 * HOUR, left=20 * HOUR, allowed=20 * HOUR, move=MOVE, slack_at_start=10 * HOUR - MOVE)


def later(hours: float, *, done: float = 0.0, where: Place = "nowhere", line: float | None = None) -> Job:
    """The job after so many hours, with so many hours of its work done."""
    return replace(FRESH, left=(20 - hours) * HOUR, work=(10 - done) * HOUR, place=where, line_work=line)


@pytest.mark.parametrize(
    ("job", "spot", "expected"),
    [
        (FRESH, True, "spot"),
        (FRESH, False, "nowhere"),
        (later(4.9), False, "nowhere"),
        (later(5.0, line=10 * HOUR), False, "on_demand"),
        (later(8.0, done=2.5, where="on_demand", line=10 * HOUR), False, "on_demand"),
        (later(8.0, done=2.5, where="on_demand", line=10 * HOUR), True, "spot"),
        (later(9.7, done=0.0, where="spot"), True, "spot"),
        (later(9.9, done=0.0, where="spot"), True, "on_demand"),
        (later(9.7, done=0.0, where="on_demand"), True, "on_demand"),
        (later(9.7, done=0.0), True, "on_demand"),
    ],
    ids=["begins", "waits", "waits on", "half", "stays", "back", "a move left", "safe", "no more", "start"],
)
def test_where_it_runs_next(job: Job, spot: bool, expected: Place) -> None:
    """By what is left of its slack."""
    assert place(job, spot=spot) == expected


def test_with_little_slack_it_never_waits() -> None:
    """Less than 15 % of the time allowed."""
    hurried = replace(FRESH, left=11 * HOUR, allowed=11 * HOUR, slack_at_start=HOUR - MOVE)

    assert place(hurried, spot=False) == "on_demand"
    assert place(hurried, spot=True) == "spot"
