"""The ways to read a value: one call, one field of the batch, or one value by label; and what an error means."""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pynvml as nvml

from gpuwatch.agent.devices.nvml.buffers import FieldBatch, SampleBuffer
from gpuwatch.agent.devices.plausible import ALL_ONES, bounds, plausible


class Absence(Enum):
    """Why a call gave no value."""

    UNSUPPORTED = "unsupported"  # this GPU or this driver does not provide it
    NOTHING = "nothing"  # nothing new since the last call
    FAILED = "failed"  # it should have answered


class GpuLostError(Exception):
    """The driver has lost this GPU."""


# pynvml raises its error also for "success" where a list is empty.
_NOTHING = {nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_NO_DATA}
_MISSING = {nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH}  # in an older driver
_UNSUPPORTED = {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_DEPRECATED, *_MISSING}
LOST = {nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_GPU_NOT_FOUND}
SHUT = {nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_OPERATING_SYSTEM}  # to this user, or by its control group

# Errors of the whole driver: cause for machines, remedy for people. After version_mismatch only a fresh process helps,
# because the old library stays mapped in this one.
DRIVER = {
    nvml.NVML_ERROR_DRIVER_NOT_LOADED: ("driver_not_loaded", "load it: `modprobe nvidia`, then `dmesg | grep NVRM`"),
    nvml.NVML_ERROR_LIBRARY_NOT_FOUND: ("library_not_found", "install the NVIDIA driver or its container runtime"),
    **dict.fromkeys(
        SHUT, ("no_permission", "let this user and its control group read and write /dev/nvidiactl and /dev/nvidia*")
    ),
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: ("version_mismatch", "after an upgrade, reload the module or reboot"),
    nvml.NVML_ERROR_UNINITIALIZED: ("driver_reloaded", "none needed: it is opened again in the next cycle"),
}
DRIVER_GONE = set(DRIVER) - SHUT  # while reading, these are about a single call

_SCALARS = (float, int)

FieldKey = tuple[int, int]  # id and scope


class Way(ABC):
    """How a value is read; frozen, so that a table of them is a constant."""

    __slots__ = ()

    @property
    def fields(self) -> tuple[FieldKey, ...]:
        """The field values that it needs from the batch."""
        return ()

    @property
    def gpm(self) -> tuple[int, ...]:
        """The GPM metrics that it needs."""
        return ()

    @abstractmethod
    def value_for(self, visit: "Visit") -> Any:  # noqa: ANN401  the row knows the type
        """The value in base units, None if the driver's answer cannot be true, or an Absence."""


class Table:
    """Rows that are read together: the ways to each value, in order, and what they ask for in common."""

    def __init__(self, rows: Mapping[str, tuple[Way, ...]]) -> None:
        """Rows by the name of the field that they fill."""
        self.rows = rows
        self.limits = tuple(bounds(name) for name in rows)
        ways = [way for row in rows.values() for way in row]
        self.fields = tuple(dict.fromkeys(key for way in ways for key in way.fields))
        self.gpm = tuple(dict.fromkeys(metric for way in ways for metric in way.gpm))


@dataclass(slots=True)
class Device:
    """What is known of a GPU or a MIG instance between cycles: its handle, and what it does not support."""

    handle: Any = None
    instance: int | None = None  # of MIG; `parent` is then the GPU's handle
    parent: Any = None
    unsupported: set[object] = field(default_factory=set)
    samples_seen: int | None = None  # the driver's time stamp of the newest sample that was looked at
    gpm_samples: list[Any] = field(default_factory=list)  # the one to take next, the one taken last
    gpm_taken: float | None = None  # when the last one was taken, by the monotonic clock
    gpm_refusals: int = 0  # in a row: answers that came only without the metrics of newer drivers
    slow: dict[str, Any] = field(default_factory=dict)  # the slow rows, as last read
    costly: dict[str, Any] = field(default_factory=dict)  # likewise
    steady: dict[str, Any] = field(default_factory=dict)  # likewise
    holders: dict[str, Any] = field(default_factory=dict)  # who held it when that was last asked
    implausible: dict[str, frozenset[str]] = field(default_factory=dict)  # by table, what could not be true
    batches: "dict[Table, FieldBatch]" = field(default_factory=dict)
    samples: SampleBuffer = field(default_factory=SampleBuffer)
    parts: dict[Any, "Device"] = field(default_factory=dict)  # its MIG instances

    def forget(self) -> None:
        """Ask again for what was not supported."""
        self.unsupported.clear()
        for part in self.parts.values():
            part.forget()


@dataclass(slots=True)
class Visit:
    """One device in one cycle: each driver call is made at most once, however many fields it serves."""

    device: Device
    table: Table
    now: float  # of the monotonic clock
    answers: dict[object, Any] = field(default_factory=dict)
    failure: str = ""
    needs_reset: bool = False  # a call said so
    implausible: set[str] = field(default_factory=set)  # rows with a value that could not be true
    _false: bool = False  # in the row at hand

    def read(self) -> dict[str, Any]:
        """The value of each row of the table, without what cannot be true."""
        values: dict[str, Any] = {}
        for (name, ways), limits in zip(self.table.rows.items(), self.table.limits, strict=True):
            value = values[name] = self.learn(ways)
            if type(value) in _SCALARS and limits[0] <= value <= limits[1] and value not in ALL_ONES:
                continue  # as good as each: this loop is a good part of a cycle
            values[name] = plausible(value, limits)
            if self._false or values[name] is not value:
                self._false = False
                self.implausible.add(name)
        return values

    def learn(self, ways: Sequence[Way]) -> Any:  # noqa: ANN401  the row knows the type
        """The value of the first way that is supported and has one."""
        for way in ways:
            value = way.value_for(self)
            if value is Absence.FAILED:
                return None
            if not isinstance(value, Absence):
                if value is None:
                    self._false = True
                return value
        return None

    def once(self, key: object, answer: Callable[[], Any]) -> Any:  # noqa: ANN401  pynvml is untyped
        """The result of `answer`, which is called once for each key."""
        if key in self.answers:
            return self.answers[key]
        result = self.answers[key] = Absence.UNSUPPORTED if key in self.device.unsupported else answer()
        return result

    def call(self, key: object, name: str, *args: object) -> Any:  # noqa: ANN401  as above
        """The answer of a function of pynvml about this device; `key` is what may turn out to be unsupported."""
        return self.ask(key, name, self.device.handle, *args)

    def ask(self, key: object, name: str, *args: object) -> Any:  # noqa: ANN401  as above
        """The answer of a function of pynvml, or an Absence."""
        return self.answer(key, name, lambda: getattr(nvml, name)(*args))

    def answer(self, key: object, name: str, ask: Callable[[], Any]) -> Any:  # noqa: ANN401  as above
        """What `ask` gives, or an Absence; `name` is the function that it calls."""
        try:
            return ask()
        except (AttributeError, nvml.NVMLLibraryMismatchError):  # an older binding, an older driver
            self.device.unsupported.add(key)
            return Absence.UNSUPPORTED
        except nvml.NVMLError as error:
            return self.judge(key, name, error.value)

    def judge(self, key: object, name: str, code: int) -> Absence:
        """What an error means for the value; raises if it concerns the whole GPU or driver."""
        if code in _UNSUPPORTED:
            self.device.unsupported.add(key)
            return Absence.UNSUPPORTED
        if code in _NOTHING:
            return Absence.NOTHING
        error = nvml.NVMLError(code)
        if code in LOST:
            raise GpuLostError(f"{name}: {error}") from error
        if code in DRIVER_GONE:
            raise error
        self.failure = self.failure or f"{name}: {error}"
        self.needs_reset = self.needs_reset or code == nvml.NVML_ERROR_RESET_REQUIRED
        return Absence.FAILED

    def entry(self, key: object, name: str, code: int) -> Absence:
        """What the return code of one entry of an answer means; an id newer than the driver is an invalid argument."""
        return self.judge(
            key, name, nvml.NVML_ERROR_NOT_SUPPORTED if code == nvml.NVML_ERROR_INVALID_ARGUMENT else code
        )


@dataclass(frozen=True, slots=True)
class Call(Way):
    """A value out of the answer of one function of pynvml, given the device and `args`."""

    name: str
    convert: Callable[[Any], Any]
    args: tuple[object, ...] = ()

    def value_for(self, visit: Visit) -> Any:  # noqa: ANN401  as above
        """Return the driver's answer, converted."""
        key = (self.name, self.args)
        answer = visit.once(key, lambda: visit.call(key, self.name, *self.args))
        return answer if isinstance(answer, Absence) else self.convert(answer)


# nvmlValueType_t in its order: double, unsigned, unsigned long, unsigned and signed long long, int, unsigned short.
_UNION = tuple(struct.Struct(member).unpack_from for member in ("@d", "@I", "@L", "@Q", "@q", "@i", "@H"))


def number(value_type: int, union: Any) -> Any:  # noqa: ANN401  pynvml is untyped
    """The member of an nvmlValue_t that its type names; None for a type to come."""
    return _UNION[value_type](union)[0] if value_type < len(_UNION) else None


@dataclass(frozen=True, slots=True)
class Field(Way):
    """A value of nvmlDeviceGetFieldValues; those of all rows of a table travel in one call."""

    id: int
    convert: Callable[[Any], Any]
    scope: int = 0

    @property
    def fields(self) -> tuple[FieldKey, ...]:
        """Return the key of this one field."""
        return ((self.id, self.scope),)

    def value_for(self, visit: Visit) -> Any:  # noqa: ANN401  as above
        """This field's entry, judged by its own return code."""
        key = (self.id, self.scope)
        if key in visit.device.unsupported:
            return Absence.UNSUPPORTED
        entries = visit.once("fields", lambda: _batch(visit))
        if isinstance(entries, Absence):
            return entries
        value_type, code, union = entries[key]
        if code != nvml.NVML_SUCCESS:
            return visit.entry(key, f"field {self.id}", code)
        value = number(value_type, union)
        return None if value is None else self.convert(value)


def _batch(visit: Visit) -> Any:  # noqa: ANN401  pynvml is untyped
    """The type, return code and union of each entry by its key."""
    device = visit.device
    wanted = tuple(key for key in visit.table.fields if key not in device.unsupported)
    batch = device.batches.get(visit.table)
    if batch is None or batch.wanted != wanted:
        batch = device.batches[visit.table] = FieldBatch(wanted)
    return visit.answer("fields", "nvmlDeviceGetFieldValues", lambda: batch.ask(device.handle))


@dataclass(frozen=True, slots=True)
class Each(Way):
    """One value for each label; a label without a known value is left out."""

    ways: Mapping[str, tuple[Way, ...]]

    @property
    def fields(self) -> tuple[FieldKey, ...]:
        """The fields of all labels."""
        return tuple(key for way in self._all() for key in way.fields)

    @property
    def gpm(self) -> tuple[int, ...]:
        """The metrics of all labels."""
        return tuple(metric for way in self._all() for metric in way.gpm)

    def value_for(self, visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        """The labels with a value; NOTHING without any."""
        values = {label: visit.learn(ways) for label, ways in self.ways.items()}
        return {label: value for label, value in values.items() if value is not None} or Absence.NOTHING

    def _all(self) -> Iterator[Way]:
        return (way for ways in self.ways.values() for way in ways)


@dataclass(frozen=True, slots=True)
class Total(Way):
    """The sum over all parts that have a value; not known if one of them failed."""

    parts: Sequence[tuple[Way, ...]]

    @property
    def fields(self) -> tuple[FieldKey, ...]:
        """The fields of all parts."""
        return tuple(key for ways in self.parts for way in ways for key in way.fields)

    def value_for(self, visit: Visit) -> Any:  # noqa: ANN401  the row knows the type
        """The sum; UNSUPPORTED if no part has a value."""
        found = [self._part(ways, visit) for ways in self.parts]
        if Absence.FAILED in found:
            return Absence.FAILED
        known = [value for value in found if not isinstance(value, Absence)]
        return sum(known) if known else Absence.UNSUPPORTED

    @staticmethod
    def _part(ways: tuple[Way, ...], visit: Visit) -> Any:  # noqa: ANN401  as above
        """The value of the first way that has one, FAILED if it should have."""
        for way in ways:
            value = way.value_for(visit)
            if value is Absence.FAILED or not (value is None or isinstance(value, Absence)):
                return value
        return Absence.NOTHING
