"""PURE: a pool with a deadline: what is left of it, and how its nodes divide between spot and on demand now.

Rules, all of them:

1. Done is the useful GPU time of the pool's nodes in whole hours' rows since `since`, by the work of all `nodes`. Time
   that was not metered, or with a use that is not known, is not done: a doubt brings on demand earlier, never later.
2. Each node that has worked and is gone takes `restart` of it back: from its own share, or from all nodes where these
   go back to a checkpoint `together`. Then those of one hour take no more than that hour and one `restart`. What is
   done stays done, also where nodes go within `restart` of its end. Where none is there of those that have worked, one
   `restart` of it is the start to come, which is not counted twice.
3. `deadline.place` says what is bought, as it does for one job: spot alone, spot and else on demand, or on demand to
   the end. The pool counts as on demand once any of its nodes is, and as standing still while one is missing. The line
   begins with the work that was left, losses included, when half of the slack was spent for who had to start.
4. A node in its first `restart` seconds may not work yet, so that time counts as work that is left.
5. No node that works is taken away for the deadline: what the cloud takes from then on comes on demand.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby
from math import inf
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge

from gpuwatch.model.duration import Seconds, in_calendar
from gpuwatch.model.measurement import BatchPast
from gpuwatch.model.setting import STRICT, Setting
from gpuwatch.policies.spot.deadline import Job, Place, place
from gpuwatch.policies.spot.mix import MixRules

Mode = Literal["spot_only", "spot_first", "on_demand"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRules:
    """Work with a deadline."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    work: Annotated[
        Seconds,
        Ge(0),
        Setting("How long the work takes on all `nodes` together, such as 40h. 0: the pool's work has no deadline."),
    ] = 0.0
    since: Annotated[
        str | None,
        Setting("When it begins, such as 2026-11-01T08:00:00Z; useful time counts from the next full hour on."),
    ] = None
    by: Annotated[str | None, Setting("When it has to be done, such as 2026-11-04T08:00:00Z.")] = None
    nodes: Annotated[int, Ge(1), Setting("So many nodes are wanted until then, or until the work is done.")] = 1
    restart: Annotated[
        Seconds,
        Ge(60),
        Setting("What a start costs: boot, image, and the work since the last checkpoint, which is done again."),
    ] = 900.0
    together: Annotated[
        bool, Setting("Whether all nodes go back to the last checkpoint when one is lost, as a training does.")
    ] = True

    @property
    def begins(self) -> datetime:
        """Return the time of `since`."""
        return moment(self.since)

    @property
    def ends(self) -> datetime:
        """Return the time of `by`."""
        return moment(self.by)

    @property
    def allowed(self) -> float:
        """Seconds from begin to deadline."""
        return (self.ends - self.begins).total_seconds()

    @property
    def slack(self) -> float:
        """Seconds of it that neither the work nor one start takes."""
        return max(0.0, self.allowed - self.work - self.restart)


@dataclass(frozen=True, slots=True, kw_only=True)
class Useful:
    """Useful seconds of one node in a stretch of time; a node with half of its GPUs at work counts half."""

    begin: datetime
    until: datetime
    node_id: str
    seconds: float


def moment(text: str | None) -> datetime:
    """A time with its offset from UTC.

    Raises:
        ValueError: it is no such time.

    """
    found = datetime.fromisoformat(text or "")
    if found.tzinfo is None:
        raise ValueError(f"{text} names no offset from UTC")
    if not in_calendar(found):
        raise ValueError(f"{text} leaves the calendar")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """The rows that end at one time: the longest, and the seconds of all nodes and of the one with the most."""

    until: datetime
    span: float
    total: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """All that rows say: by their ends, and of each node its last end with its seconds then."""

    stretches: tuple[Stretch, ...] = ()
    last: Mapping[str, tuple[datetime, float]] = field(default_factory=dict)

    def then(self, later: "Worked") -> "Worked":
        """With rows that all end later than these."""
        return Worked(stretches=self.stretches + later.stretches, last={**self.last, **later.last})


def work_of_rows(rows: Iterable[Useful], rules: BatchRules) -> Worked:
    """What rows since the begin say, in any order of their ends."""
    mine = sorted((row for row in rows if row.begin >= rules.begins), key=lambda row: row.until)
    stretches, last = list[Stretch](), dict[str, tuple[datetime, float]]()
    for until, rows_then in groupby(mine, key=lambda row: row.until):
        span, seconds = 0.0, dict[str, float]()
        for row in rows_then:
            span = max(span, (until - row.begin).total_seconds())
            seconds[row.node_id] = seconds.get(row.node_id, 0.0) + row.seconds
        total, most = sum(seconds.values()), max(seconds.values())
        stretches.append(Stretch(until=until, span=span, total=total, most=most))
        last.update({node_id: (until, each) for node_id, each in seconds.items()})
    return Worked(stretches=tuple(stretches), last=last)


def past(rows: Iterable[Useful], rules: BatchRules, here: Collection[str], now: datetime) -> BatchPast:
    """Rules 1 and 2; `here` are the machines that are there now."""
    return past_of(work_of_rows(rows, rules), rules, here, now)


def past_of(known: Worked, rules: BatchRules, here: Collection[str], now: datetime) -> BatchPast:
    """The same by what the rows say."""
    ends: dict[datetime, list[float]] = {}
    for node_id, (until, seconds) in known.last.items():
        if node_id not in here:
            ends.setdefault(until, []).append(seconds)
    done, taken, losses, line = 0.0, 0.0, 0, None
    for each in known.stretches:
        begins = each.until - timedelta(seconds=each.span)
        if line is None and _half_spent(rules, begins, done - taken):
            line = rules.work - max(0.0, done - taken)
        done += each.total / rules.nodes
        gone = ends.get(each.until, [])
        early = sum(seconds < each.most - rules.restart for seconds in gone)
        if done - taken - _taken_seconds(early, each.span, rules) >= rules.work:
            return BatchPast(done_seconds=rules.work, losses=losses + early, line_seconds=line)
        taken, losses = taken + _taken_seconds(len(gone), each.span, rules), losses + len(gone)
        if line is None and each.until <= now and _half_spent(rules, each.until, done - taken):
            line = rules.work - max(0.0, done - taken)
    sure, stands = max(0.0, done - taken), not any(node_id in here for node_id in known.last)
    start = max(0.0, done - max(0.0, taken - rules.restart)) - sure if stands else 0.0
    return BatchPast(done_seconds=sure, losses=losses, line_seconds=line, start_seconds=start)


def _half_spent(rules: BatchRules, at: datetime, done: float) -> bool:
    """Whether half of the slack was spent then for who had to start: as rule 3 sees it before it buys on demand."""
    return (rules.ends - at).total_seconds() - (rules.work - max(0.0, done)) - rules.restart <= rules.slack / 2


def _taken_seconds(losses: int, span: float, rules: BatchRules) -> float:
    """Rule 2: seconds that the losses within a row's span take back."""
    if not rules.together:
        return losses * rules.restart / rules.nodes
    return min(losses * rules.restart, rules.restart + span)


def left_seconds(rules: BatchRules, known: BatchPast) -> float:
    """The work that is left."""
    return max(0.0, rules.work - known.done_seconds)


def spare_seconds(rules: BatchRules, known: BatchPast, now: datetime) -> float | None:
    """The time to the deadline without the work that is left and one start; below zero no start fits any more.

    None: the work has not begun, or is done.
    """
    left = left_seconds(rules, known)
    if now < rules.begins or left <= 0:
        return None
    return (rules.ends - now).total_seconds() - (left - known.start_seconds) - rules.restart


def wants_nodes(rules: BatchRules, known: BatchPast, now: datetime) -> bool:
    """Whether nodes are wanted for it now."""
    return rules.begins <= now < rules.ends and left_seconds(rules, known) > 0


def job(rules: BatchRules, known: BatchPast, now: datetime, *, spot: int, firm: int, young: bool) -> Job:
    """The pool's work as one job: rules 3 and 4. `spot` and `firm` nodes are there or coming."""
    where: Place = "on_demand" if firm else "spot" if spot >= rules.nodes else "nowhere"
    starts = young or where == "nowhere"
    work = left_seconds(rules, known) - (known.start_seconds if starts else 0.0)
    return Job(
        work=work + (rules.restart if young and where != "nowhere" else 0.0),
        left=(rules.ends - now).total_seconds(),
        allowed=rules.allowed,
        move=rules.restart,
        slack_at_start=rules.slack,
        place=where,
        line_work=known.line_seconds,
    )


def mode(of: Job) -> Mode:
    """What is bought for it: the same rule that `recommend spot` plays."""
    if place(of, spot=True) == "on_demand":
        return "on_demand"
    return "spot_first" if place(of, spot=False) == "on_demand" else "spot_only"


def mix_of(mix: MixRules, found: Mode) -> MixRules:
    """The shares of a pool in this mode; how it comes back to spot is as the pool says."""
    share = 0.0 if found == "on_demand" else 1.0
    return replace(mix, on_demand_base=0, spot_share=share, fallback_after=inf if found == "spot_only" else 0.0)


def young(launched: Iterable[datetime | None], rules: BatchRules, now: datetime) -> bool:
    """Whether any node is in its first minutes."""
    return any(at is None or now - at < timedelta(seconds=rules.restart) for at in launched)
