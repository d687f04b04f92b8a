"""Every setting of the scaling policy, how a step is written, and what is wrong or misleading in a set of rules."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Literal, get_args

from annotated_types import Ge, Gt, Lt, MinLen

from gpuwatch.model.duration import Seconds
from gpuwatch.model.setting import STRICT, Contradiction, Setting
from gpuwatch.policies.scaling import promql

MISLEADING_MEMORY_RATIO = 0.85

Signal = Literal["gpu_utilization", "gpu_memory", "sm_activity", "cpu_utilization", "kubernetes_pending", "promql"]
PENDING = "kubernetes_pending"
# Means over GPUs or hosts, 0 to 1.
DEVICE_SIGNALS = tuple(name for name in get_args(Signal) if name not in {"promql", PENDING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number that the pool's size follows, by a `target` or by `steps`."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    signal: Annotated[
        Signal,
        Setting(
            "What is looked at: a mean of the pool's GPUs or processors from 0 to 1, a PromQL expression, or the pods "
            "that wait for GPUs (kubernetes_pending), which needs neither target nor steps."
        ),
    ] = "gpu_utilization"
    expression: Annotated[
        Annotated[str, MinLen(1)] | None, Setting("The PromQL expression of one number, where signal: promql.")
    ] = None
    target: Annotated[
        Annotated[float, Gt(0)] | None, Setting("Target tracking: the pool is sized so that the number comes to this.")
    ] = None
    per_node: Annotated[
        bool,
        Setting(
            "The number is a total of the pool (a queue's length), and target is what one node, or GPU, should have."
        ),
    ] = False
    steps: Annotated[
        dict[str, str],
        Setting(
            "Changes by threshold: `above 0.8: add 2`, `above 0.95: add 50%`, `below 0.2: remove 1`, `… exactly 3`."
        ),
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """How the pool's size follows its load; without metrics it does not."""

    __pydantic_config__: ClassVar[dict[str, object]] = STRICT

    metrics: Annotated[
        dict[str, Metric], Setting("Numbers by a name of your choice: out if any wants it, in only if all agree.")
    ] = field(default_factory=dict)
    tolerance: Annotated[
        float, Ge(0), Lt(1), Setting("A number this near to its target, as a share of it, changes nothing.")
    ] = 0.1
    cooldown_out: Annotated[Seconds, Ge(0), Setting("Time after an addition before the next one.")] = 300.0
    cooldown_in: Annotated[
        Seconds, Ge(0), Setting("Time after an addition or a removal before the pool may shrink.")
    ] = 600.0
    stabilisation: Annotated[
        Seconds, Ge(0), Setting("The pool shrinks no further than the largest size wished for within this time.")
    ] = 300.0
    max_out: Annotated[
        Annotated[int, Gt(0)] | None,
        Setting("So many nodes more in one decision; of this and the ratio the larger holds."),
    ] = 4
    max_out_ratio: Annotated[
        Annotated[float, Gt(0)] | None, Setting("Nodes more in one decision as a share of those there are.")
    ] = 1.0
    max_in: Annotated[
        Annotated[int, Gt(0)] | None,
        Setting("So many nodes fewer in one decision; of this and the ratio the larger holds."),
    ] = None
    max_in_ratio: Annotated[
        Annotated[float, Gt(0)] | None, Setting("Nodes fewer in one decision as a share of those there are.")
    ] = None


_WHEN = re.compile(r"(above|below) (-?\d+(?:\.\d+)?)")
_THEN = re.compile(r"(add|remove|exactly) (\d+(?:\.\d+)?)(%?)")
_WHEN_RIGHT = "a threshold such as `above 0.8` or `below 0.2`"
_THEN_RIGHT = "`add 2`, `add 50%`, `remove 1`, `remove 10%` or `exactly 3`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """One step: where it begins (the bound itself included), and what it does to a number of nodes."""

    side: str  # above | below
    bound: float
    verb: str  # add | remove | exactly
    amount: float
    percent: bool

    def matches(self, value: float) -> bool:
        """Whether the value is at the bound or past it."""
        return value >= self.bound if self.side == "above" else value <= self.bound

    def apply_to(self, count: int) -> int:
        """The number it makes of `count`; shares are rounded towards zero but to no less than one (as EC2 does)."""
        size = max(1, int(count * self.amount / 100 + 1e-9)) if self.percent else int(self.amount)
        return {"add": count + size, "remove": max(0, count - size), "exactly": size}[self.verb]


def adjustment(when: str, then: str) -> Adjustment:
    """A step as it is written.

    Raises:
        ValueError: it is no step; the message says what would be right.

    """
    threshold, change = _WHEN.fullmatch(when.strip()), _THEN.fullmatch(then.strip())
    if threshold is None:
        raise ValueError(f"`{when}` is no threshold; write {_WHEN_RIGHT}")
    if change is None or (not change[3] and "." in change[2]) or (change[1] == "exactly" and change[3]):
        raise ValueError(f"`{then}` is no change; write {_THEN_RIGHT}")
    if (threshold[1], change[1]) in {("above", "remove"), ("below", "add")}:
        raise ValueError(f"`{when}: {then}` goes the wrong way: more load adds nodes, less load removes them")
    return Adjustment(
        side=threshold[1],
        bound=float(threshold[2]),
        verb=change[1],
        amount=float(change[2]),
        percent=bool(change[3]),
    )


def adjustments(metric: Metric) -> tuple[Adjustment, ...]:
    """All steps of a metric."""
    return tuple(adjustment(when, then) for when, then in metric.steps.items())


def contradictions(rules: ScalingRules, path: tuple[str, ...]) -> Iterator[Contradiction]:
    """What no single key's bounds can tell; `path` is where the rules stand in the configuration."""
    for name, metric in rules.metrics.items():
        for key, wrong, right in (*_misfits(name, metric), *_wrong_steps(metric)):
            where = (*path, "metrics", name)
            at = (*where, *filter(None, (key,)))
            yield Contradiction(keys=(at, where), wrong=f"{'.'.join(at)} {wrong}", right=right)


def _misfits(name: str, metric: Metric) -> Iterator[tuple[str, str, str]]:
    """Keys of a metric that do not go together: key, what is wrong, what would be right."""
    asks = metric.signal == "promql"
    if asks and metric.expression is None:
        yield "expression", "is missing, and signal is promql", "a PromQL expression of one number"
    if not asks and metric.expression is not None:
        yield "expression", f"is set, and signal is {metric.signal}", "signal: promql, or no expression"
    wrong = promql.trouble(metric.expression) if asks and metric.expression is not None else None
    if wrong is not None:
        yield "expression", wrong, 'a PromQL expression of one number, such as sum(queue_length{queue="gpu"})'
    if asks and name in {*DEVICE_SIGNALS, PENDING}:
        yield "", "has the name of another signal, and its signal is promql", "another name"
    if metric.signal == PENDING:
        for key in ("target", "steps"):
            if getattr(metric, key):
                yield key, f"is set, and {PENDING} follows the pods that wait", f"{PENDING} alone"
    elif (metric.target is None) is (not metric.steps):
        given = "neither a target nor steps" if metric.target is None else "both a target and steps"
        yield "target", f"cannot stand as it is: there are {given}", "one of target and steps"
    if metric.per_node and not asks:
        yield "per_node", f"is true, and {metric.signal} is a mean", "signal: promql with a total, or no per_node"
    if metric.per_node and metric.steps:
        yield "per_node", "is true, and steps compare the number as it is", "a target, or no per_node"
    if metric.signal in DEVICE_SIGNALS and metric.target is not None and metric.target > 1:
        right = f"a ratio from 0 to 1, such as {min(1.0, metric.target / 100):g}"
        yield "target", f"is {metric.target:g}, and {metric.signal} never exceeds 1", right


def _wrong_steps(metric: Metric) -> Iterator[tuple[str, str, str]]:
    """Steps that cannot be read or that contradict each other."""
    found = []
    for when, then in metric.steps.items():
        try:
            found.append(adjustment(when, then))
        except ValueError as error:
            wrong, _, right = str(error).partition("; write ")
            yield "steps", f"cannot be used: {wrong}", right or "`above …: add …` or `below …: remove …`"
    for each in found:
        if metric.signal in DEVICE_SIGNALS and not 0 <= each.bound <= 1:
            yield "steps", f"has a bound of {each.bound:g}, and {metric.signal} is from 0 to 1", "a ratio from 0 to 1"
    lowest = min((each.bound for each in found if each.side == "above"), default=None)
    highest = max((each.bound for each in found if each.side == "below"), default=None)
    if lowest is not None and highest is not None and highest >= lowest:
        wrong = f"has `below {highest:g}` not under `above {lowest:g}`: the pool would grow and shrink at once"
        yield "steps", wrong, "bounds of `below` that lie well under those of `above`"


_MISLEADS = {
    "gpu_utilization": (
        "is the time in which any kernel was resident, however small or deadlocked; and a mean hides hot nodes",
        "sm_activity as well, or a queue's length by promql",
    ),
    "gpu_memory": (
        f"says nothing of load above {MISLEADING_MEMORY_RATIO:.0%}: frameworks take memory in advance and keep it",
        "sm_activity, or requests or a queue's length by promql",
    ),
    "cpu_utilization": (
        "is the load of the processors: while they rest, busy GPUs look idle to it",
        "sm_activity as well, which keeps the pool from shrinking while GPUs work",
    ),
    "sm_activity": ("is a mean of the pool, which hides hot nodes", "a max() by promql as well, where nodes differ"),
}
_MISLEADING_TOTAL = (
    "is a total: a queue's length says nothing of how fast it is served, so the same length can mean seconds or hours",
    "an expression of waiting time, such as length / rate of completion, or a target measured on your jobs",
)
_MISLEADING_AT_ZERO = (
    "is not a total: at zero nodes it may have no value, and then nothing brings the pool back",
    "a total with per_node: true as well, or min_nodes of at least 1",
)


def warnings(rules: ScalingRules, path: tuple[str, ...]) -> Iterator[Contradiction]:
    """Where a chosen number is known to mislead; nothing here is refused."""
    for name, metric in rules.metrics.items():
        if metric.signal == PENDING:
            continue
        promql = _MISLEADING_TOTAL if metric.per_node else _MISLEADING_AT_ZERO
        wrong, right = _MISLEADS.get(metric.signal, promql)
        at = (*path, "metrics", name)
        yield Contradiction(keys=(at,), wrong=f"{'.'.join(at)} {wrong}", right=right)
