"""How a service is told to end: SIGTERM or SIGINT, heard in the main thread without a race."""

import signal
import socket

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Ending:
    """Made in the main thread before anything is started; `wait` returns once either signal has come.

    Python runs a signal's handler when its main thread gets to it, so a signal that comes right before that thread goes
    to sleep on a lock is not seen until somebody else wakes it. A byte in a socket cannot be missed.
    """

    def __init__(self) -> None:
        """Listen from now on."""
        self._told, self._teller = socket.socketpair()
        self._teller.setblocking(False)  # noqa: FBT003  the method takes it so
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._teller.fileno(), warn_on_full_buffer=False)

    def wait(self) -> None:
        """Sleep until then."""
        while not set(self._told.recv(64)) & set(_SIGNALS):
            pass
