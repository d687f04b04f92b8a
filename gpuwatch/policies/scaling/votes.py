"""PURE: what one metric makes of a pool's size.

Readings that are missing can only be guessed, so each is guessed in the way that does least: as nothing where the
question is whether to add nodes, as fully loaded where it is whether to remove some (Kubernetes' HPA does the same).
Nodes that are young or still on their way count as nodes without load for an addition, and as nodes exactly at the
target for a removal: they neither add twice nor let the pool shrink.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime

from gpuwatch.model.bounds import MOST_NODES
from gpuwatch.model.decision import Observation
from gpuwatch.model.measurement import MetricValue
from gpuwatch.policies import machines
from gpuwatch.policies.scaling.settings import DEVICE_SIGNALS, Metric, adjustments
from gpuwatch.policies.sizes import NODES, Sizes

_ROUNDING = 1e-9  # what floating point may add: 0.9 / 0.6 is a little more than 1.5, and no reason for another node


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """A pool's nodes: all that it has or is getting, those that can have readings, and those past warm-up.

    Each counts as much as the pool's `unit` says. `surplus` of them were launched on top of what is wanted, until
    others have gone in their places.
    """

    count: int
    running: int
    mature: int
    unit: str = "nodes"
    surplus: int = 0

    @property
    def wanted(self) -> int:
        """How many stay where nothing changes."""
        return max(0, self.count - self.surplus)


def strength(observation: Observation, pool: str, warm_up: float, sizes: Sizes = NODES) -> Strength:
    """The pool's nodes now; one with a start that is unknown, or lies ahead, is young."""
    roster = observation.fleet.roster(pool)
    leaving = machines.leaving(observation)
    members = [node for node in roster.nodes if node.id in roster.members]
    mature = sum(
        sizes.node(node) or 0
        for node in members
        if node.id not in leaving
        and node.launched_at is not None
        and (observation.now - node.launched_at).total_seconds() >= warm_up
    )
    # With those that a cloud is about to take, until something is added for them: what keeps the count replaces them.
    count = machines.now(observation, pool, sizes) + machines.unreplaced_count(observation, pool, sizes)
    running = sum(sizes.node(node) or 0 for node in members)
    extra = machines.surplus(observation, pool, sizes)
    return Strength(count=count, running=running, mature=min(mature, count), unit=sizes.unit, surplus=extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """How many nodes a metric wants; None is unknown. The sentence has the arithmetic."""

    wants: int | None
    sentence: str


def judge(
    metric: Metric, measure: MetricValue | None, has: Strength, *, tolerance: float, changed: datetime | None, name: str
) -> Recommendation:
    """One metric's ballot; `changed` is when the pool's size last changed: an older number is about another pool."""
    doubt = _doubt(measure, changed)
    if measure is None or measure.value is None or doubt is not None:
        return Recommendation(wants=None, sentence=f"{name} is unknown: {doubt}")
    known, expected = measure.samples, measure.expected
    coverage = min(1.0, known / expected) if known is not None and expected else 1.0
    said = f"{name} {measure.value:.3g}" + ("" if coverage == 1 else f" (of {known} of {expected})")
    if metric.target is None:
        return _by_steps(metric, measure.value, coverage, has, said)
    # What a load needs does not depend on the nodes that are there on top of it.
    has = replace(has, count=has.wanted, mature=min(has.mature, has.wanted), surplus=0)
    return _by_target(metric, metric.target, (measure.value, coverage), has, said, tolerance)


def _doubt(measure: MetricValue | None, changed: datetime | None) -> str | None:
    """Why a number cannot be used."""
    if measure is None:
        return "it was not measured"
    if measure.doubt is not None or measure.value is None:
        return measure.doubt or "there is no value"
    if not math.isfinite(measure.value):
        return f"{measure.value} is no number"
    if measure.samples == 0 or (measure.samples is not None and measure.samples < 0):
        return "it was made of no samples"
    if changed is not None and measure.at <= changed:
        return "it was measured before the pool last changed"
    return None


def _by_target(
    metric: Metric, target: float, reading: tuple[float, float], has: Strength, said: str, tolerance: float
) -> Recommendation:
    """Target tracking: nodes times value over target, rounded up."""
    value, coverage = reading
    if value < 0:
        return Recommendation(wants=None, sentence=f"{said} is below zero and cannot follow a target")
    if has.count == 0:
        wants = _up(value / target)
        return Recommendation(
            wants=wants, sentence=f"{said}, target {target:.3g}, no {has.unit}: {value:.3g}/{target:.3g} → {wants}"
        )
    high, low = _per_node(metric, target, value, coverage, has)
    if high > target * (1 + tolerance + _ROUNDING):
        wants = max(has.count, _up((value if metric.per_node else has.count * high) / target))
        return Recommendation(
            wants=wants,
            sentence=f"{said} over target {target:.3g}: {_arithmetic(metric, value, high, has)} → {wants} {has.unit}",
        )
    if high >= target * (1 - tolerance - _ROUNDING):
        return Recommendation(
            wants=has.count,
            sentence=f"{_diluted_value(said, metric, value, high)} within {tolerance:.0%} of target {target:.3g}: "
            f"{has.count} {has.unit} stay",
        )
    if low is None:
        return Recommendation(
            wants=None, sentence=f"{said} under target {target:.3g}, and what is missing could change that"
        )
    wants = min(has.count, max(_least(metric), _up((value if metric.per_node else has.count * low) / target)))
    if low >= target * (1 - tolerance - _ROUNDING):
        wants = has.count
    counted = "" if low <= high * (1 + _ROUNDING) else ", young and missing nodes counted as loaded"
    return Recommendation(
        wants=wants,
        sentence=f"{said} under target {target:.3g}: {_arithmetic(metric, value, low, has)} → {wants} "
        f"{has.unit}{counted}",
    )


def _per_node(
    metric: Metric, target: float, value: float, coverage: float, has: Strength
) -> tuple[float, float | None]:
    """The least and the most load that a node can have on average; most is None where there is no upper limit."""
    if metric.per_node:
        high = value / has.count
        return high, high if coverage == 1 else None
    seen = has.running * coverage
    high = value * seen / has.count
    if coverage < 1 and metric.signal not in DEVICE_SIGNALS:
        return high, None
    missing, young = has.running - seen, has.count - has.mature
    return high, high + (missing * max(1.0, target) + young * target) / has.count


def _by_steps(metric: Metric, value: float, coverage: float, has: Strength, said: str) -> Recommendation:
    """Step thresholds, counted from the mature nodes: what is warming up is the answer to the same breach."""
    steps = adjustments(metric)
    high = min(value, value * coverage)
    outs = [step.apply_to(has.mature) for step in steps if step.side == "above" and step.matches(high)]
    if outs:
        wants = max(has.count, *outs)
        basis = "" if has.mature == has.count else f", {has.count - has.mature} of them on their way or warming up"
        return Recommendation(wants=wants, sentence=f"{said} over its step: {has.count}{basis} → {wants} {has.unit}")
    if not any(step.side == "below" and step.matches(high) for step in steps):
        return Recommendation(wants=has.wanted, sentence=f"{said} within its steps: {has.wanted} {has.unit} stay")
    low = value * coverage + (1 - coverage) if metric.signal in DEVICE_SIGNALS else value
    if coverage < 1 and metric.signal not in DEVICE_SIGNALS:
        return Recommendation(wants=None, sentence=f"{said} under its step, and what is missing could change that")
    ins = [step.apply_to(has.count) for step in steps if step.side == "below" and step.matches(low)]
    if not ins or has.mature < has.count:
        why = "nodes are young" if ins else "missing nodes count as loaded"
        return Recommendation(
            wants=has.wanted, sentence=f"{said} under its step, and {why}: {has.wanted} {has.unit} stay"
        )
    wished = min(has.wanted, max(_least(metric), min(ins)))
    limit = min((step.bound for step in steps if step.side == "above"), default=math.inf)
    wants = wished
    while wants < has.wanted and _predict_value(low, has.count, wants) >= limit - abs(limit) * _ROUNDING:
        wants += 1
    guarded = "" if wants == wished else f" ({wished} would bring it to the step at {limit:.3g})"
    return Recommendation(wants=wants, sentence=f"{said} under its step: {has.count} → {wants} {has.unit}{guarded}")


def _predict_value(value: float, before: int, after: int) -> float:
    """What the number will be when the same load is carried by other many nodes."""
    if after > 0:
        return value * before / after
    return math.inf if value > 0 else 0.0


def _least(metric: Metric) -> int:
    """Only a number that exists without nodes may ask for none: a mean of GPUs cannot bring the pool back."""
    return int(metric.signal in DEVICE_SIGNALS)


def _up(number: float) -> int:
    """Rounded up, what floating point added aside; no number of an exporter's asks for more than any pool can have."""
    return math.ceil(min(number * (1 - _ROUNDING), MOST_NODES))


def _arithmetic(metric: Metric, value: float, counted: float, has: Strength) -> str:
    """How a target's number of nodes comes about."""
    if metric.per_node:
        return f"{value:.3g}/{metric.target:.3g}"
    return f"{has.count} × {counted:.3g}/{metric.target:.3g}"  # noqa: RUF001  people read it as times


def _diluted_value(said: str, metric: Metric, value: float, counted: float) -> str:
    """The value as it counts, where nodes without a reading make it another one."""
    return said if metric.per_node or math.isclose(value, counted) else f"{said}, over all nodes {counted:.3g},"
