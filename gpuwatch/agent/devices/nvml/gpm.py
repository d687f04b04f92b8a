"""GPM, the activity counters of Hopper and newer: what changed between one sample of this cycle and one of the last."""

import contextlib
import ctypes
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml as nvml

from gpuwatch.agent.devices.nvml.calls import Absence, Device, Visit, Way

_SHORTEST_SECONDS = 0.1  # between two samples, says nvml.h
_FIRST_MAX = 98  # NVML_GPM_METRIC_MAX of the first drivers with GPM
_REFUSALS = 2  # in a row: so it was no accident that an answer came only without the metrics of newer drivers

# Where nvmlGpmMetricsGet_t has its entries, and in each an id, a return code and a value; as in calls.py, as a whole.
_METRICS = nvml.c_nvmlGpmMetricsGet_t.metrics.offset
_METRIC_BYTES = ctypes.sizeof(nvml.c_nvmlGpmMetric_t)
_ID = struct.Struct("@I")
_ANSWER = struct.Struct("=id")
_UNASKED = (nvml.NVML_ERROR_NO_DATA, math.nan)


@dataclass(frozen=True, slots=True)
class Gpm(Way):
    """One metric of nvmlGpmMetricsGet; those of all rows of a table travel in one call."""

    id: int
    convert: Callable[[float], Any]

    @property
    def gpm(self) -> tuple[int, ...]:
        """Return the id of this one metric."""
        return (self.id,)

    def value_for(self, visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        """The metric over the time since the last cycle; NOTHING in the first."""
        key = ("gpm", self.id)
        if key in visit.device.unsupported:
            return Absence.UNSUPPORTED
        entries = visit.once("gpm", lambda: _difference(visit))
        if isinstance(entries, Absence):
            return entries
        code, value = entries.get(self.id, _UNASKED)
        if code != nvml.NVML_SUCCESS:
            return visit.judge(key, f"GPM metric {self.id}", code)
        return self.convert(value) if math.isfinite(value) else None


def release(device: Device) -> None:
    """Give the samples of a device and its parts back to the driver, as must happen before nvmlShutdown."""
    for part in device.parts.values():
        release(part)
    samples, device.gpm_samples, device.gpm_taken = device.gpm_samples, [], None
    for sample in samples:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlGpmSampleFree(sample)


def _difference(visit: Visit) -> Any:  # noqa: ANN401  pynvml is untyped
    """The return code and value of each metric by its id, or why they are missing."""
    device = visit.device
    wanted = [metric for metric in visit.table.gpm if ("gpm", metric) not in device.unsupported]
    taken = device.gpm_taken
    if taken is not None and visit.now - taken < _SHORTEST_SECONDS:
        return Absence.NOTHING
    if len(device.gpm_samples) < 2 and (absence := _allocate(visit)) is not None:  # noqa: PLR2004  a pair
        return absence
    fresh, last = device.gpm_samples
    device.gpm_taken = None  # unless it succeeds
    if device.instance is None:
        answer = visit.call("gpm", "nvmlGpmSampleGet", fresh)
    else:
        answer = visit.ask("gpm", "nvmlGpmMigSampleGet", device.parent, device.instance, fresh)
    if isinstance(answer, Absence):
        return answer
    device.gpm_samples, device.gpm_taken = [last, fresh], visit.now
    if taken is None:
        return Absence.NOTHING
    answer = _ask_metrics(visit, wanted, last, fresh)
    oldest = [metric for metric in wanted if metric < _FIRST_MAX]
    if answer is Absence.FAILED and len(oldest) < len(wanted):  # perhaps because of an id newer than this driver
        answer = _ask_metrics(visit, oldest, last, fresh)
        if not isinstance(answer, Absence):
            device.gpm_refusals += 1
            if device.gpm_refusals >= _REFUSALS:
                device.unsupported.update(("gpm", metric) for metric in wanted if metric >= _FIRST_MAX)
    elif not isinstance(answer, Absence):
        device.gpm_refusals = 0
    return answer


def _ask_metrics(visit: Visit, wanted: list[int], last: Any, fresh: Any) -> Any:  # noqa: ANN401  pynvml is untyped
    """The return code and value of these metrics between two samples, by id, or why they are missing."""
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(wanted)
    request.sample1, request.sample2 = last, fresh
    places = range(_METRICS, _METRICS + len(wanted) * _METRIC_BYTES, _METRIC_BYTES)
    for place, metric in zip(places, wanted, strict=True):
        _ID.pack_into(request, place, metric)
    answer = visit.ask("gpm", "nvmlGpmMetricsGet", request)
    if isinstance(answer, Absence):
        return answer
    return {metric: _ANSWER.unpack_from(request, place + 4) for place, metric in zip(places, wanted, strict=True)}


def _allocate(visit: Visit) -> Absence | None:
    """Make the pair of samples; an Absence if that cannot be."""
    device = visit.device
    if device.instance is None:  # an instance has what its GPU has
        support = visit.call("gpm", "nvmlGpmQueryDeviceSupport")
        if isinstance(support, Absence):
            return support
        if not support.isSupportedDevice:
            device.unsupported.add("gpm")
            return Absence.UNSUPPORTED
    while len(device.gpm_samples) < 2:  # noqa: PLR2004  a pair
        sample = visit.ask("gpm", "nvmlGpmSampleAlloc")
        if isinstance(sample, Absence):
            return sample
        device.gpm_samples.append(sample)
    return None
