"""Where readings come from. Each source is one module, imported only when it is chosen."""

from typing import Protocol, runtime_checkable

from gpuwatch.model.gpu import GpuDown, GpuInfo, GpuReading

HUNG = "not read: it hung an earlier probe"


class DeviceSource(Protocol):
    """What the probe reads from. Calls may hang; the supervisor holds the deadline."""

    def gpus(self) -> tuple[GpuInfo, ...]:
        """The GPUs that are expected here, lost ones included.

        Raises:
            SourceUnavailableError: nothing can be read at all, for example because no driver is loaded.

        """
        ...

    def read(self, gpu: GpuInfo) -> GpuReading | GpuDown:
        """One reading, or why it is missing. Never a stale or invented value.

        Raises:
            SourceUnavailableError: the whole source failed, not this GPU alone.

        """
        ...

    def close(self) -> None:
        """Release the devices of this source."""
        ...


@runtime_checkable
class PacedSource(Protocol):
    """A source that does not read everything in each cycle; what it leaves out is shown as it was."""

    whole: bool  # whether all that verdicts rest on was read in the cycle that `gpus` began

    def hurry(self) -> None:
        """Read everything in the next cycle that verdicts rest on."""
        ...


@runtime_checkable
class EventSource(Protocol):
    """A source that also hears of errors between readings."""

    def events(self) -> tuple[tuple[str, int], ...]:
        """The uuid and XID of each error since the last call; never waits for one."""
        ...


class SourceUnavailableError(Exception):
    """No GPU can be read: `cause` is a stable code, `detail` the driver's words, `remedy` what a person can do."""

    def __init__(self, cause: str, detail: str, remedy: str) -> None:
        """Keep the three parts apart for metrics, logs and people."""
        super().__init__(f"{detail} ({remedy})")
        self.cause = cause
        self.detail = detail
        self.remedy = remedy
