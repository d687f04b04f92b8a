"""What is asked of a Prometheus about a range, by dialect: each step's answer is about the whole step before it.

Every query answers with one row for a node and step, or none. Work and memory are the peaks of the step, so that no
sample between two steps is lost; a step without a sample of every GPU has no row, so that silence is never idleness.

Our agent is asked which states it had in the step, and at its end since when it has been idle, which is exact however
long the step. Another exporter's signs are judged as `signals.dialects` has them.
"""

from collections.abc import Mapping
from enum import IntFlag

from gpuwatch.controller.observe.exporters import DIALECTS, HELD_BYTES, Dialect, Sign
from gpuwatch.controller.observe.settings import PromqlSettings
from gpuwatch.model.activity import State

AGENT = "gpuwatch"
POOL = "pool"  # the label that docs/prometheus.md has targets relabelled with


class Bits(IntFlag):
    """A node's states that were seen within a step."""

    BUSY = 1
    PARKED = 2
    OCCUPIED = 2  # played like parked: somebody's, and nothing computes
    STALLED = 4
    UNKNOWN = 8
    IDLE = 16


# Joins of series, and timestamp(), cost a server ten times what these do.
_AGENT_QUERIES = {
    "states": "max by ($by, state) (max_over_time(gpuwatch_node_activity{$match}[$step]) == 1)",
    "held": "max by ($by) (gpuwatch_node_idle_seconds{$match} > 0)",
    "told_at": "max by ($by) (gpuwatch_agent_last_cycle_timestamp_seconds{$match})",
    # Twice the step: the last sample before the restart may lie in the step before.
    "restarted": "max by ($by) (resets(gpuwatch_agent_cycle_duration_seconds_count{$match}[$twice]) > 0)",
}
# Asked once a chunk, about all of it.
_AGENT_FACTS = {
    "names": "count by ($by, node_id) (count_over_time(gpuwatch_node_info{$match}[$chunk]))",
    "types": "count by ($by, instance_type) (count_over_time(gpuwatch_instance_info{$match}[$chunk]))",
    "gpus": "count by ($by) (count_over_time(gpuwatch_gpu_up{$match}[$chunk]))",
}


def labels_of(settings: PromqlSettings) -> tuple[str, ...]:
    """The labels that identify a row."""
    named = [] if settings.dialect == AGENT else [node_label(settings)]
    return tuple(dict.fromkeys((*settings.target_labels, *named, POOL)))


def node_label(settings: PromqlSettings) -> str:
    """The label that names the node."""
    return settings.node_label or ("node_id" if settings.dialect == AGENT else "instance")


def metric_of(dialect: str) -> str:
    """The metric without which a dialect shows no use."""
    return "gpuwatch_node_idle_seconds" if dialect == AGENT else DIALECTS[dialect].signs[0].metric


def questions(settings: PromqlSettings, step: float, pool: str | None) -> dict[str, str]:
    """The queries over the range, by name."""
    asked = _AGENT_QUERIES if settings.dialect == AGENT else _exporter(DIALECTS[settings.dialect])
    return _fill_queries(asked, settings, pool, {"$step": f"{step:.0f}s", "$twice": f"{2 * step:.0f}s"})


def facts(settings: PromqlSettings, chunk: float, pool: str | None) -> dict[str, str]:
    """What our agents' targets are, at the end of a chunk; other exporters do not tell."""
    asked = _AGENT_FACTS if settings.dialect == AGENT else {}
    return _fill_queries(asked, settings, pool, {"$chunk": f"{chunk:.0f}s"})


def _exporter(dialect: Dialect) -> dict[str, str]:
    """How many GPUs reported each required sign in numbers, and how many samples has the one that has fewest.

    `work` is a ratio, `held` are bytes; a row of `doubt` is why idleness is not believed.
    """
    of_gpu = f"max by ($by, {dialect.gpu_label})"
    required = [sign for sign in dialect.signs if sign.required]
    work = [_peak(sign, 0.01 / sign.limit) + " >= 0.01" for sign in dialect.signs if sign.says is State.BUSY]
    held = [
        f"{_peak(sign, HELD_BYTES / sign.limit)} >= {HELD_BYTES}" for sign in dialect.signs if sign.says is State.PARKED
    ]
    broken = [
        f"count by ($by) (0 * sum_over_time({sign.metric}{{$match}}[$step]) != 0)"
        for sign in dialect.signs
        if not sign.required
    ]
    return {
        "utilization": f"count by ($by) ({of_gpu} (sum_over_time({required[0].metric}{{$match}}[$step]) >= 0))",
        "memory": f"count by ($by) ({of_gpu} (sum_over_time({required[1].metric}{{$match}}[$step]) >= 0))",
        "samples": f"min by ($by) ({of_gpu} (count_over_time({required[0].metric}{{$match}}[$step])))",
        "work": f"max by ($by) ({' or '.join(work)})",
        "held": f"max by ($by) ({' or '.join(held)})",
        "doubt": " or ".join((f"count by ($by) ({dialect.split})", *broken)),
    }


def _peak(sign: Sign, scale: float) -> str:
    """The highest sample of a step, in another unit."""
    return f"max_over_time({sign.metric}{{$match}}[$step]) * {scale!r}"


def _fill_queries(
    asked: Mapping[str, str], settings: PromqlSettings, pool: str | None, values: Mapping[str, str]
) -> dict[str, str]:
    """The queries with their variables replaced."""
    quoted = "" if pool is None else pool.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    match = "" if pool is None else f'{POOL}="{quoted}"'
    variables = {**values, "$by": ", ".join(labels_of(settings)), "$and": match and f", {match}", "$match": match}
    filled = dict(asked)
    for variable, text in variables.items():
        filled = {name: expression.replace(variable, text) for name, expression in filled.items()}
    return filled
