"""What the driver keeps between cycles: its own utilization samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml as nvml

from gpuwatch.devices.nvml.calls import Absence, Alone, Visit, number

_PERCENT = 100


@dataclass(frozen=True, slots=True)
class Samples(Alone):
    """The driver's utilization samples since the last cycle, folded into one ratio."""

    fold: Callable[[Sequence[float]], float]

    def of(self, visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        """The fold; NOTHING in the first cycle, whose backlog is older than anything that was asked for."""
        percents = visit.once("samples", lambda: _fresh_percents(visit))
        return percents if isinstance(percents, Absence) else self.fold(percents) / _PERCENT


def _fresh_percents(visit: Visit) -> list[float] | Absence:
    device, seen = visit.device, visit.device.samples_seen
    answer = visit.call("samples", "nvmlDeviceGetSamples", nvml.NVML_GPU_UTILIZATION_SAMPLES, seen or 0)
    if answer is Absence.NOTHING:
        device.samples_seen = seen or 0
    if isinstance(answer, Absence):
        return answer
    value_type, samples = answer
    fresh = [sample for sample in samples if sample.timeStamp > (seen or 0)]
    device.samples_seen = max((sample.timeStamp for sample in fresh), default=seen or 0)
    percents = [number(value_type, sample.sampleValue) for sample in fresh]
    valid = [percent for percent in percents if percent is not None and 0 <= percent <= _PERCENT]
    return valid if valid and seen is not None else Absence.NOTHING
