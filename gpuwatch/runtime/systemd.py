"""The protocol of a systemd service (sd_notify(3)): ready, reloading, stopping, and a watchdog fed by work alone."""

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping

from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)
_LOOKS = 4  # within the watchdog's time: one look that comes late starves nobody
_MICRO = 1e-6
_SPARE = 2  # so many times the longest rest that the settings allow is no hang yet


def notify(state: str) -> None:
    """Say this to systemd, where it listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to_systemd:
            to_systemd.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
    except OSError as error:
        _LOG.warning("systemd was not told %s: %s", state.split("=", 1)[0], error)


def tell_reloading(clock: Clock) -> None:
    """Settings are being read again, and READY=1 will tell that it is over; by the time systemd knows which signal."""
    notify(f"RELOADING=1\nMONOTONIC_USEC={int(clock.monotonic() / _MICRO)}")


def watchdog_seconds(environment: Mapping[str, str], pid: int) -> float | None:
    """After how long without a sign of life systemd ends this process; None: it does not watch."""
    if environment.get("WATCHDOG_PID", str(pid)) != str(pid):
        return None
    told = environment.get("WATCHDOG_USEC", "")
    return int(told) * _MICRO if told.isdecimal() and int(told) else None


class Watchdog:
    """Tells systemd that work goes on whenever `progress`, a number that only work changes, has changed.

    A timer would go on telling so while the work hangs.
    """

    def __init__(self, progress: Callable[[], int], within: float | None = None, *, rests: float = 0.0) -> None:
        """Not started; `within` seconds, or what systemd asks for.

        `rests` are the seconds for which work that is in order may stand still: systemd is told to wait that out.
        """
        self._progress = progress
        self._within = watchdog_seconds(os.environ, os.getpid()) if within is None else within
        self._needed = _SPARE * rests
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin, where systemd watches."""
        if self._within is None:
            return
        if self._within < self._needed:
            self._within = self._needed
            notify(f"WATCHDOG_USEC={int(self._needed / _MICRO)}")
        self._thread.start()

    def stop(self) -> None:
        """No more signs of life."""
        self._ended.set()

    def _run(self) -> None:
        seen: int | None = None
        while self._within is not None and not self._ended.wait(self._within / _LOOKS):
            now = self._progress()
            if now != seen:
                seen = now
                notify("WATCHDOG=1")
