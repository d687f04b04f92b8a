"""PURE: the exporters that a Prometheus may scrape, as tables, and the PromQL that asks for a whole fleet at once.

Every query answers with one row for each target (an exporter on a node), however many GPUs it has. `$by` are the labels
that tell targets apart, `$match` limits a query to one node.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gpuwatch.controller.observe.settings import PromqlSettings
from gpuwatch.model.activity import State

MIB = 1024.0**2
HELD_BYTES = 512 * MIB  # as ActivityRules.held_memory_bytes of our own agent
STRETCH = 300  # seconds; every stretch of the window must have its samples
RULE_STRETCH = 600  # seconds that a recording rule looks back, so that two of them overlap
_FUTURE_TOLERANCE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """A metric that shows use: at or above `limit`, in the metric's own unit, a GPU is `says`.

    Without a required one of every GPU at every moment nothing is known; any other counts where it is there.
    """

    name: str
    metric: str
    limit: float
    unit: str
    says: State = State.BUSY
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Another exporter: its signs, the label that names its GPUs, and what shows that a GPU is split (MIG)."""

    name: str
    gpu_label: str
    signs: tuple[Sign, ...]
    split: str  # an expression that has rows only where MIG hides what the signs would tell
    measures: Mapping[str, str]


_DCGM = Dialect(
    name="dcgm",
    gpu_label="UUID",
    signs=(
        Sign(name="utilization", metric="DCGM_FI_DEV_GPU_UTIL", limit=1.0, unit="percent", required=True),
        Sign(
            name="memory_used",
            metric="DCGM_FI_DEV_FB_USED",
            limit=HELD_BYTES / MIB,
            unit="MiB",
            says=State.PARKED,
            required=True,
        ),
        Sign(name="graphics_engine", metric="DCGM_FI_PROF_GR_ENGINE_ACTIVE", limit=0.01, unit="ratio"),
        Sign(name="sm_activity", metric="DCGM_FI_PROF_SM_ACTIVE", limit=0.01, unit="ratio"),
        Sign(name="memory_copy", metric="DCGM_FI_DEV_MEM_COPY_UTIL", limit=1.0, unit="percent"),
        Sign(name="encoder", metric="DCGM_FI_DEV_ENC_UTIL", limit=1.0, unit="percent"),
        Sign(name="decoder", metric="DCGM_FI_DEV_DEC_UTIL", limit=1.0, unit="percent"),
    ),
    split='DCGM_FI_DEV_FB_USED{GPU_I_ID!=""$and}',
    measures={
        "gpu_utilization": "avg_over_time(DCGM_FI_DEV_GPU_UTIL{$match}[$window]) / 100",
        "gpu_memory": "DCGM_FI_DEV_FB_USED{$match} / (DCGM_FI_DEV_FB_USED{$match} + DCGM_FI_DEV_FB_FREE{$match})",
        "sm_activity": "avg_over_time(DCGM_FI_PROF_SM_ACTIVE{$match}[$window])",
    },
)
_NVIDIA_SMI = Dialect(
    name="nvidia_smi",
    gpu_label="uuid",
    signs=(
        Sign(name="utilization", metric="nvidia_smi_utilization_gpu_ratio", limit=0.01, unit="ratio", required=True),
        Sign(
            name="memory_used",
            metric="nvidia_smi_memory_used_bytes",
            limit=HELD_BYTES,
            unit="bytes",
            says=State.PARKED,
            required=True,
        ),
        Sign(name="memory_copy", metric="nvidia_smi_utilization_memory_ratio", limit=0.01, unit="ratio"),
        Sign(name="encoder", metric="nvidia_smi_utilization_encoder_ratio", limit=0.01, unit="ratio"),
        Sign(name="decoder", metric="nvidia_smi_utilization_decoder_ratio", limit=0.01, unit="ratio"),
        Sign(name="processes", metric="nvidia_smi_compute_apps", limit=1.0, unit="processes", says=State.PARKED),
    ),
    split="nvidia_smi_mig_mode_current{$match} == 1",
    measures={
        "gpu_utilization": "avg_over_time(nvidia_smi_utilization_gpu_ratio{$match}[$window])",
        "gpu_memory": "nvidia_smi_memory_used_bytes{$match} / nvidia_smi_memory_total_bytes{$match}",
    },
)
_NVITOP = Dialect(
    name="nvitop",
    gpu_label="uuid",
    signs=(
        Sign(name="utilization", metric="gpu_utilization_Percentage", limit=1.0, unit="percent", required=True),
        Sign(
            name="memory_used",
            metric="gpu_memory_used_MiB",
            limit=HELD_BYTES / MIB,
            unit="MiB",
            says=State.PARKED,
            required=True,
        ),
        Sign(name="memory_copy", metric="gpu_memory_utilization_Percentage", limit=1.0, unit="percent"),
        Sign(name="encoder", metric="gpu_encoder_utilization_Percentage", limit=1.0, unit="percent"),
        Sign(name="decoder", metric="gpu_decoder_utilization_Percentage", limit=1.0, unit="percent"),
        Sign(name="processes", metric="process_info_info", limit=1.0, unit="processes", says=State.PARKED),
    ),
    split='gpu_memory_used_MiB{index=~".*:.*"$and}',
    measures={
        "gpu_utilization": "avg_over_time(gpu_utilization_Percentage{$match}[$window]) / 100",
        "gpu_memory": "gpu_memory_used_MiB{$match} / gpu_memory_total_MiB{$match}",
    },
)
DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (_DCGM, _NVIDIA_SMI, _NVITOP)}

_AGENT_MEASURES = {
    "gpu_utilization": "avg_over_time(gpuwatch_gpu_utilization_ratio[$window])",
    "gpu_memory": "gpuwatch_gpu_memory_used_bytes / gpuwatch_gpu_memory_total_bytes",
    "sm_activity": "avg_over_time(gpuwatch_gpu_sm_activity_ratio[$window])",
    "cpu_utilization": "gpuwatch_host_cpu_utilization_ratio",
}
_AGENT_RECORDED = {
    "gpus": "count by ($by, state) (gpuwatch_gpu_activity == 1)",
    "gpu_idle": "min by ($by) (gpuwatch_gpu_idle_seconds > 0)",
}

# What is asked of our own agents' metrics: the verdict is theirs, folded at sampling rate, so no window is needed.
_AGENT_QUERIES = {
    "who": "gpuwatch_node_info",
    "state": "timestamp(gpuwatch_node_activity) and gpuwatch_node_activity == 1",
    "idle": "gpuwatch_node_idle_seconds",
    "idle_at": "timestamp(gpuwatch_node_idle_seconds)",
    "cycle_age": "gpuwatch_agent_last_cycle_age_seconds",
    "samples": f"count_over_time(gpuwatch_node_activity{{state='unknown'}}[{STRETCH}s])",
    "future": "count by ($by) "
    f"(count_over_time(gpuwatch_node_activity[{STRETCH - _FUTURE_TOLERANCE}s] offset -{STRETCH}s))",
}


def stretches(lookback_seconds: float) -> int:
    """How many stretches the window has: the lookback and one more, so that all of the lookback lies within."""
    return math.ceil(lookback_seconds / STRETCH) + 1


def reach_seconds(settings: PromqlSettings) -> float:
    """How long before its newest sample the work may be that the window of another exporter shows, at most."""
    return stretches(settings.lookback) * STRETCH + (RULE_STRETCH if settings.rules else 0.0)


def enough(settings: PromqlSettings) -> int:
    """How many samples what counts them must see at least: one for each scrape but those that may be lost."""
    window = RULE_STRETCH if settings.rules else STRETCH
    return max(1, math.floor(window / settings.scrape_interval) - settings.max_missed_scrapes * window // STRETCH)


def agent_queries(settings: PromqlSettings) -> dict[str, str]:
    """The queries of the dialect `gpuwatch`, by name."""
    queries = _AGENT_QUERIES | (
        {name: f"gpuwatch:node_{name}" for name in _AGENT_RECORDED} if settings.rules else _AGENT_RECORDED
    )
    return {name: expression.replace("$by", _target_labels(settings)) for name, expression in queries.items()}


def agent_rules(by: str) -> dict[str, str]:
    """The recording rules of the dialect `gpuwatch`, by name."""
    return {f"gpuwatch:node_{name}": expression.replace("$by", by) for name, expression in _AGENT_RECORDED.items()}


def exporter_queries(dialect: Dialect, settings: PromqlSettings, at: float, match: str = "") -> dict[str, str]:
    """The queries of another exporter's dialect, by name; those of a sign carry its name after a colon.

    `at` is the Unix time that they are asked about: VictoriaMetrics knows no `@ end()` within a subquery.
    """
    window, need = stretches(settings.lookback) * STRETCH, enough(settings)
    queries = {"future": _future(dialect.signs[0]), "split": f"count by ($by) ({dialect.split})"}
    for sign in dialect.signs:
        metric = name_of_rule(dialect, sign, "max") if settings.rules else sign.metric
        queries[f"max:{sign.name}"] = _peak(f"{metric}{{$match}}", window)
        if not sign.required:
            continue
        if settings.rules:
            parts = {part: f"{name_of_rule(dialect, sign, part)}{{$match}}" for part in _PARTS}
            least = {part: f"min_over_time({parts[part]}[{STRETCH}s])" for part in ("samples", "gpus")}
            whole = f"{least['samples']} >= {need} and {least['gpus']} >= {parts['gpus']} @ $now"
        else:
            parts = _parts(dialect, f"{sign.metric}{{$match}}", STRETCH)
            of_gpu = f"max by ($by, {dialect.gpu_label})"
            counted = f"{of_gpu} (count_over_time({sign.metric}{{$match}}[{STRETCH}s])) >= {need}"
            now = f"count by ($by) ({of_gpu} ({sign.metric}{{$match}} @ $now))"
            whole = f"count by ($by) ({counted}) >= {now}"
        queries |= {f"{part}:{sign.name}": expression for part, expression in parts.items()}
        queries[f"covered:{sign.name}"] = f"count_over_time(({whole})[{window}s:{STRETCH}s])"
    also = f", {match}" if match else ""
    variables = {"$by": _target_labels(settings, own=True), "$now": f"{at:.3f}", "$match": match, "$and": also}
    return {name: _fill_expression(expression, variables) for name, expression in queries.items()}


def exporter_rules(dialect: Dialect, by: str) -> dict[str, str]:
    """The recording rules of another exporter's dialect, by name."""
    rules: dict[str, str] = {}
    for sign in dialect.signs:
        rules[name_of_rule(dialect, sign, "max")] = _peak(sign.metric, RULE_STRETCH)
        if sign.required:
            parts = _parts(dialect, sign.metric, RULE_STRETCH)
            rules |= {name_of_rule(dialect, sign, part): made for part, made in parts.items()}
    return {name: expression.replace("$by", by) for name, expression in rules.items()}


def measure_query(settings: PromqlSettings, name: str) -> str | None:
    """The query for a measure: each target's mean over its GPUs; None where the dialect has no such metric."""
    agent = settings.dialect == "gpuwatch"
    measure = (_AGENT_MEASURES if agent else DIALECTS[settings.dialect].measures).get(name)
    if measure is None:
        return None
    window = f"{math.ceil(max(60.0, 2 * settings.scrape_interval))}s"
    by = _target_labels(settings, own=not agent)
    return f"avg by ({by}) ({measure})".replace("$match", "").replace("$window", window)


def name_of_rule(dialect: Dialect, sign: Sign, part: str) -> str:
    """What the recorded series is called."""
    return f"gpuwatch:{dialect.name}_{sign.name}:{part}"


_PARTS = ("samples", "gpus", "at")


def _parts(dialect: Dialect, metric: str, window: int) -> dict[str, str]:
    """Of a required sign: samples of the GPU that has fewest, how many GPUs, and the oldest of their newest samples."""
    of_gpu = f"max by ($by, {dialect.gpu_label})"
    return {
        "samples": f"min by ($by) ({of_gpu} (count_over_time({metric}[{window}s])))",
        "gpus": f"count by ($by) ({of_gpu} (count_over_time({metric}[{window}s])))",
        "at": f"min by ($by) ({of_gpu} (timestamp({metric})))",
    }


def _fill_expression(expression: str, variables: Mapping[str, str]) -> str:
    """The expression with its variables replaced."""
    for variable, text in variables.items():
        expression = expression.replace(variable, text)
    return expression


def _peak(metric: str, window: int) -> str:
    """The highest sample of any GPU in the window; NaN where any sample is NaN or infinite, which max alone hides."""
    return f"max by ($by) (max_over_time({metric}[{window}s])) + 0 * sum by ($by) (sum_over_time({metric}[{window}s]))"


def _future(sign: Sign) -> str:
    """Rows only where samples are from the future: the clock of the scraper is ahead."""
    ahead = f"{sign.metric}{{$match}}[{STRETCH - _FUTURE_TOLERANCE}s] offset -{STRETCH}s"
    return f"count by ($by) (count_over_time({ahead}))"


def _target_labels(settings: PromqlSettings, *, own: bool = False) -> str:
    """The labels of a target; in another exporter's rows also the one that names its node."""
    named = [settings.node_label or "instance"] if own else []
    return ", ".join(dict.fromkeys((*settings.target_labels, *named)))
