"""What programs of the administrator inherit: this process's environment without what is the agent's own."""

import os
from collections.abc import Mapping

_SYSTEMDS = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"})
_SETTINGS = "GPUWATCH_"  # they may hold hashes of passwords


def inherited() -> Mapping[str, str]:
    """Without the agent's settings, and without the way to tell systemd something in the agent's name."""
    return {
        name: value for name, value in os.environ.items() if name not in _SYSTEMDS and not name.startswith(_SETTINGS)
    }
