"""What the probe says to its supervisor: JSON lines, one message each. A recorded stream is a capture.

A cycle is `cycle`, then `event` for each error reported since the last one, then `reading` or `down` for each GPU as
soon as it is read, then `end`: so the supervisor knows at which GPU a probe hangs. `unavailable` stands for a cycle in
which nothing can be read. Where the driver is opened or GPUs are looked for before a cycle, a `step` says what is about
to be done: that may hang, too.
"""

from typing import Literal

import msgspec

from gpuwatch.model.gpu import GpuDown, GpuInfo, GpuReading


class Step(msgspec.Struct, frozen=True, kw_only=True, tag="step", tag_field="kind"):
    """The probe is about to open the driver, or to look for one GPU; of that it says what is known before."""

    what: Literal["init", "gpu"]
    seq: int = 0  # steps are not counted
    index: int | None = None
    pci_bus_id: str | None = None
    uuid: str | None = None


class Cycle(msgspec.Struct, frozen=True, kw_only=True, tag="cycle", tag_field="kind"):
    """A cycle begins. `monotonic_seconds` is CLOCK_MONOTONIC, shared by all processes of the host."""

    seq: int
    monotonic_seconds: float
    gpus: tuple[GpuInfo, ...]


class Event(msgspec.Struct, frozen=True, kw_only=True, tag="event", tag_field="kind"):
    """The driver reported an error of one GPU since the last cycle."""

    seq: int
    uuid: str
    xid: int


class Reading(msgspec.Struct, frozen=True, kw_only=True, tag="reading", tag_field="kind"):
    """The reading of one GPU."""

    seq: int
    reading: GpuReading


class Down(msgspec.Struct, frozen=True, kw_only=True, tag="down", tag_field="kind"):
    """The failure to read one GPU."""

    seq: int
    down: GpuDown


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end", tag_field="kind"):
    """The cycle is complete; `duration_seconds` is what it cost.

    `whole`: all that verdicts rest on was read in it; else some of it is of an earlier cycle, a few seconds ago.
    """

    seq: int
    monotonic_seconds: float
    duration_seconds: float
    whole: bool = True


class Unavailable(msgspec.Struct, frozen=True, kw_only=True, tag="unavailable", tag_field="kind"):
    """Nothing can be read; see `SourceUnavailableError` for the parts."""

    seq: int
    monotonic_seconds: float
    cause: str
    detail: str
    remedy: str


Message = Step | Cycle | Event | Reading | Down | End | Unavailable

_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def encode(message: Message) -> bytes:
    """One line, newline included."""
    return _ENCODER.encode(message) + b"\n"


def decode(line: bytes) -> Message:
    """The message of one line.

    Raises:
        ValueError: the line is no message of this protocol; the text says where it breaks (msgspec.ValidationError).

    """
    try:
        return _DECODER.decode(line)
    except RecursionError as error:
        raise ValueError(f"it nests too deeply: {error}") from error
