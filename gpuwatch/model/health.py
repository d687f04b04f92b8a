"""How well a GPU is, in the words of operators. Judged in `gpuwatch.agent.health.verdict`."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


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

    code: str
    health: Health
    sentence: str
    remedy: Remedy
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """The verdict on one GPU; the first finding is what to act on. `since` is wall-clock time for people."""

    state: Health
    since: datetime | None
    findings: tuple[Finding, ...] = ()
    doubt: str | None = None  # why it is unknown

    @property
    def remedy(self) -> Remedy:
        """That of the first finding."""
        return self.findings[0].remedy if self.findings else Remedy.NOTHING
