"""AMD's driver, as a probe of our own meets it, and what its user may open."""

import re
from collections.abc import Iterator

from gpuwatch.agent.devices.buses import amd_bus_ids
from gpuwatch.agent.devices.messages import Cycle, Down, Reading, Unavailable
from gpuwatch.cli.doctor.context import AgentCase, may_write
from gpuwatch.cli.doctor.devices import PROBE_SECONDS, ask_probe, reads_driver
from gpuwatch.cli.doctor.report import Finding, fine, first_names, make_finding
from gpuwatch.model.duration import format_duration
from gpuwatch.model.gpu_identity import gpu_name

_WHERE = "AMD's driver (AMD SMI)"
_CAUSES = {
    "library_not_found": "amd.library_not_found",
    "driver_not_loaded": "amd.driver_not_loaded",
    "no_permission": "amd.no_permission",
}
_RENDER = re.compile(r"renderD\d+")


def driver(case: AgentCase) -> Iterator[Finding]:
    """AMD SMI is there, and shows and reads every GPU that the kernel has bound to amdgpu."""
    if not reads_driver(case, "amdsmi"):
        return
    messages, last_words = ask_probe(case, "amdsmi")
    for message in messages:
        if isinstance(message, Unavailable):
            yield make_finding(_CAUSES.get(message.cause, "amd.unavailable"), _WHERE, message.detail)
            return
    cycle = next((message for message in messages if isinstance(message, Cycle)), None)
    if cycle is None:
        yield make_finding("amd.hangs", _WHERE, f"no answer within {format_duration(PROBE_SECONDS)}{last_words}")
        return
    listed, bound = len(cycle.gpus), len(amd_bus_ids(case.sys.parent))
    beside = f"AMD SMI shows {listed}, the kernel {bound}"
    if listed == 0:
        yield make_finding("amd.none", _WHERE, beside)
    elif listed < bound:  # more than that are partitions
        yield make_finding("amd.missing", _WHERE, beside)
    else:
        version = next((gpu.driver_version for gpu in cycle.gpus if gpu.driver_version), "of unknown version")
        yield fine("amd_driver", _WHERE, f"{beside}; driver {version}")
    answered = {message.reading.info.uuid for message in messages if isinstance(message, Reading)}
    for message in messages:
        if isinstance(message, Down):
            info = message.down.info
            answered.add(info.uuid)
            text = f"{message.down.cause.value}: {message.down.detail}"
            yield make_finding("amd.unreadable", gpu_name(info.uuid, info.index), text)
    for gpu in cycle.gpus:
        if gpu.uuid not in answered:
            text = f"no answer within {format_duration(PROBE_SECONDS)}"
            yield make_finding("amd.hangs", gpu_name(gpu.uuid, gpu.index), text)
            return  # the probe reads one after the other


def nodes(case: AgentCase) -> Iterator[Finding]:
    """Device nodes that this user may read and write, and the kernel's list of processes."""
    if not reads_driver(case, "amdsmi"):
        return
    where = f"{case.dev}/kfd and {case.dev}/dri/renderD*"
    try:
        render = sorted(path for path in (case.dev / "dri").iterdir() if _RENDER.fullmatch(path.name))
    except OSError:
        render = []
    there = [path for path in (case.dev / "kfd", *render) if path.exists()]
    shut = [path.name for path in there if not may_write(path)]
    if not render or len(there) == len(render):
        yield make_finding(
            "amd.nodes_missing", where, f"there is {first_names([path.name for path in there]) or 'none'}"
        )
    elif shut:
        yield make_finding("amd.nodes_closed", where, f"closed to this user: {first_names(shut)}")
    else:
        yield fine("amd_devices", where, f"{len(there)} nodes can be read and written")
    holders = case.sys / "class/kfd/kfd/proc"
    try:
        next(holders.iterdir(), None)
    except OSError as error:
        yield make_finding("amd.holders_unseen", str(holders), error.strerror or "it cannot be listed")
