"""How a service ends, or reads its settings again: signals, received in the main thread without a race."""

import os
import signal
import socket

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
