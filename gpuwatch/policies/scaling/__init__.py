"""PURE: how many nodes, or GPUs, a pool should have for its load: all numbers are in what the pool counts.

Rules, all of them:

1. Each metric has a ballot (`ballots`): by a target, nodes times value over target; by steps, what its thresholds say.
2. Out if any metric wants it, in only if all agree: the largest number wins. An unknown metric holds the pool at its
   nodes; the others may still let it grow.
3. No addition within `cooldown_out` of the last one, no shrinking within `cooldown_in` of the last change. A node that
   its cloud is about to take is replaced all the same, once.
4. Shrinking goes no further than the largest wish of the last `stabilisation` seconds; doubt is a wish to stay.
5. One decision moves by `max_out` and `max_in` at most.
6. The number is a wish and a floor. What is held by rules 2 to 5 is a floor under removals and no wish: nothing is
   bought for it. Which nodes go is the idle policy's to say, and only idle ones do.
7. Nodes that come on top of what is wanted, to take the places of others (spot/back.py), are no change of the size.

So constant load settles: a pool grows only at a value past its threshold and shrinks only to a size at which the
predicted value is still below the target.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuwatch.model.decision import ADDITIONS, REMOVALS, Advice, Observation, Proposal, Reason, Status, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.measurement import MetricQuery
from gpuwatch.policies.machines import unsized_machines
from gpuwatch.policies.scaling import pending
from gpuwatch.policies.scaling.settings import (
    MISLEADING_MEMORY_RATIO,
    PENDING,
    Metric,
    ScalingRules,
    contradictions,
    warnings,
)
from gpuwatch.policies.scaling.votes import judge, strength
from gpuwatch.policies.sizes import NODES, Sizes
from gpuwatch.policies.spot.records import BACK_TO_SPOT
from gpuwatch.policies.starts import Startable

__all__ = ["Metric", "ScalingRules", "contradictions", "propose", "queries", "warnings"]

POLICY = "scaling"
_CHANGES = (ADDITIONS, REMOVALS)


def queries(pool: str, rules: ScalingRules) -> tuple[MetricQuery, ...]:
    """What has to be measured for a pool, each number once."""
    asked = {
        _measured_name(name, metric): metric.expression
        for name, metric in sorted(rules.metrics.items())
        if metric.signal != PENDING
    }
    return tuple(MetricQuery(pool=pool, name=name, expression=expression) for name, expression in asked.items())


def propose(
    observation: Observation,
    pool: str,
    rules: ScalingRules,
    *,
    warm_up: float,
    sizes: Sizes = NODES,
    start: Startable = "own",
) -> Proposal:
    """The size the pool should have; with doubt, or nothing to go by, no size."""
    if not rules.metrics:
        return Proposal(policy=POLICY, pool=pool, reason=Reason(code="no_metrics", sentence="No metric is given."))
    has = strength(observation, pool, warm_up, sizes)
    changed = max(filter(None, (_last(observation, pool, verbs, but=None) for verbs in _CHANGES)), default=None)
    out_at, in_at = (_last(observation, pool, verbs, but=BACK_TO_SPOT) for verbs in _CHANGES)
    ballots = [
        pending.judge(observation, pool, has.count, warm_up=warm_up, name=name, start=start)
        if metric.signal == PENDING
        else judge(
            metric,
            observation.measure(pool, _measured_name(name, metric)),
            has,
            tolerance=rules.tolerance,
            changed=changed,
            name=name,
        )
        for name, metric in sorted(rules.metrics.items())
    ]
    sentences = "; ".join(ballot.sentence for ballot in ballots)
    largest = max((ballot.wants for ballot in ballots if ballot.wants is not None), default=has.wanted)
    unsized = unsized_machines(observation, pool, sizes)
    if unsized:  # a mean of GPUs says nothing of a pool of which nobody knows how many it has
        largest, sentences = has.wanted, f"nobody knows the GPUs of {', '.join(unsized)}"
    unknown = bool(unsized) or any(ballot.wants is None for ballot in ballots)
    advice = tuple(_advice(observation, pool, rules))
    if any(metric.signal == PENDING for metric in rules.metrics.values()):
        advice += tuple(pending.advice(observation, pool, warm_up))

    if unknown and largest <= has.count:
        stay = f"running {sizes.unit}" if sizes.gpus is None else f"{sizes.unit} of running nodes"
        sentence = f"{sentences}; all {has.running} {stay} stay."
        reason = Reason(code="unknown", sentence=sentence)
        return Proposal(
            policy=POLICY,
            pool=pool,
            reason=reason,
            kept_nodes=has.running,
            grows=False,
            raw_desired_nodes=has.wanted,
            advice=advice,
        )
    verdict = _Verdict(code="steady", want=largest)
    if largest > has.count:
        verdict = _out(observation.now, rules, has.count, largest, out_at)
    elif largest < has.wanted:
        since = max(filter(None, (out_at, in_at)), default=None)
        verdict = _scale_in(observation, pool, rules, has.wanted, largest, since)
    return Proposal(
        policy=POLICY,
        pool=pool,
        reason=Reason(code=verdict.code, sentence=f"{sentences}{verdict.limited}."),
        desired_nodes=verdict.want,
        kept_nodes=verdict.keeps,
        grows=True,
        raw_desired_nodes=largest,
        advice=advice,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """What becomes of a wish, and why where that differs.

    `keeps` is how many stay while it is too early for fewer: nothing is bought for them, should one be lost.
    """

    code: str
    want: int
    keeps: int | None = None
    limited: str = ""


def _out(now: datetime, rules: ScalingRules, count: int, wish: int, since: datetime | None) -> _Verdict:
    """More nodes, as far as cooldown and limit let."""
    left = _cooldown_left(now, since, rules.cooldown_out)
    if left > 0:
        wait = f"; nodes came lately, the next in {format_duration(left)}: {count} stay"
        return _Verdict(code="cooldown_out", want=count, limited=wait)
    most = _limit(count, rules.max_out, rules.max_out_ratio)
    if most is not None and wish > count + most:
        return _Verdict(code="scale_out", want=count + most, limited=f", limited to +{most}")
    return _Verdict(code="scale_out", want=wish)


def _scale_in(
    observation: Observation, pool: str, rules: ScalingRules, count: int, wish: int, since: datetime | None
) -> _Verdict:
    """Fewer nodes, as far as cooldown, stabilisation and limit let."""
    left = _cooldown_left(observation.now, since, rules.cooldown_in)
    if left > 0:
        wait = f"; the pool changed lately, fewer in {format_duration(left)} at the earliest: {count} stay"
        return _Verdict(code="cooldown_in", want=wish, keeps=count, limited=wait)
    keeps, limited = wish, ""
    if rules.stabilisation > 0:
        earlier = [each for each in observation.ledger.wishes if (each.pool, each.policy) == (pool, POLICY)]
        window = observation.now - timedelta(seconds=rules.stabilisation)
        # Without any earlier wish nobody knows what the window held, so this round only begins it.
        lately = [each.want for each in earlier if each.at >= window] if earlier else [count]
        keeps = min(count, max([wish, *lately]))
        if keeps > wish:
            limited = f", within the last {format_duration(rules.stabilisation)} it was {keeps}"
    most = _limit(count, rules.max_in, rules.max_in_ratio)
    if most is not None and keeps < count - most:
        keeps, limited = count - most, f"{limited}, limited to -{most}"
    return _Verdict(code="scale_in" if keeps < count else "stabilising", want=wish, keeps=keeps, limited=limited)


def _cooldown_left(now: datetime, since: datetime | None, cooldown: float) -> float:
    """What is left of a cooldown; one that begins in the future lasts as long as any other."""
    return 0.0 if since is None else min(cooldown, cooldown - (now - since).total_seconds())


def _limit(count: int, nodes: int | None, ratio: float | None) -> int | None:
    """The larger of two limits, and never less than one node; None: no limit."""
    limits = [limit for limit in (nodes, None if ratio is None else math.ceil(count * ratio)) if limit is not None]
    return max(1, *limits) if limits else None


def _last(observation: Observation, pool: str, verbs: frozenset[Verb], *, but: str | None) -> datetime | None:
    """When the pool's last change of that kind was settled, those with the code `but` aside."""
    done = [each for each in observation.ledger.ended_actions(verbs) if each.pool == pool and each.code != but]
    return max((each.at for each in done if each.status is Status.SETTLED), default=None)


def _measured_name(name: str, metric: Metric) -> str:
    """Under which name a metric's number is measured."""
    return name if metric.signal == "promql" else metric.signal


def _advice(observation: Observation, pool: str, rules: ScalingRules) -> Iterator[Advice]:
    """Where a number misleads right now."""
    if all(metric.signal != "gpu_memory" for metric in rules.metrics.values()):
        return
    measure = observation.measure(pool, "gpu_memory")
    if measure is not None and measure.value is not None and measure.value > MISLEADING_MEMORY_RATIO:
        sentence = (
            f"gpu_memory is {measure.value:.3g}: frameworks take memory in advance and keep it, so above "
            f"{MISLEADING_MEMORY_RATIO:.0%} it says nothing of load; scale on another number."
        )
        yield Advice(target=pool, reason=Reason(code="misleading_metric", sentence=sentence))
