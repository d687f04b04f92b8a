"""Numbers of a pool for scaling. One that cannot be had, or is not of now, is unknown and says why."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from statistics import fmean

from gpuwatch.controller.observe.prometheus_api import Answer, PromApi
from gpuwatch.model.activity import GpuUse
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Fleet, Node
from gpuwatch.model.measurement import MetricQuery, MetricValue

# Measures that the agents' verdicts give, by name.
OF_USE = {"gpu_utilization": "utilization_ratio", "gpu_memory": "memory_used_ratio", "sm_activity": "sm_active_ratio"}
OF_HOST = {"cpu_utilization": "cpu_utilization_ratio"}
_AT_A_TIME = 64  # expressions: each gives one number
_PLAIN = frozenset(" _.-")  # besides letters and digits of ASCII, what stays as it is in a label's value
_QUOTES = frozenset("\"'")
_OPENING = frozenset("\"'`#")  # of a text, of one without escapes, and of a comment
_ENDS = {"#": "\n"}


def of_verdicts(fleet: Fleet, queries: Sequence[MetricQuery], at: datetime) -> tuple[MetricValue, ...]:
    """Values from the agents' reports of the same round; an expression needs a Prometheus."""
    made = []
    for query in queries:
        field = OF_USE.get(query.name) or OF_HOST.get(query.name)
        if query.expression is not None:
            made.append(_unknown(query, at, "an expression needs signals.promql.url"))
        elif field is None:
            made.append(
                _unknown(query, at, f"agents report no {query.name}; they report {', '.join(OF_USE | OF_HOST)}")
            )
        else:
            nodes = fleet.roster(query.pool).nodes
            means = {node.id: mean for node in nodes if (mean := _mean(node, field)) is not None}
            made.append(pool_mean(query, fleet, at, means))
    return tuple(made)


def pool_mean(query: MetricQuery, fleet: Fleet, at: datetime, means: Mapping[str, float] | str) -> MetricValue:
    """The mean over the GPUs, or the hosts, of the pool's running, enrolled nodes; a text is why none reports one."""
    if isinstance(means, str):
        return _unknown(query, at, means)
    roster = fleet.roster(query.pool)
    members = [node for node in roster.nodes if node.id in roster.members]
    measured = [node for node in members if math.isfinite(means.get(node.id, math.nan))]
    if not measured:
        doubt = f"none of {len(members)} running nodes reports it" if members else "the pool has no running node"
        return _unknown(query, at, doubt, samples=0, expected=len(members))
    weights = [1.0 if query.name in OF_HOST else float(max(1, node.known_gpus)) for node in measured]
    value = fmean([means[node.id] for node in measured], weights)
    return MetricValue(
        pool=query.pool, name=query.name, at=at, value=value, samples=len(measured), expected=len(members)
    )


def evaluate_queries(
    api: PromApi, queries: Sequence[MetricQuery], at: datetime, max_age_seconds: float
) -> dict[MetricQuery, MetricValue]:
    """Each expression's one sample or number. A plain series has an age; what is made of several has not.

    All are asked at once: one that takes long costs its own pool's number, and the round no more than its time-out.
    """
    made: dict[MetricQuery, MetricValue] = {}
    asked: dict[str, tuple[MetricQuery, str]] = {}
    for number, query in enumerate(queries):
        if query.expression is not None:
            try:
                asked[str(number)] = query, with_pool(query.expression, query.pool)
            except ValueError as error:
                made[query] = _unknown(query, at, str(error))
    if not asked:
        return made
    answers = api.instant({name: expression for name, (_, expression) in asked.items()}, at, at_a_time=_AT_A_TIME)
    plain = {name: asked[name][1] for name, answer in answers.items() if _is_plain(answer)}
    sampled = {name: f"timestamp({expression}\n)" for name, expression in plain.items()}
    ages = api.instant(sampled, at, at_a_time=_AT_A_TIME) if sampled else {}
    for name, (query, _) in asked.items():
        made[query] = _evaluate_query(query, answers[name], ages.get(name), at, max_age_seconds)
    return made


def _is_plain(answer: Answer) -> bool:
    """Whether an answer is the one sample of one series."""
    return len(answer.rows) == 1 and "__name__" in answer.rows[0][0]


def _evaluate_query(
    query: MetricQuery, answer: Answer, sampled: Answer | None, at: datetime, max_age_seconds: float
) -> MetricValue:
    """One expression's answer; `sampled` is when a plain series was sampled."""
    value = answer.scalar
    if answer.doubt is not None:
        return _unknown(query, at, answer.doubt)
    if value is None:
        if len(answer.rows) != 1:
            return _unknown(
                query, at, f"the expression gives {len(answer.rows)} series, not one", samples=len(answer.rows)
            )
        value = answer.rows[0][1]
        if sampled is not None and (doubt := _why_too_old(sampled, at, max_age_seconds)) is not None:
            return _unknown(query, at, doubt)
    if not math.isfinite(value):
        return _unknown(query, at, f"it is {value}")
    return MetricValue(pool=query.pool, name=query.name, at=at, value=value, samples=1, expected=1)


def _why_too_old(sampled: Answer, at: datetime, max_age_seconds: float) -> str | None:
    """Why a plain series is not of now; None where it is."""
    if sampled.doubt is not None or len(sampled.rows) != 1:
        return f"when it was sampled is not known: {sampled.doubt or 'no answer'}"
    age = at.timestamp() - sampled.rows[0][1]
    if age <= max_age_seconds:
        return None
    return f"its newest sample is {format_duration(age)} old (limits.max_verdict_age)"


def with_pool(expression: str, pool: str) -> str:
    """The expression with `$pool` in its quoted texts replaced by the pool's name, which can end no such text.

    Raises:
        ValueError: `$pool` stands where nothing keeps a name from being read as PromQL.

    """
    safe = "".join(
        char if char in _PLAIN or (char.isascii() and char.isalnum()) else f"\\U{ord(char):08x}" for char in pool
    )
    made, quote, skip = [], "", 0
    for place, char in enumerate(expression):
        if skip:
            skip -= 1
        elif expression.startswith("$pool", place):
            if quote not in _QUOTES:
                raise ValueError('$pool stands outside of a text in quotes; write for example {pool="$pool"}')
            made.append(safe)
            skip = len("$pool") - 1
        elif char == "\\" and quote in _QUOTES:
            made.append(expression[place : place + 2])
            skip = 1
        else:
            made.append(char)
            if quote:
                quote = "" if char == _ENDS.get(quote, quote) else quote
            elif char in _OPENING:
                quote = char
    return "".join(made)


def _mean(node: Node, field: str) -> float | None:
    """What a node reports of itself, or its mean over its GPUs; None unless each of them reports it."""
    if field in OF_HOST.values():
        ratio: float | None = getattr(node.verdict, field, None)
        return ratio
    gpus = () if node.verdict is None else node.verdict.gpus
    values = [None if gpu.use is None else _ratio(gpu.use, field) for gpu in gpus]
    known = [value for value in values if value is not None and math.isfinite(value)]
    return fmean(known) if known and len(known) == len(values) >= node.known_gpus else None


def _ratio(use: GpuUse, field: str) -> float | None:
    value: float | None = getattr(use, field)
    return value


def _unknown(
    query: MetricQuery, at: datetime, doubt: str, *, samples: int | None = None, expected: int | None = None
) -> MetricValue:
    return MetricValue(
        pool=query.pool, name=query.name, at=at, value=None, doubt=doubt, samples=samples, expected=expected
    )
