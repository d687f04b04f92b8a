"""GPU messages of the kernel log: XIDs, GPUs off the bus, loads of the driver. Everything else is dropped unread.

Only lines of the kernel itself count, since anybody with access may write to /dev/kmsg. Of a line only numbers are
kept: the names of processes and all other words stay where they are.
"""

import logging
import os
import re
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass

from gpuwatch.model.health import NVLINK_5, OFF_THE_BUS, RECOVERY_ACTION_CHANGED, XidSource
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

_LONGEST_RECORD_BYTES = 1 << 14  # the kernel's own limit is half of it; a shorter buffer gets EINVAL
_WAIT_MILLISECONDS = 1000
_FACILITY_BITS = 3  # a record begins with its priority: the facility above these bits, where 0 is the kernel

PciAddress = tuple[int, int, int]  # domain, bus, device

_ADDRESS = r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?"
# NVRM: Xid (PCI:0000:05:00): 79, pid=...    NVRM: Xid (PCI:0000:05:00 GPU-I:05): 31, ...    NVRM: Xid (0000:03:00): 31
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?{_ADDRESS}(?: GPU-I:[0-9a-f]+)?\): (\d{{1,4}})\b(.*)", re.IGNORECASE)
# NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus and ...
# NVRM: GPU 0000:05:00.0: GPU has fallen off the bus.
_BUS = re.compile(rf"NVRM: (?:The NVIDIA )?GPU {_ADDRESS}\b.*?has fallen off the bus", re.IGNORECASE)
_NVLINK_5 = re.compile(r", \w+\s+(Nonfatal|Fatal)\b", re.IGNORECASE)
_ACTION = re.compile(r"recovery action changed from 0x[0-9a-f]+ .*?to 0x([0-9a-f]+)", re.IGNORECASE)
_LOADED = "NVRM: loading NVIDIA UNIX"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelXid:
    """An XID of the GPU at that address; fields as in `XidEvent`."""

    address: PciAddress
    xid: int
    witness: XidSource = XidSource.KERNEL
    fatal: bool | None = None
    recovery_action: int | None = None


@dataclass(frozen=True, slots=True)
class DriverLoaded:
    """The driver was loaded: earlier events are past."""


KernelEvent = KernelXid | DriverLoaded


def pci_address(text: str) -> PciAddress | None:
    """`00000000:05:00.0`, `0000:05:00` or `05:00` as numbers; None: not an address."""
    parts = text.split(".", 1)[0].split(":")
    try:
        numbers = [int(part, 16) for part in parts]
    except ValueError:
        return None
    match numbers:
        case [bus, device]:
            return 0, bus, device
        case [domain, bus, device]:
            return domain, bus, device
    return None


def parse(record: bytes) -> tuple[float, KernelEvent] | None:
    """A record of /dev/kmsg as seconds since boot and its GPU message; None: no such message, or another sender."""
    if b"NVRM: " not in record:
        return None
    prefix, _, words = record.decode(errors="replace").partition(";")
    try:
        priority, _, microseconds, *_ = prefix.split(",")
        facility, seconds = int(priority) >> _FACILITY_BITS, int(microseconds) / 1e6
    except ValueError:
        return None
    event = _event(words.partition("\n")[0].replace("\\x0aNVRM:", "").replace("\\x0a", " "))
    return None if facility != 0 or event is None else (seconds, event)


def _event(words: str) -> KernelEvent | None:
    """The XID or reload in a message, if any."""
    if words.startswith(_LOADED):
        return DriverLoaded()
    numbered, off_the_bus = _XID.match(words), _BUS.match(words)
    address = pci_address((numbered or off_the_bus or [""])[1]) if numbered or off_the_bus else None
    if address is None:
        return None
    if numbered is None:
        return KernelXid(address=address, xid=OFF_THE_BUS, witness=XidSource.BUS)
    xid, rest = int(numbered[2]), numbered[3]
    nvlink = _NVLINK_5.match(rest) if xid in NVLINK_5 else None
    action = _ACTION.search(rest) if xid == RECOVERY_ACTION_CHANGED else None
    return KernelXid(
        address=address,
        xid=xid,
        fatal=None if nvlink is None else nvlink[1].lower() == "fatal",
        recovery_action=None if action is None else int(action[1], 16),
    )


class KernelLog:
    """Follows a kernel log in a thread, from the oldest record that the kernel still has."""

    def __init__(self, path: str, clock: Clock, hear: Callable[[KernelEvent, float], None]) -> None:
        """`hear` gets each event with its time on the monotonic clock: the record's own for those before the start."""
        self._path = path
        self._clock = clock
        self._hear = hear
        self.caught_up = threading.Event()  # all that was there at the start has been read
        self._file = -1
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kmsg", daemon=True)

    def start(self) -> bool:
        """Begin; False, with the reason in the log, if there is no kernel log."""
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            words = "the kernel log %s cannot be read (%s), XIDs come from NVML alone: run as root or give CAP_SYSLOG"
            _LOG.warning(words, self._path, error.strerror)
            return False
        self._thread.start()
        return True

    def stop(self) -> None:
        """Stop within about a second."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * _WAIT_MILLISECONDS / 1000)

    def _run(self) -> None:
        """Read record by record; the first time without one, the past is over."""
        rest = b""
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        try:
            while not self._stopping.is_set():
                try:
                    chunk = os.read(self._file, _LONGEST_RECORD_BYTES)
                except BlockingIOError:
                    self.caught_up.set()
                    poll.poll(_WAIT_MILLISECONDS)
                    continue
                except BrokenPipeError:  # records were overwritten before they could be read; the next ones are there
                    continue
                if not chunk:  # a file, or a pipe without a writer
                    self.caught_up.set()
                    self._stopping.wait(_WAIT_MILLISECONDS / 1000)
                *lines, rest = (rest + chunk).split(b"\n")  # a read is one record, but for a pipe or a file
                rest = rest[-_LONGEST_RECORD_BYTES:]
                for line in lines:
                    self._take(line)
        except OSError as error:
            _LOG.warning("the kernel log %s cannot be read any more: %s", self._path, error.strerror)
        finally:
            os.close(self._file)

    def _take(self, line: bytes) -> None:
        """Pass on the message of a record. The record's clock drifts over weeks, so it counts only for the past."""
        parsed = parse(line)
        if parsed is not None:
            seconds, event = parsed
            now = self._clock.monotonic()
            self._hear(event, now if self.caught_up.is_set() else min(seconds, now))
