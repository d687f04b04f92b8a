"""What the log says while no GPU can be read: one warning with the remedy for each cause, and one line at the end."""

import logging

from gpuwatch.agent.published import Trouble
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.clock import Clock

INIT_HANG = "init_hang"
_INIT_REMEDY = "look at `dmesg | grep NVRM`; the GPU that it names needs a reset, else the host a reboot"

_LOG = logging.getLogger(__name__)


class Outage:
    """From the first cycle without a driver to the first with a reading."""

    def __init__(self, clock: Clock) -> None:
        """Begin without an outage."""
        self._clock = clock
        self._logged: set[str] = set()
        self._since = 0.0

    def __bool__(self) -> bool:
        """Return whether the outage goes on."""
        return bool(self._logged)

    def note(self, cause: str, detail: str, remedy: str) -> None:
        """No GPU can be read, for this cause; the log has each cause once."""
        if not self._logged:
            self._since = self._clock.monotonic()
        if cause not in self._logged:
            self._logged.add(cause)
            _LOG.warning("no GPU can be read (%s): %s; %s. It is tried again without end", cause, detail, remedy)

    def init_hang(self, detail: str) -> Trouble:
        """The driver cannot be opened, because the call that does it does not return."""
        self.note(INIT_HANG, detail, _INIT_REMEDY)
        return Trouble(cause=INIT_HANG, detail=detail, remedy=_INIT_REMEDY)

    def note_reading(self) -> None:
        """A GPU was read."""
        if self._logged:
            lasted = format_duration(self._clock.monotonic() - self._since)
            self._logged.clear()
            _LOG.info("GPUs are read again, after %s", lasted)
