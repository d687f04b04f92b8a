"""Plays a capture: the recorded output of `gpuwatch probe`, so that other people's hardware can be read again.

Each GPU's part of a cycle comes out as it was recorded, its time stamps included; the cycle around it is the player's
own. A capture says nothing of speed: play it at the interval at which it was recorded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.agent.devices import SourceUnavailableError
from gpuwatch.agent.devices.messages import Cycle, Down, End, Event, Message, Reading, Step, Unavailable, decode
from gpuwatch.model.gpu import GpuDown, GpuInfo, GpuReading

CAPTURE_ENDED = "capture_ended"


class CaptureError(ValueError):
    """A capture that cannot be played; the text names file, line and reason."""


@dataclass(frozen=True, slots=True)
class _Recorded:
    """One whole cycle: what each GPU gave, or why nothing could be read."""

    gpus: tuple[GpuInfo, ...] = ()
    results: tuple[GpuReading | GpuDown, ...] = ()
    events: tuple[tuple[str, int], ...] = ()
    unavailable: Unavailable | None = None


class ReplaySource:
    """One recorded cycle for each call of `gpus()`; after the last the capture has ended."""

    def __init__(self, capture: Path) -> None:
        """Read the whole capture.

        Raises:
            CaptureError: it cannot be read, or a line of it is broken or out of place.

        """
        self._capture = capture
        cycles = list(_cycles(capture))
        if not cycles:
            raise CaptureError(f"{capture}: holds no whole cycle; record one with `gpuwatch probe > {capture}`")
        self._cycles = iter(cycles)
        self._results: dict[str, GpuReading | GpuDown] = {}
        self._events: tuple[tuple[str, int], ...] = ()

    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs of the next recorded cycle; a recorded `unavailable` and the capture's end are raised."""
        cycle = next(self._cycles, None)
        if cycle is None:
            detail = f"the capture {self._capture} has been played to its end"
            raise SourceUnavailableError(CAPTURE_ENDED, detail, "play it again, or record a longer one")
        if cycle.unavailable is not None:
            lost = cycle.unavailable
            raise SourceUnavailableError(lost.cause, lost.detail, lost.remedy)
        self._events = cycle.events
        self._results = {result.info.uuid: result for result in cycle.results}
        return cycle.gpus

    def read(self, gpu: GpuInfo) -> GpuReading | GpuDown:
        """What was recorded of this GPU in the cycle at hand."""
        return self._results[gpu.uuid]

    def events(self) -> tuple[tuple[str, int], ...]:
        """The errors that were recorded in the cycle at hand."""
        return self._events

    def close(self) -> None:
        """Do nothing: a capture holds no device."""


def _cycles(capture: Path) -> Iterator[_Recorded]:
    """The whole cycles in order; one that the end of the file cuts short is left out."""
    cycle: Cycle | None = None
    results: list[GpuReading | GpuDown] = []
    events: list[tuple[str, int]] = []
    for number, message in _messages(capture):
        where = f"{capture}:{number}"
        match message:
            case Step():  # how a probe came to its GPUs is its own affair
                continue
            case Cycle() if cycle is None:
                cycle, results, events = message, [], []
            case Event() if cycle is not None and message.seq == cycle.seq:
                _among(where, message.uuid, cycle)
                events.append((message.uuid, message.xid))
            case Unavailable():  # the driver may go in the midst of a cycle, which then has no end
                cycle = None
                yield _Recorded(unavailable=message)
            case Reading() | Down() if cycle is not None and message.seq == cycle.seq:
                result = message.reading if isinstance(message, Reading) else message.down
                _among(where, result.info.uuid, cycle)
                results.append(result)
            case End() if cycle is not None and message.seq == cycle.seq:
                if len({result.info.uuid for result in results}) != len(cycle.gpus):
                    raise CaptureError(f"{where}: cycle {cycle.seq} ends before each of its GPUs was read")
                yield _Recorded(gpus=cycle.gpus, results=tuple(results), events=tuple(events))
                cycle = None
            case _:
                kind = type(message).__name__.lower()
                state = "no cycle has begun" if cycle is None else f"cycle {cycle.seq} has not ended"
                raise CaptureError(f"{where}: `{kind}` of cycle {message.seq} is out of place: {state}")


def _among(where: str, uuid: str, cycle: Cycle) -> None:
    if uuid not in {gpu.uuid for gpu in cycle.gpus}:
        raise CaptureError(f"{where}: GPU {uuid} is not among those of its cycle {cycle.seq}")


def _messages(capture: Path) -> Iterator[tuple[int, Message]]:
    try:
        with capture.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                try:
                    yield number, decode(line)
                except ValueError as error:
                    raise CaptureError(f"{capture}:{number}: not a line of a probe: {error}") from error
    except OSError as error:
        raise CaptureError(
            f"{capture}: cannot be read: {error.strerror}; agent.capture (--capture) names it"
        ) from error
