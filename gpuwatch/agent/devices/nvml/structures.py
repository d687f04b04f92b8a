"""Answers that come in a structure with a version: errors of the on-chip memory, and the NVLink fabric.

Drivers before R535 do not have these calls, and most GPUs have no fabric: then nothing is known, which is neither well
nor ill.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml as nvml

from gpuwatch.agent.devices.nvml.calls import Absence, Visit, Way
from gpuwatch.model.gpu_links import FABRIC_JOINED, FABRIC_STATES

_ALL_ONES = 0xFFFFFFFF

# nvml.h: NVML_GPU_FABRIC_HEALTH_MASK_*. In two bits each: 0 not known, 1 yes, 2 no. The kernel module also has 3 for a
# route: yes, and only a reset mends it.
_WORDS_BITS = 0x3
_NO = (0, 2)
_FLAGS = {0: "degraded_bandwidth", 2: "route_recovery", 4: "route_unhealthy", 6: "access_timeout"}
_CONFIGURATION_SHIFT, _CONFIGURATION_BITS = 8, 0xF
_CONFIGURATION_FINE = (0, 1)


@dataclass(frozen=True, slots=True)
class Structure(Way):
    """A value out of a structure of pynvml that one of its functions fills in."""

    name: str
    form: str
    convert: Callable[[Any], Any]

    def value_for(self, visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        """Return the driver's answer, converted. NVIDIA lets root alone ask for some: for others it is not there."""
        key = (self.name, self.form)

        def ask() -> Any:  # noqa: ANN401  pynvml is untyped
            try:
                form = getattr(nvml, self.form)()
                getattr(nvml, self.name)(visit.device.handle, ctypes.byref(form))
            except nvml.NVMLError_NoPermission:
                visit.device.unsupported.add(key)
                return Absence.UNSUPPORTED
            return form

        answer = visit.once(key, lambda: visit.answer(key, self.name, ask))
        return answer if isinstance(answer, Absence) else self.convert(answer)


def _threshold_flag(status: Any) -> int | None:  # noqa: ANN401  as above
    flag = int(status.bThresholdExceeded)
    return flag if flag in {0, 1} else None


def _state(fabric: Any) -> Any:  # noqa: ANN401  as above
    state = int(fabric.state)
    if state == nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        return Absence.NOTHING
    return state if state < len(FABRIC_STATES) else None


def _faults(fabric: Any) -> Any:  # noqa: ANN401  as above
    """What is wrong, by name; NOTHING where the driver does not say."""
    if int(fabric.state) != FABRIC_JOINED:
        return Absence.NOTHING  # the mask and the status are valid only then
    mask = int(fabric.healthMask)
    if mask == _ALL_ONES:
        return None
    if int(fabric.status) != nvml.NVML_SUCCESS:
        return ("join_failed",)
    words = {name: mask >> shift & _WORDS_BITS for shift, name in _FLAGS.items()}
    configuration = mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_BITS
    if not any(words.values()) and configuration == 0:
        return Absence.NOTHING
    wrong = ("incorrect_configuration",) if configuration not in _CONFIGURATION_FINE else ()
    return (*(name for name, word in words.items() if word not in _NO), *wrong)


def _fabric(convert: Callable[[Any], Any]) -> tuple[Way, ...]:
    return (Structure("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t", convert),)


ROWS: dict[str, tuple[Way, ...]] = {
    "sram_threshold_exceeded": (
        Structure("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", _threshold_flag),
    ),
    "fabric_state": _fabric(_state),
    "fabric_faults": _fabric(_faults),
}
