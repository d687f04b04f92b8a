"""The columns of GPUs and of processes, in the units that people at a terminal expect: GiB, watts, percent."""

import re
from collections.abc import Sequence

from gpuwatch.agent.host_text import ranges
from gpuwatch.cli.top.past import STRIP_TITLE, Past, bar
from gpuwatch.model.activity import State
from gpuwatch.model.duration import format_duration
from gpuwatch.model.gpu_identity import ProcessKind
from gpuwatch.model.health import Health
from gpuwatch.model.host_page import HostGpu, HostInstance, HostProcess
from gpuwatch.model.readable import legible
from gpuwatch.runtime.columns import Column

_GIB = 1 << 30
_LONGEST_NAME, _LONGEST_USER, _LONGEST_WHERE, _LONGEST_PROGRAM, _LONGEST_WHY = 14, 10, 11, 15, 200
_MAKERS = re.compile(r"^(?:NVIDIA|Tesla|GeForce|Quadro)\s+", re.IGNORECASE)
_NOT_NAMED = re.compile(r"[ -](?:SXM\d?|PCIe|PCIE|HBM\w*|Generation|Laptop GPU|Workstation Edition|Server Edition)\b")
_HEALTH_STYLES = {Health.FAILING: "tint.stalled", Health.DEGRADED: "tint.idle"}


def short_name(name: str | None) -> str:
    """`H100 80GB` for `NVIDIA H100 80GB HBM3`."""
    found = legible(name or "-", 64)
    while (shorter := _MAKERS.sub("", found)) != found:
        found = shorter
    return _NOT_NAMED.sub("", found).replace("GeForce ", "")[:_LONGEST_NAME].rstrip()


def held_text(seconds: float) -> str:
    """A duration in whole seconds: tenths would flicker."""
    return format_duration(float(int(seconds))) if seconds >= 1 else "0s"


def gpu_columns(
    gpus: Sequence[HostGpu], shown: Sequence[Sequence[HostInstance]] | None = None, past: Past | None = None
) -> list[Column]:
    """One row a GPU, and below it one for each of its instances that is `shown`; None: for all.

    With a `past` there is room for bars and for the strip of the last two minutes.
    """
    rows: list[tuple[HostGpu, HostInstance | None]] = []
    for number, gpu in enumerate(gpus):
        rows.append((gpu, None))
        rows += [(gpu, instance) for instance in (gpu.instances if shown is None else shown[number])]
    states = [_state(gpu) if part is None else "" for gpu, part in rows]
    return [
        Column(title="GPU", cells=[_index(gpu, part) for gpu, part in rows], right=True),
        Column(
            title="NAME",
            cells=[short_name(gpu.name) if part is None else legible(part.profile or "MIG", 14) for gpu, part in rows],
            spare=5,
        ),
        Column(
            title="UTIL",
            cells=[
                "" if part else f"{bar(gpu.utilization_ratio)} {used:>4}" if past else used
                for gpu, part in rows
                for used in (_percent(gpu.utilization_ratio),)
            ],
            right=True,
        ),
        Column(
            title=STRIP_TITLE,
            cells=[past.strip(gpu.uuid) if past and part is None else "" for gpu, part in rows],
            spare=7 if past is None else 1,
        ),
        Column(
            title="SM",
            cells=[_percent(gpu.sm_activity_ratio if part is None else part.sm_activity_ratio) for gpu, part in rows],
            right=True,
            spare=4,
        ),
        Column(
            title="MEM GiB",
            cells=[
                (f"{bar(_memory_share(part or gpu))} " if past else "") + _memory(part or gpu) for gpu, part in rows
            ],
            right=True,
        ),
        Column(
            title="W",
            cells=[_number(gpu.power_watts) if part is None else "" for gpu, part in rows],
            right=True,
            spare=3,
        ),
        Column(
            title="LIM",
            cells=[_number(gpu.power_limit_watts) if part is None else "" for gpu, part in rows],
            right=True,
            spare=6,
        ),
        Column(
            title="°C",
            cells=[_number(gpu.temperature_celsius) if part is None else "" for gpu, part in rows],
            right=True,
            spare=2,
        ),
        Column(title="STATE", cells=states, styles=[_state_style(gpu) for gpu, _ in rows]),
        Column(
            title="FOR", cells=[_held_memory(gpu) if part is None else "" for gpu, part in rows], right=True, spare=1
        ),
        Column(
            title="WHY",
            cells=[legible(gpu.why, _LONGEST_WHY) if part is None else _instance(part) for gpu, part in rows],
            styles=[_why_style(gpu) if part is None else "dim" for gpu, part in rows],
        ),
    ]


def process_columns(processes: Sequence[HostProcess]) -> list[Column]:
    """One row a process."""
    return [
        Column(title="PID", cells=[str(each.pid) for each in processes], right=True),
        Column(title="USER", cells=[_word(each.user, _LONGEST_USER) for each in processes]),
        Column(title="GPU", cells=[_word(_where(each), _LONGEST_WHERE) for each in processes]),
        Column(title="MEM GiB", cells=[_gib(each.memory_bytes) for each in processes], right=True),
        Column(title="TYPE", cells=[_type(each) for each in processes], spare=2),
        Column(title="CPU", cells=[_cores(each.cpu_cores) for each in processes], right=True, spare=3),
        Column(title="KIND", cells=["dead" if each.dead else _word(each.kind, 8) for each in processes], spare=1),
        Column(title="PROGRAM", cells=[_word(each.program, _LONGEST_PROGRAM) for each in processes]),
        Column(title="IN", cells=[place_of_process(each) for each in processes], styles=["dim"] * len(processes)),
    ]


def place_of_process(process: HostProcess) -> str:
    """The job, pod, container or unit that it runs in."""
    if process.slurm_job is not None:
        return f"job {legible(process.slurm_job, 32)}"
    if process.pod is not None:
        return legible("/".join(each for each in (process.namespace, process.pod, process.container) if each), 200)
    if process.pod_uid is not None and process.container is None:
        return f"pod {legible(process.pod_uid, 36)}"
    if process.container is not None:
        return f"container {legible(process.container, 64)}"
    return legible(process.unit or "", 200)


def _index(gpu: HostGpu, part: HostInstance | None) -> str:
    index = "-" if gpu.index is None else str(gpu.index)
    return index if part is None else f"{index}:{part.id}"


def _instance(part: HostInstance) -> str:
    if part.process_count is None:
        return ""
    return f"{part.process_count} process{'' if part.process_count == 1 else 'es'}"


def _state(gpu: HostGpu) -> str:
    return gpu.state.value if gpu.down is None else "down"


def _state_style(gpu: HostGpu) -> str:
    return f"state.{gpu.state.value}" if gpu.down is None else "state.stalled"


def _why_style(gpu: HostGpu) -> str:
    if gpu.down is not None:
        return "tint.stalled"
    return "" if gpu.health is None else _HEALTH_STYLES.get(gpu.health, "")


def _held_memory(gpu: HostGpu) -> str:
    return "" if gpu.down is not None or gpu.state is State.UNKNOWN else held_text(gpu.held_seconds)


def _where(process: HostProcess) -> str:
    """`0-3`, or in MIG `0:1`."""
    parts = {(use.index, use.gpu_instance) for use in process.gpus}
    if all(instance is None for _, instance in parts):
        return ranges(index for index, _ in parts if index is not None) or "-"
    return ",".join(f"{index}:{instance}" for index, instance in sorted(parts, key=str))


def _type(process: HostProcess) -> str:
    """C computes, G draws, as nvidia-smi writes it."""
    kinds = {use.kind for use in process.gpus}
    return "+".join(kind.value[0].upper() for kind in ProcessKind if kind in kinds)


def _word(word: str | None, longest: int) -> str:
    found = legible(word or "-")
    return found if len(found) <= longest else f"{found[: longest - 1]}…"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * ratio:.0f}%"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{size / _GIB:.1f}"


def _memory(of: HostGpu | HostInstance) -> str:
    used, total = of.memory_used_bytes, of.memory_total_bytes
    return "-" if used is None and total is None else f"{_gib(used)}/{_gib(total)}"


def _memory_share(of: HostGpu | HostInstance) -> float | None:
    used, total = of.memory_used_bytes, of.memory_total_bytes
    return None if used is None or not total else used / total


def _cores(cores: float | None) -> str:
    return "-" if cores is None else f"{cores:.1f}"
