"""PURE: from what the queries gave for one target to its node's verdict. Every doubt is a sentence, never idleness."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache

from gpuwatch.controller.observe.exporters import RULE_STRETCH, STRETCH, Dialect, Sign, enough, stretches
from gpuwatch.controller.observe.settings import PromqlSettings
from gpuwatch.model.activity import Activity, Evidence, State
from gpuwatch.model.bounds import bounded_amount
from gpuwatch.model.duration import LONGEST_SECONDS, format_duration
from gpuwatch.model.fleet import VERDICT_SCHEMA, GpuVerdict, Node, NodeReport, NodeVerdict

_MOST_GPUS = 1024  # of one machine: more is no count of GPUs
_AHEAD_SECONDS = 10.0
_DENSER = 1.5  # times as many samples as signals.promql.scrape_interval gives: it is not the real one
_SAME_SCRAPE_SECONDS = 0.001
_STATES = {state.value: state for state in State}


@dataclass(slots=True, kw_only=True)
class Target:
    """What is known of one target: `values` by query, `states` by query and state.

    `twice` are the queries that gave more than one row for it.
    """

    labels: tuple[str, ...]
    name: str | None = None  # what it calls its node
    instance: str = ""  # where it was scraped: Prometheus writes this itself
    values: dict[str, float] = field(default_factory=dict)
    states: dict[str, dict[str, float]] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)

    @property
    def called(self) -> str:
        """Its labels, for people."""
        return " ".join(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When was asked, and what a believable answer must be like."""

    at: datetime
    settings: PromqlSettings
    max_age_seconds: float


def agents_signal(node: Node, target: Target, moment: Moment) -> NodeReport:
    """The verdict of our own agent, as of its last scrape: it folds at sampling rate, so no window is needed."""
    states = target.states.get("state", {})
    if target.twice or len(states) != 1:
        return _doubt(f"Prometheus has {'two answers' if target.twice else f'{len(states)} states'} of {target.called}")
    (word, scraped_at), values = next(iter(states.items())), target.values
    age, samples = values.get("cycle_age"), values.get("samples")
    if word not in _STATES or age is None or samples is None or not _usable(scraped_at, age, samples) or samples < 1:
        return _doubt("what Prometheus has of its agent is not whole")
    age += moment.at.timestamp() - scraped_at
    if (late := _late(age, moment, ahead="future" in values or age < -_AHEAD_SECONDS)) is not None:
        return _doubt(late)
    state, held = _STATES[word], 0.0
    if state is State.UNKNOWN:
        activity = Activity(
            state=state, since=None, held_seconds=0.0, doubt="its agent says so; /v1/verdict has the words"
        )
        return _signal(node, target, moment, activity, age, STRETCH / samples)
    if state is State.IDLE:
        held, of = values.get("idle", math.nan), values.get("idle_at", math.nan)
        if not (_lasting(held) and _usable(of) and abs(of - scraped_at) <= _SAME_SCRAPE_SECONDS):
            return _doubt("its state and its idle time are not of one scrape")
    evidence = Evidence(
        name="node_activity", says=state, observed=held, limit=None, unit="seconds", source="gpuwatch_node_activity"
    )
    since = moment.at - timedelta(seconds=age + held) if state is State.IDLE else None
    activity = Activity(state=state, since=since, held_seconds=held, evidence=(evidence,))
    return _signal(node, target, moment, activity, age, STRETCH / samples)


def exporters_signal(node: Node, target: Target, moment: Moment, dialect: Dialect) -> NodeReport:
    """What another exporter's samples prove over the whole window: busy by any sign, else idle only without a gap."""
    values, settings = target.values, moment.settings
    if target.twice:
        return _doubt(f"Prometheus has two answers of {target.called}")
    required = [sign for sign in dialect.signs if sign.required]
    ages = [moment.at.timestamp() - values.get(f"at:{sign.name}", math.nan) for sign in required]
    if not all(map(math.isfinite, ages)):
        return _doubt(f"Prometheus has no samples of {' or '.join(sign.metric for sign in required)} for it")
    age = max(ages)
    late = _late(age, moment, ahead="future" in values or min(ages) < -_AHEAD_SECONDS)
    if late is not None:
        return _doubt(late)
    samples = min(values.get(f"samples:{sign.name}", math.nan) for sign in required)
    stretch = RULE_STRETCH if settings.rules else STRETCH
    if not _usable(samples) or samples < 1:
        return _doubt("how many samples there are of it is not known")
    evidence = tuple(_evidence(sign, values, settings) for sign in dialect.signs if f"max:{sign.name}" in values)
    busy = tuple(entry for entry in evidence if entry.says is State.BUSY)
    doubt = None if busy else _unproven(node, target, settings, dialect, samples)
    if doubt is not None:
        return _doubt(doubt)
    parked = tuple(entry for entry in evidence if entry.says is State.PARKED)
    state = State.BUSY if busy else State.PARKED if parked else State.IDLE
    proven = max(0.0, stretches(settings.lookback) * STRETCH - age)
    held = 0.0 if busy else min(settings.lookback, proven)
    since = None if busy else moment.at - timedelta(seconds=held)
    activity = Activity(state=state, since=since, held_seconds=held, evidence=busy or parked or evidence)
    gpus = {state.value: values.get(f"gpus:{required[0].name}", 0.0)}
    if busy:  # which of them works is not known
        gpus = {State.UNKNOWN.value: gpus[state.value]}
    target.states["gpus"] = gpus
    return replace(_signal(node, target, moment, activity, age, stretch / samples), windowed=True)


def _unproven(node: Node, target: Target, settings: PromqlSettings, dialect: Dialect, samples: float) -> str | None:
    """Why a node that shows no work is still not known to do none."""
    values = target.values
    if values.get("split", 0.0) != 0.0:
        return (
            f"a GPU of it is split by MIG, and {dialect.name} does not show the work of its parts; run our agent there"
        )
    for sign in dialect.signs:
        if not _usable(values.get(f"max:{sign.name}", math.nan if sign.required else 0.0)):
            return f"{sign.metric} has samples that are no numbers"
    counted = {values.get(f"gpus:{sign.name}", math.nan) for sign in dialect.signs if sign.required}
    if len(counted) != 1 or not 0 < min(counted) <= _MOST_GPUS:
        return "not all of its GPUs have all of their metrics"
    gpus = min(counted)
    if node.gpu_count is None:
        return f"nobody knows how many GPUs the type {node.instance_type} has"
    if gpus > node.gpu_count:
        return f"Prometheus has {gpus:.0f} GPUs of {target.called}, its type has {node.gpu_count}: is it one target?"
    if gpus < node.gpu_count:  # one that is lost to the exporter may be at work
        return f"Prometheus has {gpus:.0f} of the {node.gpu_count} GPUs of {target.called}"
    stretch = RULE_STRETCH if settings.rules else STRETCH
    if samples > _DENSER * stretch / settings.scrape_interval + 1:
        found = format_duration(stretch / samples)
        return f"it is scraped every {found}; set signals.promql.scrape_interval, by which gaps are found"
    need = stretches(settings.lookback)
    for sign in dialect.signs:
        covered = values.get(f"covered:{sign.name}", 0.0)
        if sign.required and not need <= covered <= need + 1:
            window = format_duration(need * STRETCH)
            found = f"in {covered:.0f} of the {need} stretches of {window}"
            return f"{sign.metric} has its samples {found}: there is a gap, or it is new"
    if samples < enough(settings):
        return f"it has {samples:.0f} samples in the last {format_duration(stretch)}, not {enough(settings)}"
    return None


def _evidence(sign: Sign, values: Mapping[str, float], settings: PromqlSettings) -> Evidence:
    """What one sign says over the window."""
    observed = values[f"max:{sign.name}"]
    return Evidence(
        name=sign.name,
        says=sign.says if observed >= sign.limit else State.IDLE,
        observed=bounded_amount(observed),
        limit=sign.limit,
        unit=sign.unit,
        source=_source(sign.metric, settings.lookback),
    )


@cache
def _source(metric: str, lookback_seconds: float) -> str:
    """The same words for every node."""
    return f"max of {metric} over {format_duration(lookback_seconds)}"


def _late(age: float, moment: Moment, *, ahead: bool) -> str | None:
    """Why its samples are not of now."""
    if ahead:
        return "its samples are from the future; check the clock of its scraper"
    if age > moment.max_age_seconds:
        return f"its newest sample is {format_duration(age)} old (limits.max_verdict_age); is it still scraped?"
    return None


def _signal(node: Node, target: Target, moment: Moment, activity: Activity, age: float, interval: float) -> NodeReport:
    """The verdict around an activity."""
    age = max(0.0, age)
    return NodeReport(
        verdict=NodeVerdict(
            schema=VERDICT_SCHEMA,
            node_id=node.id,
            agent_version=f"{moment.settings.dialect} by Prometheus",
            at=moment.at - timedelta(seconds=age),
            age_seconds=age,
            interval_seconds=interval,
            activity=activity,
            gpus=_gpus(target, activity),
        )
    )


def _gpus(target: Target, activity: Activity) -> tuple[GpuVerdict, ...]:
    """As many GPUs as are counted in each state: which is which is not asked, for that costs a row each."""
    idle = target.values.get("gpu_idle", 0.0)
    made: list[GpuVerdict] = []
    for word, count in sorted(target.states.get("gpus", {}).items()):
        state = _STATES.get(word)
        if state is None or not 0 <= count <= _MOST_GPUS:
            continue
        alike = activity
        if state is not activity.state:
            held = idle if state is State.IDLE and _lasting(idle) else 0.0
            doubt = "which of its GPUs works is not known" if state is State.UNKNOWN else None
            alike = Activity(state=state, since=None, held_seconds=held, doubt=doubt)
        made += [
            GpuVerdict(uuid=f"{word} {number} of {count:.0f}", index=None, activity=alike)
            for number in range(1, int(count) + 1)
        ]
    return tuple(made)


def _usable(*values: float) -> bool:
    """Whether they are numbers that can be true of a duration or a count."""
    return all(math.isfinite(value) and value >= 0 for value in values)


def _lasting(seconds: float) -> bool:
    """Whether a machine can have been in a state for so long."""
    return _usable(seconds) and seconds <= LONGEST_SECONDS


def _doubt(why: str) -> NodeReport:
    return NodeReport(failure=why)
