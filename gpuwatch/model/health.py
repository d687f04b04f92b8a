"""How well a GPU is, in the words of operators, judged in `gpuwatch.agent.health.verdict`; and its driver's XIDs.

XIDs are the numbers under which NVIDIA's driver reports errors of a GPU; each asks for something else.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from gpuwatch.model.bounds import BoundedText

OFF_THE_BUS = 79
RECOVERY_ACTION_CHANGED = 154
NVLINK_5 = range(144, 151)  # fatal or not: only the kernel log says which

CATALOGUE_SOURCE = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


class Health(StrEnum):
    """The verdict on a GPU, best first but for `unknown`."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"  # works, and something is wrong
    FAILING = "failing"  # is not to be given work
    UNKNOWN = "unknown"  # nothing is known against it, and nothing was read that could be


class Remedy(StrEnum):
    """What an operator is to do, weakest first."""

    NOTHING = "nothing"
    DRAIN = "drain"  # let the work end, then have a person or the driver see to it
    RESET = "reset"  # of the GPU; reloading the driver does it, too
    REBOOT = "reboot"
    REPLACE_HARDWARE = "replace_hardware"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: a stable code, a sentence, what to do, and where that is known from."""

    code: BoundedText
    health: Health
    sentence: BoundedText
    remedy: Remedy
    source: BoundedText


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """The verdict on one GPU; the first finding is what to act on. `since` is wall-clock time for people."""

    state: Health
    since: datetime | None
    findings: tuple[Finding, ...] = ()
    doubt: BoundedText | None = None  # why it is unknown

    @property
    def remedy(self) -> Remedy:
        """That of the first finding."""
        return self.findings[0].remedy if self.findings else Remedy.NOTHING


class XidSource(StrEnum):
    """The source of an XID report; several sources often report the same one."""

    NVML = "nvml"  # an event set
    KERNEL = "kernel"  # a line `NVRM: Xid (...): 79, ...`
    BUS = "bus"  # a line "fallen off the bus" without a number, repeated as long as the driver likes


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent:
    """The driver reported an error. `monotonic_seconds` is the host's monotonic clock, `at` wall-clock UTC.

    `fatal` is known of NVLINK_5 from the kernel log; `recovery_action` of RECOVERY_ACTION_CHANGED, by its number in
    `RECOVERY_ACTIONS`.
    """

    uuid: str
    xid: int
    at: datetime
    monotonic_seconds: float
    witness: XidSource
    fatal: bool | None = None
    recovery_action: int | None = None


class Severity(StrEnum):
    """What an XID says of the GPU."""

    CRITICAL = "critical"  # failing
    WARNING = "warning"  # degraded
    INFORMATION = (
        "information"  # nothing by itself: another XID, a counter or the recovery action follows if it matters
    )
    APPLICATION = "application"  # a program's fault; the GPU is well


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One row of the catalogue. The remedy is what to do where the driver itself names no remedy."""

    severity: Severity
    sentence: str
    remedy: Remedy = Remedy.NOTHING


def _critical(sentence: str, remedy: Remedy = Remedy.RESET) -> Xid:
    return Xid(severity=Severity.CRITICAL, sentence=sentence, remedy=remedy)


def _warning(sentence: str, remedy: Remedy = Remedy.NOTHING) -> Xid:
    return Xid(severity=Severity.WARNING, sentence=sentence, remedy=remedy)


def _information(sentence: str) -> Xid:
    return Xid(severity=Severity.INFORMATION, sentence=sentence)


def _application(sentence: str) -> Xid:
    return Xid(severity=Severity.APPLICATION, sentence=sentence)


def _nvlink_5(unit: str) -> Xid:
    return _critical(f"An NVLink failed in its unit {unit}; judged only where the kernel log calls it fatal.")


_STREAM = _application("A program's command stream was invalid or corrupted.")
_COPY = _application("A copy engine raised an exception in a program's work.")
_VIDEO = _application("A video engine raised an exception in a program's work.")
_JPEG = _application("A JPEG engine raised an exception in a program's work.")
_FLOW = _application("The optical flow engine raised an exception in a program's work.")
_ACCESS = _information("The driver made an access to the GPU that is not allowed.")
_FIRMWARE = _information("The driver's firmware reported an error that needs nothing done.")
_TEST = _information("A test message came over the management bus.")
_LEARNING = _information("A deep learning accelerator reported an error.")

# An XID that is not listed is counted and not judged: NVIDIA's catalogue does not use it, or sends to its support.
# Severities and remedies follow the catalogue's immediate actions.
XIDS: dict[int, Xid] = dict(
    sorted(
        {
            8: _application("The GPU stopped processing: a program's work did not end in time."),
            **dict.fromkeys((11, 25, 32), _STREAM),
            13: _application("A program's kernel raised an exception in the graphics engine."),
            31: _application("A program read or wrote an address that is not its own."),
            **dict.fromkeys((37, 38), _FIRMWARE),
            **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), _COPY),
            43: _application("The driver ended a program's work after a fault of that program."),
            44: _information("The graphics engine raised a fault while it switched between contexts."),
            45: _information("The driver cleaned up after an earlier error."),
            46: _critical("The GPU stopped processing and could not be brought back."),
            48: _critical("A memory error could not be corrected."),
            54: _critical("The board's auxiliary power is not connected.", Remedy.REBOOT),
            **dict.fromkeys((60, 68, 83, 84, 88, 89, 96, 97, 98), _VIDEO),
            61: _critical("An internal microcontroller stopped at a breakpoint."),
            62: _critical("An internal microcontroller halted."),
            63: _information("A memory page or row is set to be replaced at the next reset."),
            64: _critical("A memory page or row could not be set to be replaced."),
            **dict.fromkeys((66, 67), _ACCESS),
            69: _application("A program used a graphics class wrongly."),
            74: _critical("An NVLink failed."),
            79: _critical("The GPU has fallen off the bus.", Remedy.REBOOT),
            80: _application("Data that a program sent to the GPU was corrupted."),
            **dict.fromkeys((82, *range(99, 106)), _JPEG),
            **dict.fromkeys((86, 139), _FLOW),
            92: _information("Memory errors are being corrected at a high rate."),
            93: _information("The board's memory for its own records was written more often than it was made for."),
            94: _warning("A memory error could not be corrected; it was contained to the programs that it hit."),
            95: _critical("A memory error could not be corrected or contained."),
            **dict.fromkeys((106, 107), _TEST),
            109: _critical("A switch between contexts did not end in time."),
            110: _critical("A security fault was raised."),
            119: _critical("The GPU's system processor (GSP) does not answer."),
            120: _critical("The GPU's system processor (GSP) failed."),
            121: _information("An error of the link between GPU and CPU was corrected."),
            136: _critical("An NVLink could not be trained."),
            **dict.fromkeys((108, 137), _application("A program reached over NVLink for memory that is not its own.")),
            140: _critical("A memory error could not be recovered from."),
            141: _information("CUDA's fast path to the GPU reported an error."),
            143: _critical("The GPU could not be initialised."),
            144: _nvlink_5("SAW"),
            145: _nvlink_5("RLW"),
            146: _nvlink_5("TLW"),
            147: _nvlink_5("TREX"),
            148: _nvlink_5("NVLPW_CTRL"),
            149: _nvlink_5("NETIR"),
            150: _nvlink_5("MSE"),
            151: _critical("The keys of confidential computing could not be rotated.", Remedy.REBOOT),
            **dict.fromkeys((152, 153), _LEARNING),
            154: _information("The driver changed its recovery action, which is judged by itself."),
            155: _information(
                "An NVLink went down, perhaps on purpose, as for sleep; XID 154 says what is to be done."
            ),
            156: _critical("A part of the GPU is set to be retired at the next reset."),
            157: _information("A part of the GPU could not be set to be retired."),
            158: _critical("The GPU did not answer in time and cannot go on."),
            160: _information("A channel of the memory was retired."),
            161: _information("A channel of the memory could not be retired."),
            171: _information("A memory error of XID 48 was in the device memory."),
            172: _information("A memory error of XID 48 was in on-chip memory (SRAM)."),
        }.items()
    )
)
