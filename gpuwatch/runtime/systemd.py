"""The protocol of a systemd service (sd_notify(3)): ready, reloading, stopping, and a watchdog."""

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping

from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)
_LOOKS = 4  # within the watchdog's time: one late look does no harm
_MICRO = 1e-6
_SPARE = 2  # so many times the longest rest that the settings allow is no hang yet


def notify(state: str) -> None:
    """Send a state to systemd, if it listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to_systemd:
            to_systemd.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
    except OSError as error:
        _LOG.warning("systemd did not receive %s: %s", state.split("=", 1)[0], error)


def notify_reloading(clock: Clock) -> None:
    """Announce a reload, which READY=1 ends; the time lets systemd match it to its signal.

    It is a sign of life, too: a busy machine takes seconds to begin again, in which the work gives none.
    """
    notify(f"RELOADING=1\nMONOTONIC_USEC={int(clock.monotonic() / _MICRO)}\nWATCHDOG=1")


def watchdog_seconds(environment: Mapping[str, str], pid: int) -> float | None:
    """After how long without a sign of life systemd ends this process; None: it does not watch."""
    if environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) * _MICRO if text.isdecimal() and int(text) else None


class Watchdog:
    """Sends systemd a sign of life whenever `progress` has changed, a number that only work changes.

    A timer would go on sending it while the work hangs.
    """

    def __init__(self, progress: Callable[[], int], within: float | None = None, *, rests: float = 0.0) -> None:
        """Not started; `within` seconds, or what systemd asks for.

        `rests` are the seconds that healthy work may pause for; systemd waits at least that long.
        """
        self._progress = progress
        self._within = watchdog_seconds(os.environ, os.getpid()) if within is None else within
        self._needed = _SPARE * rests
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start, if systemd watches."""
        if self._within is None:
            return
        if self._within < self._needed:
            self._within = self._needed
            notify(f"WATCHDOG_USEC={int(self._needed / _MICRO)}")
        self._thread.start()

    def stop(self) -> None:
        """Send no more signs of life."""
        self._ended.set()

    def _run(self) -> None:
        seen: int | None = None
        while self._within is not None and not self._ended.wait(self._within / _LOOKS):
            now = self._progress()
            if now != seen:
                seen = now
                notify("WATCHDOG=1")
