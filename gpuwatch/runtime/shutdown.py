"""How a service is told to end, or to read its settings again: signals, heard in the main thread without a race."""

import os
import signal
import socket

_ENDS = frozenset({signal.SIGTERM, signal.SIGINT})
_STDIN = 0


class SignalWaiter:
    """Made in the main thread before anything is started; `wait` returns once a signal has come.

    SIGTERM and SIGINT end. SIGHUP asks for new settings, but where a person started this in a terminal: there it says
    that the terminal is gone, and ends too.

    Python runs a signal's handler when its main thread gets to it, so a signal that comes right before that thread goes
    to sleep on a lock is not seen until somebody else wakes it. A byte in a socket cannot be missed.
    """

    def __init__(self) -> None:
        """Listen from now on."""
        self._told, self._teller = socket.socketpair()
        self._teller.setblocking(False)  # noqa: FBT003  the method takes it so
        self._ends = _ENDS | {signal.SIGHUP} if os.isatty(_STDIN) else _ENDS
        for number in (*_ENDS, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._teller.fileno(), warn_on_full_buffer=False)

    def wait(self) -> bool:
        """Sleep until a signal; True: this ends. False: the settings are to be read again."""
        while True:
            heard = set(self._told.recv(64))
            if heard & self._ends:
                return True
            if signal.SIGHUP in heard:
                return False
