"""NVIDIA's driver, as a probe of our own meets it; one that hangs holds up a process that can be left behind."""

import queue
import re
from collections.abc import Iterator

from gpuwatch.agent.devices.buses import Driver, drivers_here
from gpuwatch.agent.devices.messages import Cycle, Down, Message, Reading, Step, Unavailable, decode
from gpuwatch.agent.health.causes import seen_at_once
from gpuwatch.agent.probe.child import ProbeChild
from gpuwatch.cli.doctor.context import AgentCase, may_write
from gpuwatch.cli.doctor.report import KINDS, Finding, fine, first_names, make_finding
from gpuwatch.model.duration import format_duration
from gpuwatch.model.gpu_identity import gpu_name

PROBE_SECONDS = 20.0
_NODE = re.compile(r"nvidiactl|nvidia-uvm|nvidia\d+")


def driver(case: AgentCase) -> Iterator[Finding]:
    """NVML is there, of the kernel module's version, and shows and reads every GPU that the module knows."""
    where = "the NVIDIA driver (NVML)"
    if not case.settings.reads_this_host:
        yield fine("driver", where, f"it is not used: agent.source is {case.settings.source}")
    if not reads_driver(case, "nvml"):
        return
    messages, last_words = ask_probe(case, "nvml")
    kernel = _kernel_version(case)
    beside = f"; the kernel module is {kernel}" if kernel else "; no kernel module is loaded"
    for message in messages:
        if isinstance(message, Unavailable):
            code = f"driver.{message.cause}"
            yield make_finding(code if code in KINDS else "driver.unavailable", where, f"{message.detail}{beside}")
            return
    cycle = next((message for message in messages if isinstance(message, Cycle)), None)
    if cycle is None:
        step = next((message for message in reversed(messages) if isinstance(message, Step)), None)
        text = f"no answer within {format_duration(PROBE_SECONDS)}{last_words}{beside}"
        if step is not None and step.what == "init":
            yield make_finding("driver.init_hang", where, text)
        else:
            yield make_finding("driver.hangs", where if step is None else f"GPU {step.index}", text)
        return
    version = next((gpu.driver_version for gpu in cycle.gpus if gpu.driver_version), "of unknown version")
    yield fine("driver", where, f"NVML answers, driver {version}{beside}")
    if case.cuda is not None:
        yield judge_cuda(case.cuda, next((gpu.cuda_version for gpu in cycle.gpus if gpu.cuda_version), None), version)
    yield from _gpus(case, cycle, messages)


def _gpus(case: AgentCase, cycle: Cycle, messages: list[Message]) -> Iterator[Finding]:
    """What NVML lists against what the kernel module knows, and whether each was read."""
    where = "GPUs that NVML shows, and those of /proc/driver/nvidia/gpus"
    listed, known = len(cycle.gpus), _kernel_gpus(case)
    beside = "" if known is None else f", the kernel module {known}"
    if listed == 0:
        yield make_finding("gpus.none", where, f"NVML shows no GPU{beside}")
    elif known is not None and known > listed:
        yield make_finding("gpus.missing", where, f"NVML shows {listed}{beside}")
    else:
        yield fine("gpus", where, f"NVML shows {listed}{beside}")
    down = {message.down.info.uuid: message.down for message in messages if isinstance(message, Down)}
    for each in down.values():
        name = gpu_name(each.info.uuid, each.info.index)
        yield make_finding("gpus.unreadable", name, f"{each.cause.value}: {each.detail}")
    readings = [message.reading for message in messages if isinstance(message, Reading)]
    for reading in readings:
        for sick in seen_at_once(reading):
            name = gpu_name(reading.info.uuid, reading.info.index)
            yield make_finding("gpus.sick", name, f"{sick.code}: {sick.sentence} Remedy: {sick.remedy}")
    read = {reading.info.uuid for reading in readings}
    for gpu in cycle.gpus:
        if gpu.uuid not in read | down.keys():
            text = f"no answer within {format_duration(PROBE_SECONDS)}"
            yield make_finding("driver.hangs", gpu_name(gpu.uuid, gpu.index), text)
            return  # the probe reads one after the other


def nodes(case: AgentCase) -> Iterator[Finding]:
    """Device nodes that this user may read and write."""
    where = f"{case.dev}/nvidia*"
    if not reads_driver(case, "nvml"):
        return
    try:
        there = sorted(path for path in case.dev.iterdir() if _NODE.fullmatch(path.name))
    except OSError as error:
        yield make_finding("devices.missing", where, f"{case.dev} cannot be listed: {error.strerror}")
        return
    shut = [path.name for path in there if not may_write(path)]
    if not there:
        yield make_finding("devices.missing", where, "no device node")
    elif shut:
        yield make_finding("devices.closed", where, f"closed to this user: {first_names(shut)}")
    else:
        yield fine("devices", where, f"{len(there)} nodes can be read and written")


def reads_driver(case: AgentCase, driver: Driver) -> bool:
    """Whether GPUs of that driver are read here."""
    source = case.settings.source
    return (drivers_here(case.sys.parent) if source == "auto" else source) in {driver, "both"}


def ask_probe(case: AgentCase, driver: Driver) -> tuple[list[Message], str]:
    """What one cycle of a probe of that driver says, and its last words.

    It is ended, or left behind, when its time is over.
    """
    messages: list[Message] = []
    child = ProbeChild([*case.probe, "--source", driver])
    until = case.clock.monotonic() + PROBE_SECONDS
    try:
        while (line := child.lines.get(timeout=max(0.0, until - case.clock.monotonic()))) is not None:
            messages.append(decode(line))
        return messages, "" if messages else f" ({child.farewell().detail})"
    except (queue.Empty, ValueError):
        return messages, ""
    finally:
        child.end()


def _kernel_version(case: AgentCase) -> str | None:
    """Of the loaded module; None: none is. Source: /proc/driver/nvidia/version."""
    try:
        text = (case.proc / "driver/nvidia/version").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    match = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else None


def _kernel_gpus(case: AgentCase) -> int | None:
    """How many GPUs the module knows; None: not known."""
    try:
        return sum(1 for _ in (case.proc / "driver/nvidia/gpus").iterdir())
    except OSError:
        return None


# Whether the driver is new enough for a CUDA runtime that somebody wants to use, such as a container's.
#
# Rules, all of them; source: NVIDIA's CUDA Compatibility guide and the driver table of the CUDA Toolkit's notes.
#
# 1. A runtime up to the driver's own CUDA version runs.
# 2. A newer minor version of the same major one runs, too (from CUDA 11 on), but nothing that compiles PTX on the spot.
# 3. A newer major version does not run. The table has the first driver of each. On data-center GPUs NVIDIA's package
#    cuda-compat in the container lifts some older drivers; whether it is there is not seen from the host.
_FIRST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
_FIRST_MINOR_MAJOR = 11
_VERSION = re.compile(r"(\d{1,2})\.(\d{1,2})(?:\.\d{1,4})?")


def cuda_version(text: str) -> tuple[int, int]:
    """Of `12.4` or `12.4.1`.

    Raises:
        ValueError: it is neither; names it and what would be right.

    """
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no version of CUDA; write for example 12.4")
    return int(match[1]), int(match[2])


def judge_cuda(wanted: str, drivers_cuda: str | None, driver: str) -> Finding:
    """What that runtime finds at a driver with that CUDA version; None: the driver does not tell."""
    where = f"CUDA {wanted} on driver {driver}"
    if drivers_cuda is None:
        return make_finding("driver.cuda_unknown", where, "the driver does not tell its CUDA version")
    needs, has = cuda_version(wanted), cuda_version(drivers_cuda)
    seen = f"the driver has CUDA {drivers_cuda}"
    if needs <= has:
        return fine("cuda", where, seen)
    if needs[0] == has[0] >= _FIRST_MINOR_MAJOR:
        return make_finding("driver.cuda_minor", where, seen)
    first = _FIRST_DRIVER.get(needs[0])
    return make_finding(
        "driver.cuda_too_old", where, seen if first is None else f"{seen}; CUDA {needs[0]} needs {first} or newer"
    )
