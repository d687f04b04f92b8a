"""`gpuwatch probe`: reads GPUs and says what it read, in a process that can be killed when a driver call hangs.

Standard output carries the lines of `agent/devices/messages.py`, each flushed at once. The exit status says how it
ended:

  0  The reader is gone, the capture has ended, --cycles are done, or --once has printed a reading.
  1  --once could read no GPU. The reason and what to do are on standard error.
  2  Wrong arguments, a capture or script that cannot be played, or a capture that cannot be written.
  3  Only a fresh process can reach the driver: its library was replaced while this one has the old one mapped.
     A process that never reached it waits 30 s before that, because the next one would fare no better at once

SIGTERM and SIGINT end it at once, even inside a driver call.
"""

import math
import os
import select
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from gpuwatch.agent.devices import HUNG, DeviceSource, EventSource, PacedSource, SourceUnavailableError
from gpuwatch.agent.devices.messages import Cycle, Down, End, Event, Message, Reading, Step, Unavailable, encode
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo, GpuReading
from gpuwatch.model.metric import GROUP_NAMES, GroupName
from gpuwatch.runtime.clock import Clock, SystemClock
from gpuwatch.runtime.flags import Flags, wrong_value

if TYPE_CHECKING:
    from argparse import ArgumentParser

NOTHING_READ = 1
BAD_ARGUMENTS = 2
NEEDS_FRESH_PROCESS = 3

_PATIENCE_SECONDS = 30.0
_ROUNDING = 1e-6  # of an interval: a cycle at its tick must not seem to be before it
_SPACING_SECONDS = 0.15  # between two cycles: GPM needs 0.1 s from sample to sample


def _auto(arguments: SimpleNamespace, clock: Clock) -> DeviceSource:
    from gpuwatch.agent.devices.buses import drivers_here  # noqa: PLC0415  only the chosen source is loaded

    return SOURCES[drivers_here(arguments.root)](arguments, clock)


def _nvml(arguments: SimpleNamespace, clock: Clock) -> DeviceSource:
    from gpuwatch.agent.devices.nvml.source import NvmlSource  # noqa: PLC0415  as above

    known = {info.uuid: info for info in arguments.known}
    return NvmlSource(
        clock,
        arguments.metrics,
        barred=[known.pop(uuid) for uuid in arguments.skip if uuid in known],
        known=known.values(),
        attach=not arguments.no_attach,
        root=arguments.root,
        tell=_print_message if arguments.steps else _keep_quiet,
    )


def _amdsmi(arguments: SimpleNamespace, clock: Clock) -> DeviceSource:
    from gpuwatch.agent.devices.amd import AmdSource  # noqa: PLC0415  as above
    from gpuwatch.agent.devices.amd.library import quiet_output  # noqa: PLC0415  as above

    quiet_output()
    return AmdSource(
        clock,
        arguments.metrics,
        barred=[info for info in arguments.known if info.uuid in arguments.skip],
        root=arguments.root,
        tell=_print_message if arguments.steps else _keep_quiet,
    )


def _both(arguments: SimpleNamespace, clock: Clock) -> DeviceSource:
    """Each driver hears of its own GPUs alone, by their places."""
    from gpuwatch.agent.devices.both import BothSources  # noqa: PLC0415  as above
    from gpuwatch.agent.devices.buses import amd_bus_ids  # noqa: PLC0415  as above

    of_amd = {*amd_bus_ids(arguments.root)}
    parts = [SimpleNamespace(**vars(arguments)) for _ in range(2)]
    for part, amd in zip(parts, (False, True), strict=True):
        part.known = [info for info in arguments.known if (info.pci_bus_id in of_amd) is amd]
    return BothSources((_nvml(parts[0], clock), _amdsmi(parts[1], clock)), clock)


def _keep_quiet(_: Step) -> None:
    """Steps are for the supervisor."""


def _replay(arguments: SimpleNamespace, _: Clock) -> DeviceSource:
    from gpuwatch.agent.devices.replay import ReplaySource  # noqa: PLC0415  as above

    if arguments.capture is None:
        raise ValueError("--source replay needs --capture FILE, a recorded output of `gpuwatch probe`")
    return ReplaySource(arguments.capture)


def _simulated_source(arguments: SimpleNamespace, clock: Clock) -> DeviceSource:
    from gpuwatch.agent.devices.simulated import open_simulated  # noqa: PLC0415  as above

    return open_simulated(arguments.script, arguments.seed, clock)


SOURCES: dict[str, Callable[[SimpleNamespace, Clock], DeviceSource]] = {
    "auto": _auto,
    "nvml": _nvml,
    "amdsmi": _amdsmi,
    "both": _both,
    "replay": _replay,
    "simulated": _simulated_source,
}


def sample(source: DeviceSource, seq: int, clock: Clock, skip: Collection[str] = ()) -> Iterator[Message]:
    """The messages of one cycle, each as soon as it is known; GPUs with a uuid in `skip` are not touched."""
    begin = clock.monotonic()
    try:
        gpus = source.gpus()
        yield Cycle(seq=seq, monotonic_seconds=begin, gpus=gpus)
        for uuid, xid in source.events() if isinstance(source, EventSource) else ():
            yield Event(seq=seq, uuid=uuid, xid=xid)
        for gpu in gpus:
            result = _skipped_gpu(gpu, clock) if gpu.uuid in skip else source.read(gpu)
            yield Reading(seq=seq, reading=result) if isinstance(result, GpuReading) else Down(seq=seq, down=result)
    except SourceUnavailableError as error:
        yield Unavailable(
            seq=seq,
            monotonic_seconds=clock.monotonic(),
            cause=error.cause,
            detail=error.detail,
            remedy=error.remedy,
        )
        return
    end = clock.monotonic()
    whole = not isinstance(source, PacedSource) or source.whole
    yield End(seq=seq, monotonic_seconds=end, duration_seconds=end - begin, whole=whole)


def _skipped_gpu(gpu: GpuInfo, clock: Clock) -> GpuDown:
    return GpuDown(info=gpu, at=clock.now(), cause=DownCause.HANG, detail=HUNG)


def ticks(interval_seconds: float, clock: Clock, asked: Callable[[float], bool] = lambda _: False) -> Iterator[bool]:
    """Tick now and at each whole interval after; a late cycle skips ticks, but shifts none.

    `asked` waits so many seconds and returns True as soon as a cycle is asked for: that one comes in between. A tick
    that would follow it too closely is skipped. Each tick says whether it was asked for.
    """
    start, tick = clock.monotonic(), 0
    spacing = min(_SPACING_SECONDS, interval_seconds)

    def upcoming() -> int:
        return math.floor((clock.monotonic() - start) / interval_seconds + _ROUNDING) + 1

    while True:
        began = clock.monotonic()
        yield False
        tick = max(tick + 1, upcoming())
        while asked(start + tick * interval_seconds - clock.monotonic()):
            clock.sleep(began + spacing - clock.monotonic())
            began = clock.monotonic()
            yield True
            tick = max(tick, upcoming(), math.ceil((began + spacing - start) / interval_seconds - _ROUNDING))
        clock.sleep(start + tick * interval_seconds - clock.monotonic())


class Requests:
    """Cycles that the agent asks for, each by a byte on standard input."""

    def __init__(self, clock: Clock, descriptor: int = 0) -> None:
        """Nothing is read before the first wait."""
        self._clock = clock
        self._descriptor = descriptor
        self._open = True

    def wait(self, seconds: float) -> bool:
        """Whether a cycle is asked for within that time. Requests that came together count once."""
        if not self._open:
            return False
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, seconds))
        if not ready:
            return False
        self._open = bool(os.read(self._descriptor, 4096))  # empty: the agent is gone
        return self._open


def main(argv: Sequence[str]) -> int:
    """Run the probe; the result is the exit status."""
    taken = _flags()
    arguments = taken.parse(argv)
    if arguments.once and (arguments.record or arguments.cycles):
        taken.error("--once prints readings and no cycle: leave it out, or --record and --cycles")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)  # a Python handler would wait for a driver call that hangs
    clock = SystemClock()
    try:
        source = SOURCES[arguments.source](arguments, clock)
        say = _print_message if arguments.record is None else _recorder(arguments.record)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"gpuwatch probe: {error}\n")
        return BAD_ARGUMENTS
    try:
        return _once(source, clock) if arguments.once else _stream(source, clock, arguments, say)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered has no reader
        return 0
    finally:
        source.close()


def _once(source: DeviceSource, clock: Clock) -> int:
    readings, sentence = (
        0,
        "there is no GPU on this host (`nvidia-smi -L` or `amd-smi list` shows those that a driver knows)",
    )
    for message in sample(source, 0, clock):
        match message:
            case Reading() | Down():
                _print_message(message)
                readings += isinstance(message, Reading)
                sentence = (
                    "no GPU could be read (each line above says why; `dmesg | grep -e NVRM -e amdgpu` may say more)"
                )
            case Unavailable():
                sentence = f"{message.detail} ({message.remedy})"
                readings = 0
    if readings == 0:
        sys.stderr.write(f"gpuwatch probe: {sentence}\n")
    return NOTHING_READ if readings == 0 else 0


def _stream(source: DeviceSource, clock: Clock, arguments: SimpleNamespace, say: Callable[[Message], None]) -> int:
    patient_until = clock.monotonic() + _PATIENCE_SECONDS
    asked = Requests(clock).wait if arguments.on_request else lambda _: False
    for seq, hurried in enumerate(ticks(arguments.interval, clock, asked)):
        if hurried and isinstance(source, PacedSource):
            source.hurry()
        for message in sample(source, seq, clock, arguments.skip):
            say(message)
            match message:
                case End():
                    patient_until = clock.monotonic()
                case Unavailable(cause="version_mismatch") if clock.monotonic() >= patient_until:
                    return NEEDS_FRESH_PROCESS
                case Unavailable(cause="capture_ended"):
                    return 0
        if seq + 1 == arguments.cycles:
            return 0
    raise AssertionError("time has ended")


def _print_message(message: Message) -> None:
    sys.stdout.buffer.write(encode(message))
    sys.stdout.buffer.flush()


def _recorder(path: Path) -> Callable[[Message], None]:
    from gpuwatch.agent.devices.capture import Recorder  # noqa: PLC0415  loaded for a recording only

    recorder = Recorder(path)
    sys.stderr.write(f"gpuwatch probe: records into {path}, serial numbers and UUIDs masked, until it is ended\n")
    return recorder.say


def flags() -> "ArgumentParser":
    """The flags of `gpuwatch probe`."""
    return _flags().parser()


def _flags() -> Flags:
    taken = Flags(
        prog="gpuwatch probe",
        description="Read the GPUs of this host as JSON lines; `gpuwatch top` has them for people.",
    )
    taken.add("--once", action="store_true", help="print one reading for each GPU and end")
    taken.add("--interval", type=_seconds, default=1.0, metavar="SECONDS", help="from cycle to cycle (1)")
    taken.add("--cycles", type=_count, metavar="N", help="end after so many")
    taken.add("--record", type=Path, metavar="FILE", help="write a capture, names masked, and print nothing")
    taken.add("--source", choices=SOURCES, default="auto", help="where readings come from (auto)")
    taken.add("--capture", type=Path, metavar="FILE", help="replay: a recorded output of this command")
    taken.add("--script", type=Path, metavar="FILE", help="simulated: what the GPUs do")
    taken.add("--seed", type=int, default=0, metavar="N", help="simulated: the same seed gives the same (0)")
    taken.add("--on-request", action="store_true", help="also begin a cycle for each byte on standard input")
    taken.add(
        "--metrics", type=_groups, default=GROUP_NAMES, metavar="GROUPS", help="read for these, with commas (all)"
    )
    taken.add("--steps", action="store_true", help="also say what is about to be opened, as it may hang")
    taken.add("--skip", action="append", default=[], metavar="UUID", help="do not read this GPU; repeatable")
    taken.add(
        "--known",
        action="append",
        default=[],
        type=_place,
        metavar="UUID=INDEX=BUS",
        help="where a GPU is: one with --skip, too, is then not touched at all; repeatable",
    )
    taken.add("--no-attach", action="store_true", help="open NVML without attaching GPUs, then one by one")
    taken.add("--root", type=Path, default=Path("/"), metavar="DIR", help="where /proc and /sys are (/)")
    return taken


def _groups(text: str) -> frozenset[GroupName]:
    named = frozenset(filter(None, text.split(",")))
    unknown = sorted(named - {*GROUP_NAMES})
    if unknown:
        raise wrong_value(f"{unknown[0]!r} is not a group of metrics; groups are {', '.join(GROUP_NAMES)}")
    return frozenset(name for name in GROUP_NAMES if name in named)


def _place(text: str) -> GpuInfo:
    uuid, _, rest = text.partition("=")
    index, _, bus = rest.partition("=")
    if not uuid or not (index or bus) or not (index == "" or index.isdecimal()):
        raise wrong_value(
            f"{text!r} is not UUID=INDEX=BUS, of which INDEX or BUS may be empty, such as GPU-6a=3=00000000:8D:00.0"
        )
    return GpuInfo(uuid=uuid, index=int(index) if index else None, pci_bus_id=bus or None)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise wrong_value(f"{text!r} is not a whole number above 0, such as 60")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (0 < seconds < math.inf):
        raise wrong_value(f"{text!r} is not a number of seconds above 0, such as 1 or 0.5")
    return seconds
