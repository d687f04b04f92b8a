"""PURE: why a GPU that does not look busy is not proven to be at rest."""

import re

from gpuwatch.model.activity import Evidence
from gpuwatch.model.gpu import GpuReading
from gpuwatch.model.mig import MigInstance

REST_INSTANCE_BYTES = 64 * 1024 * 1024  # the driver's own in an instance is below 32 MiB, a CUDA context above 100
_REST_POWER_RATIO = 0.25  # A100 and A30 at rest draw 11 to 18 % of their limit, instances or not

# What a figure that cannot be true makes doubtful: these tell of use. A fan or a thermometer does not.
_OF_USE = re.compile(
    r"(?!.*(_celsius|_hertz)$)(utilization|memory_|encoder|decoder|jpeg|ofa|graphics_activity|sm_|tensor|dram|fp|power_|"
    r"energy|pcie_[tr]x|nvlink_.*[tr]x|c2c|processes|mig)"
)
_UNSEEN = {
    "nvidia": "not all processes that hold it can be seen; the agent needs the host's PID namespace (--pid=host)",
    "amd": "not all processes that hold it can be seen; the agent needs the host's PID namespace (--pid=host) and "
    "/sys/class/kfd, and a program that only draws or plays video is in no list of AMD's",
}


def unread(reading: GpuReading) -> str | None:
    """Which signal is missing that idleness needs. With MIG the figures of the instances count, not the GPU's."""
    if reading.mig_mode == 1 or reading.mig_instances is not None:
        if reading.mig_instances is None:
            return "its MIG instances could not be listed"
        if any(part.sm_activity_ratio is None and not part.activity_unsupported for part in reading.mig_instances):
            return "the activity of its MIG instances could not be read"
    elif reading.utilization_ratio is None and reading.utilization_max_ratio is None:
        return "its utilization could not be read"
    if reading.processes is None:
        return "its processes could not be listed"
    doubtful = [name for name in reading.implausible if _OF_USE.match(name)]
    if doubtful:
        return f"its driver gives figures that cannot be true: {', '.join(doubtful)}"
    if reading.processes_partial:
        return _UNSEEN[reading.info.vendor]
    return None


def dark(reading: GpuReading) -> tuple[MigInstance, ...]:
    """The MIG instances of which this GPU cannot report the activity."""
    parts = reading.mig_instances or ()
    return tuple(part for part in parts if part.sm_activity_ratio is None and part.activity_unsupported)


def doubt_of_rest(reading: GpuReading, evidence: tuple[Evidence, ...]) -> str | None:
    """Why a GPU is not proven to be at rest that has no MIG instance, or cannot report their activity.

    Called after `unread`, so the lists are complete.
    """
    parts = dark(reading)
    if reading.mig_instances is None or (reading.mig_instances and not parts):
        return None
    for part in parts:
        called = f"MIG instance {part.id}"
        if part.process_count is None:
            return f"the processes of {called} could not be listed, and the GPU does not report its activity"
        if part.process_count:
            return f"{called} is held by a process, and the GPU does not report its activity"
        if part.memory_used_bytes is None or part.memory_used_bytes > REST_INSTANCE_BYTES:
            return f"the memory of {called} is above that of rest, and the GPU does not report its activity"
    if reading.processes:
        return "a process holds it, and it does not report the activity of its MIG instances"
    watts = [entry for entry in evidence if entry.unit == "watts" and entry.observed is not None]
    limit = reading.power_limit_watts
    if limit is None or not watts or any((entry.observed or 0.0) > _REST_POWER_RATIO * limit for entry in watts):
        return "its power is above that of rest, and it does not report the activity of its MIG instances"
    return None
