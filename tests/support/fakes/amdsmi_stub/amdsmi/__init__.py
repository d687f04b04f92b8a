"""A stand-in for ROCm's binding amdsmi: its functions, its enumerations, its errors, with answers out of a file.

`AMDSMI_STUB` names the file, which `tests/support/fakes/amd.py` writes; it is read at every call, so a change takes
effect at once in every process. Answers have the keys of ROCm 7.0's binding (amdsmi_interface.py), and errors are its:
an `AmdSmiLibraryException` with a number, "N/A" for what is not known, and a KeyError at the import without a library.
"""

import json
import os
import threading
from enum import IntEnum
from pathlib import Path
from typing import Any

_WORDS = {
    1: "AMDSMI_STATUS_INVAL - Invalid parameters",
    2: "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported",
    10: "AMDSMI_STATUS_NO_PERM - Permission Denied",
    14: "AMDSMI_STATUS_FILE_ERROR - Error opening file",
    15: "AMDSMI_STATUS_OUT_OF_RESOURCES - Not enough memory",
    30: "AMDSMI_STATUS_BUSY - Device busy",
    32: "AMDSMI_STATUS_NOT_INIT - Device not initialized",
    34: "AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded",
    43: "AMDSMI_STATUS_UNEXPECTED_DATA - The data read or provided was unexpected",
}


def _state() -> dict[str, Any]:
    state: dict[str, Any] = json.loads(Path(os.environ["AMDSMI_STUB"]).read_text(encoding="utf-8"))
    return state


if _state().get("library") == "absent":
    print("libamd_smi.so: cannot open shared object file: No such file or directory")  # noqa: T201  as the real one
    print("Unable to find libamd_smi.so library try installing amd-smi-lib from your package manager")  # noqa: T201
    raise KeyError("libamd_smi.so")


class AmdSmiException(Exception):  # noqa: N818  the real name
    """The base of all."""


class AmdSmiLibraryException(AmdSmiException):
    """An error of the library."""

    def __init__(self, err_code: int) -> None:
        """Keep number and words as the real one does."""
        super().__init__(err_code)
        self.err_code = err_code
        self.err_info = _WORDS.get(err_code, "AMDSMI_STATUS_UNKNOWN_ERROR - An unknown error occurred")

    def __str__(self) -> str:
        """In the frame of the real one."""
        return f"Error code:\n\t{self.err_code} | {self.err_info}"


class AmdSmiParameterException(AmdSmiException):
    """An argument of the wrong type."""

    err_code = None


class AmdSmiTemperatureType(IntEnum):
    """Where it is measured."""

    EDGE = 0
    HOTSPOT = 1
    VRAM = 2


class AmdSmiTemperatureMetric(IntEnum):
    """What is asked."""

    CURRENT = 0
    CRITICAL = 5


class AmdSmiClkType(IntEnum):
    """Which clock."""

    GFX = 0
    MEM = 4
    VCLK0 = 6


class AmdSmiMemoryType(IntEnum):
    """Which memory."""

    VRAM = 0


class _Handle:
    """What stands for a GPU."""

    def __init__(self, slot: int) -> None:
        self.slot = slot


_open = False
_never = threading.Event()


def amdsmi_init() -> None:
    """Open the library."""
    global _open  # noqa: PLW0603  as the library, which is one for the process
    state = _state()
    if state.get("init_blocks"):
        _never.wait()
    if state.get("init_error"):
        raise AmdSmiLibraryException(state["init_error"])
    _open = True


def amdsmi_shut_down() -> None:
    """Close the library."""
    global _open  # noqa: PLW0603  as above
    _open = False


def amdsmi_get_processor_handles() -> list[_Handle]:
    """Every GPU."""
    if not _open:
        raise AmdSmiLibraryException(32)
    return [_Handle(slot) for slot in range(len(_state()["gpus"]))]


def _answer(name: str, handle: object) -> Any:  # noqa: ANN401  any JSON
    """What a GPU answers to a function."""
    if not isinstance(handle, _Handle):
        raise AmdSmiParameterException(handle)
    if not _open:
        raise AmdSmiLibraryException(32)
    state = _state()
    if state.get("noise"):
        os.write(1, b"Getting asic info failed. Return code: 7")  # the library prints, too
    gpu = state["gpus"][handle.slot]
    if name in gpu.get("blocks", ()):
        _never.wait()
    code = gpu.get("errors", {}).get(name, gpu.get("errors", {}).get("*"))
    if code is not None:
        raise AmdSmiLibraryException(code)
    if name not in gpu["answers"]:
        raise AmdSmiLibraryException(2)
    return gpu["answers"][name]


def amdsmi_get_temp_metric(handle: _Handle, sensor: AmdSmiTemperatureType, metric: AmdSmiTemperatureMetric) -> int:
    """Degrees."""
    found = _answer("amdsmi_get_temp_metric", handle).get(f"{sensor.name}.{metric.name}")
    if found is None:
        raise AmdSmiLibraryException(2)
    return int(found)


def amdsmi_get_clock_info(handle: _Handle, kind: AmdSmiClkType) -> dict[str, Any]:
    """Megahertz."""
    found: dict[str, Any] = _answer("amdsmi_get_clock_info", handle).get(str(int(kind)))
    if found is None:
        raise AmdSmiLibraryException(2)
    return found


def _plain(name: str) -> Any:  # noqa: ANN401  a function
    def function(handle: _Handle, *_: object) -> Any:  # noqa: ANN401  any JSON
        return _answer(name, handle)

    function.__name__ = name
    return function


amdsmi_get_gpu_device_bdf = _plain("amdsmi_get_gpu_device_bdf")
amdsmi_get_gpu_device_uuid = _plain("amdsmi_get_gpu_device_uuid")
amdsmi_get_gpu_asic_info = _plain("amdsmi_get_gpu_asic_info")
amdsmi_get_gpu_board_info = _plain("amdsmi_get_gpu_board_info")
amdsmi_get_gpu_vbios_info = _plain("amdsmi_get_gpu_vbios_info")
amdsmi_get_gpu_driver_info = _plain("amdsmi_get_gpu_driver_info")
amdsmi_get_gpu_activity = _plain("amdsmi_get_gpu_activity")
amdsmi_get_gpu_vram_usage = _plain("amdsmi_get_gpu_vram_usage")
amdsmi_get_gpu_memory_total = _plain("amdsmi_get_gpu_memory_total")
amdsmi_get_gpu_memory_usage = _plain("amdsmi_get_gpu_memory_usage")
amdsmi_get_power_info = _plain("amdsmi_get_power_info")
amdsmi_get_power_cap_info = _plain("amdsmi_get_power_cap_info")
amdsmi_get_energy_count = _plain("amdsmi_get_energy_count")
amdsmi_get_pcie_info = _plain("amdsmi_get_pcie_info")
amdsmi_get_gpu_total_ecc_count = _plain("amdsmi_get_gpu_total_ecc_count")
amdsmi_get_gpu_ecc_enabled = _plain("amdsmi_get_gpu_ecc_enabled")
amdsmi_get_gpu_metrics_info = _plain("amdsmi_get_gpu_metrics_info")
amdsmi_get_gpu_process_list = _plain("amdsmi_get_gpu_process_list")
