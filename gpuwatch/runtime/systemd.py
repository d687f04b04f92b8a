"""How a service and its manager speak: signals, received in the main thread, and systemd's protocol (sd_notify(3))."""

import logging
import os
import signal
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

    It is also a sign of life: the restart takes seconds on a busy machine, and no work gives a sign then.
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


_ENDS = frozenset({signal.SIGTERM, signal.SIGINT})
_STDIN = 0


class SignalWaiter:
    """Create it in the main thread before other threads; `wait` returns when a signal has come.

    SIGTERM and SIGINT end the service. SIGHUP asks for new settings; in a terminal it means that the terminal is gone,
    and ends the service too.

    Python runs a signal's handler when its main thread gets to it, so a signal that comes right before that thread goes
    to sleep on a lock is not seen until something else wakes it. A byte in a socket cannot be missed.
    """

    def __init__(self) -> None:
        """Listen from now on."""
        self._socket, self._wakeup = socket.socketpair()
        self._wakeup.setblocking(False)  # noqa: FBT003  the method takes it so
        self._ends = _ENDS | {signal.SIGHUP} if os.isatty(_STDIN) else _ENDS
        for number in (*_ENDS, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)

    def wait(self) -> bool:
        """Sleep until a signal; True: this ends. False: the settings are to be read again."""
        while True:
            received = set(self._socket.recv(64))
            if received & self._ends:
                return True
            if signal.SIGHUP in received:
                return False
