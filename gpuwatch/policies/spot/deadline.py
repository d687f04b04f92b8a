"""PURE: where a job with a deadline runs now: on spot, on demand, or not at all.

Rules: spot is taken whenever it is there. Without spot the job waits while more than half of its slack is left. Then it
keeps to the straight line from there to its deadline: behind the line it runs on demand until spot is back. Once its
slack is down to two moves it runs on demand to the end. A job with less than 15 % slack never waits.

A move is what a start costs: boot, image, and the work since the last checkpoint. docs/policies/spot.md has the
measurements; the line is that of "uniform progress" (Wu et al., NSDI 24), begun later.
"""

from dataclasses import dataclass
from typing import Literal

Place = Literal["spot", "on_demand", "nowhere"]

_MOVES = 2.0
_LITTLE_SLACK = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job at one moment. Times are in seconds.

    `work` is what is left of it on one node without an interruption; what is left of the move under way counts as work.
    `left` is the time to its deadline, `allowed` what that was at first, and `slack_at_start` what was left of it then,
    without the work and one move.
    `line_work` is the work that was left when half of that was spent; None: it is not spent yet.
    """

    work: float
    left: float
    allowed: float
    move: float
    slack_at_start: float
    place: Place = "nowhere"
    line_work: float | None = None

    @property
    def slack(self) -> float:
        """How long it could still wait where it is, or before it starts."""
        return self.left - self.work - (self.move if self.place == "nowhere" else 0.0)

    @property
    def half_spent(self) -> bool:
        """Whether half of the slack is gone, or there never was much."""
        return self.slack <= self.slack_at_start / 2 or self.hurried

    @property
    def hurried(self) -> bool:
        """Whether it never had much slack."""
        return self.slack_at_start < _LITTLE_SLACK * self.allowed


def place(job: Job, *, spot: bool) -> Place:
    """Where it runs next; `spot` is whether spot can be had."""
    if no_risk_left(job):
        return "on_demand"
    if spot:
        return "spot"
    # Who stands still again pays for another start, and the line is soon reached again.
    if job.place == "on_demand" or job.hurried or (job.half_spent and job.slack <= _line(job)):
        return "on_demand"
    return "nowhere"


def no_risk_left(job: Job) -> bool:
    """Whether it has to run on demand to the end.

    On demand it stays where two moves would not fit: one to spot and, after a loss, one back. Elsewhere the last move
    that fits is the one to a node on demand.
    """
    if job.place == "on_demand":
        return job.slack <= _MOVES * job.move
    return job.slack <= job.move


def _line(job: Job) -> float:
    """The slack that it should have by its work, on the straight line from half of the slack to none."""
    if not job.line_work:
        return job.slack_at_start / 2
    return job.slack_at_start / 2 * min(1.0, job.work / job.line_work)
