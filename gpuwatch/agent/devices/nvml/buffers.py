"""Buffers that stay with a GPU from cycle to cycle, for the two calls that are made in each: fields and samples.

pynvml makes new structures for each call and fills them member by member, and asks for the number of samples before it
asks for them: a driver call more for each GPU and cycle.
"""

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import pynvml as nvml

# nvmlFieldValue_t: id, scope, time stamp, latency, type, return code, union. Read as a whole, because pynvml's own
# structures take a Python call for each member, which would be most of a cycle.
ENTRY = struct.Struct("@IIqqii8s")
_SAMPLE = struct.Struct("@Q8s")  # nvmlSample_t: time stamp, union
FIELDS = "nvmlDeviceGetFieldValues"
_SAMPLES = "nvmlDeviceGetSamples"


class FieldBatch:
    """One call of nvmlDeviceGetFieldValues, always for the same fields."""

    def __init__(self, wanted: Sequence[tuple[int, int]]) -> None:
        """Fields by id and scope."""
        self.wanted = wanted
        self._blank = b"".join(ENTRY.pack(number, scope, 0, 0, 0, 0, b"") for number, scope in wanted)
        self._buffer = ctypes.create_string_buffer(self._blank, len(self._blank))

    def ask(self, handle: Any) -> dict[tuple[int, int], tuple[int, int, bytes]]:  # noqa: ANN401  pynvml is untyped
        """The type, return code and union of each entry by its key.

        Raises:
            NVMLError: the call as a whole has failed.

        """
        self._buffer.raw = self._blank  # what a driver leaves alone must not pass for an answer
        _check(_function(FIELDS)(handle, ctypes.c_int(len(self.wanted)), self._buffer))
        return {entry[:2]: entry[4:] for entry in ENTRY.iter_unpack(self._buffer.raw)}


class SampleBuffer:
    """The driver's utilization samples of one GPU."""

    def __init__(self) -> None:
        """How many there may be is asked at the first call."""
        self._most = 0
        self._buffer: Any = None
        self._kind = ctypes.c_uint(nvml.NVML_GPU_UTILIZATION_SAMPLES)
        self._type, self._count = ctypes.c_uint(), ctypes.c_uint()

    def ask(self, handle: Any, seen: int) -> tuple[int, list[tuple[int, bytes]]]:  # noqa: ANN401  as above
        """The type of the values, and each sample's time stamp and union; of those newer than `seen`.

        Raises:
            NVMLError: the call has failed, or there is nothing new (NVML_ERROR_NOT_FOUND).

        """
        if self._buffer is None:
            self._measure(handle)
        code = self._call(handle, seen, self._buffer)
        full = seen > 0 and code == nvml.NVML_SUCCESS and self._count.value >= self._most
        if full or code == nvml.NVML_ERROR_INSUFFICIENT_SIZE:  # there may be more than there were
            self._measure(handle)
            code = self._call(handle, seen, self._buffer)
        _check(code)
        return self._type.value, list(self._samples())

    def _measure(self, handle: Any) -> None:  # noqa: ANN401  as above
        """Make room for as many as the driver keeps."""
        self._most = 0
        _check(self._call(handle, 0, None))
        self._most = self._count.value
        self._buffer = ctypes.create_string_buffer(max(1, self._most) * _SAMPLE.size)

    def _call(self, handle: Any, seen: int, buffer: Any) -> int:  # noqa: ANN401  as above
        self._count.value = self._most
        answer: int = _function(_SAMPLES)(
            handle, self._kind, ctypes.c_ulonglong(seen), ctypes.byref(self._type), ctypes.byref(self._count), buffer
        )
        return answer

    def _samples(self) -> Iterator[tuple[int, bytes]]:
        count = min(self._count.value, self._most)
        return _SAMPLE.iter_unpack(self._buffer.raw[: count * _SAMPLE.size])


def _function(name: str) -> Any:  # noqa: ANN401  as above
    """A function of the driver's library; raises NVMLError where an older one lacks it."""
    return nvml._nvmlGetFunctionPointer(name)  # noqa: SLF001  pynvml has no other way to call with a buffer of ours


def _check(code: int) -> None:
    if code != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(code)
