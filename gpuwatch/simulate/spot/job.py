"""One job with a deadline on one recording, by different rules, and what an omniscient one would have paid."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuwatch.policies.spot.deadline import Job, Place, no_risk_left, place
from gpuwatch.simulate.spot.recording import STEP_SECONDS

_MINUTES_PER_HOUR = 60.0

Rule = Callable[[Job, bool], Place]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """Minutes of work, of time allowed, and of a start; and what spot costs of on demand."""

    work_minutes: int
    allowed_minutes: int
    move_minutes: int = 10
    spot_price_ratio: float = 0.40


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlayed:
    """The outcome: its cost in hours on demand, its end in minutes, and how often it moved."""

    cost_hours: float
    minutes: int | None  # None: not done within the recording
    moves: int
    interruptions: int
    missed: bool


def _deadline(job: Job, spot: bool) -> Place:
    return place(job, spot=spot)


def _at_once(job: Job, spot: bool) -> Place:
    """Spot where there is any, else on demand."""
    return "spot" if spot and not no_risk_left(job) else "on_demand"


def _on_demand(job: Job, spot: bool) -> Place:  # noqa: ARG001  as above
    return "on_demand"


RULES: dict[str, Rule] = {"on demand": _on_demand, "spot or on demand at once": _at_once, "wait for spot": _deadline}


def play(rooms: Sequence[Sequence[bool]], terms: JobTerms, rule: Rule) -> JobPlayed:
    """A job that begins in the recording's first minute; `rooms` says of each offer, by minute, whether it has a node.

    Of several offers that have one it takes that which has had one for longest.
    """
    state = _State(work=float(terms.work_minutes), slack=_slack_minutes(terms) * STEP_SECONDS)
    since = [0] * len(rooms)
    minute, end = 0, min(len(room) for room in rooms)
    while state.work > 0 and minute < end:
        since = [0 if not room[minute] else count + 1 for room, count in zip(rooms, since, strict=True)]
        if state.offer is not None and not since[state.offer]:
            state.place, state.offer, state.moving = "nowhere", None, 0.0
            state.interruptions += 1
        job = state.job(minute, terms)
        if state.line is None and job.half_spent:
            state.line = job.work
        chosen = rule(job, any(since))
        if chosen != state.place:
            state.move_to(chosen, max(range(len(rooms)), key=since.__getitem__), terms)
        state.run(terms)
        minute += 1
    done = minute if state.work <= 0 else None
    late = done is None or done > terms.allowed_minutes
    return JobPlayed(
        cost_hours=state.cost / _MINUTES_PER_HOUR,
        minutes=done,
        moves=state.moves,
        interruptions=state.interruptions,
        missed=late,
    )


def _slack_minutes(terms: JobTerms) -> float:
    return float(terms.allowed_minutes - terms.work_minutes - terms.move_minutes)


@dataclass(slots=True)
class _State:
    """A job under way; minutes, and the slack in seconds."""

    work: float
    slack: float
    place: Place = "nowhere"
    offer: int | None = None
    moving: float = 0.0
    line: float | None = None
    cost: float = 0.0
    moves: int = 0
    interruptions: int = 0

    def job(self, minute: int, terms: JobTerms) -> Job:
        """As the rules see it."""
        return Job(
            work=(self.work + self.moving) * STEP_SECONDS,
            left=float(terms.allowed_minutes - minute) * STEP_SECONDS,
            allowed=float(terms.allowed_minutes) * STEP_SECONDS,
            move=float(terms.move_minutes) * STEP_SECONDS,
            slack_at_start=self.slack,
            place=self.place,
            line_work=self.line,
        )

    def move_to(self, chosen: Place, offer: int, terms: JobTerms) -> None:
        """Begin elsewhere, or stop."""
        self.place = chosen
        self.offer = offer if chosen == "spot" else None
        self.moving = 0.0 if chosen == "nowhere" else float(terms.move_minutes)
        self.moves += chosen != "nowhere"

    def run(self, terms: JobTerms) -> None:
        """Spend one minute of the job."""
        if self.place == "nowhere":
            return
        self.cost += terms.spot_price_ratio if self.place == "spot" else 1.0
        if self.moving > 0:
            self.moving -= 1
        else:
            self.work -= 1


def optimum_hours(spot: Sequence[bool], terms: JobTerms, step_minutes: int = 5) -> float:
    """What one who knows the recording pays, in hours on demand: dynamic programming in steps of some minutes.

    A step has spot only if it has spot in each of its minutes, so this is a little more than the least.
    """
    steps = terms.allowed_minutes // step_minutes
    work = -(-terms.work_minutes // step_minutes)
    move = -(-terms.move_minutes // step_minutes)
    there = [all(spot[index * step_minutes : (index + 1) * step_minutes]) for index in range(steps)]
    far = float("inf")
    # Least cost from a step on with so much work left: running on demand, running on spot, standing still.
    tables = [[[0.0] + [far] * work for _ in range(3)] for _ in range(steps + move + 1)]
    for at in range(steps - 1, -1, -1):
        demand, on_spot, still = tables[at]
        after = tables[at + 1]
        runs = [there[index] for index in range(at, min(steps, at + move))]
        starts_spot = len(runs) == move and all(runs)
        begun = tables[min(at + move, steps)]
        can_begin = at + move <= steps
        for left in range(1, work + 1):
            begin_demand = move + begun[0][left] if can_begin else far
            begin_spot = move * terms.spot_price_ratio + begun[1][left] if starts_spot else far
            idle = min(after[2][left], begin_demand, begin_spot)
            still[left] = idle
            demand[left] = min(1.0 + after[0][left - 1], idle)
            on_spot[left] = min(terms.spot_price_ratio + after[1][left - 1], idle) if there[at] else idle
    return tables[0][2][work] * step_minutes / _MINUTES_PER_HOUR
