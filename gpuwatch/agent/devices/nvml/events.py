"""XIDs as the driver reports them through an event set. Events before a GPU is registered are not reported."""

import ctypes
import logging
from typing import Any

import pynvml as nvml

from gpuwatch.agent.devices.nvml.calls import DRIVER_GONE, Device

_MOST_AT_ONCE = 64  # the rest waits in the driver for the next cycle
_RETRY_SECONDS = 10.0


class XidEvents:
    """One event set for all GPUs. A failure, of one GPU or of the set, is logged once and retried later."""

    def __init__(self) -> None:
        """Nothing is made before the first GPU is watched."""
        self._set: Any = None
        self._watched: dict[str, Device] = {}
        self._uuids: dict[int | None, str] = {}  # by the address behind a handle: that asks no GPU
        self._retry_at: dict[str, float] = {}  # by uuid, and for the set by no uuid
        self._logged = False

    def watch(self, uuid: str, device: Device, now: float) -> None:
        """Register a GPU that has just been read, once for each time that it is found.

        Source: nvmlDeviceRegisterEvents(nvmlEventTypeXidCriticalError).
        """
        if self._watched.get(uuid) is device or any(now < self._retry_at.get(what, 0.0) for what in ("", uuid)):
            return
        culprit = ""
        try:
            if self._set is None:
                self._set = nvml.nvmlEventSetCreate()
            culprit = uuid
            nvml.nvmlDeviceRegisterEvents(device.handle, nvml.nvmlEventTypeXidCriticalError, self._set)
        except nvml.NVMLError as error:
            if error.value not in {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND}:
                self._note_failure(culprit, error, now)
                return
        self._watched[uuid] = device
        self._uuids[_address(device.handle)] = uuid

    def take(self, now: float) -> tuple[tuple[str, int], ...]:
        """What has happened since the last time, as uuid and XID; never waits. Source: nvmlEventSetWait_v2."""
        events: list[tuple[str, int]] = []
        while self._set is not None and len(events) < _MOST_AT_ONCE:
            try:
                data = nvml.nvmlEventSetWait_v2(self._set, 0)
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_TIMEOUT:
                    self.close()
                    self._note_failure("", error, now)
                break
            uuid = self._uuids.get(_address(data.device))
            if uuid is not None and data.eventType == nvml.nvmlEventTypeXidCriticalError:
                events.append((uuid, int(data.eventData)))
        return tuple(events)

    def close(self) -> None:
        """Release the event set."""
        held, self._set = self._set, None
        self._watched.clear()
        self._uuids.clear()
        if held is not None:
            try:
                nvml.nvmlEventSetFree(held)
            except nvml.NVMLError:  # the driver is gone, and the set with it
                return

    def _note_failure(self, uuid: str, error: nvml.NVMLError, now: float) -> None:
        if error.value in DRIVER_GONE:  # the next call finds out
            return
        self._retry_at[uuid] = now + _RETRY_SECONDS
        if not self._logged:
            self._logged = True
            what = f"of {uuid}" if uuid else "of all GPUs"
            logging.getLogger(__name__).warning(
                "errors (XIDs) %s may be missed, it is tried again: event set: %s", what, error
            )


def _address(handle: Any) -> int | None:  # noqa: ANN401  pynvml is untyped
    return ctypes.cast(handle, ctypes.c_void_p).value
