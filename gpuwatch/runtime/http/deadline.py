"""One deadline for a whole answer. A socket's own time-out begins again with each byte that drips in.

Apart from `client.py`, for the agent loads no urllib.
"""

import io
import socket
from typing import TYPE_CHECKING

from gpuwatch.runtime.clock import Clock

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class TimedSocket(io.RawIOBase):
    """The receiving side of a connection, as what http.client takes for a socket."""

    def __init__(self, connection: socket.socket, clock: Clock, until: float) -> None:
        """`until` is the clock's monotonic time."""
        self._connection = connection
        self._clock = clock
        self._until = until

    def makefile(self, *_: object) -> io.BufferedReader:
        """The method of a socket that HTTPResponse calls."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Return True: the stream can always be read."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Some bytes, none at the end.

        Raises:
            TimeoutError: the deadline has passed.

        """
        self._connection.settimeout(seconds_left(self._clock, self._until))
        return self._connection.recv_into(memoryview(buffer))


def seconds_left(clock: Clock, until: float) -> float:
    """The time until the deadline.

    Raises:
        TimeoutError: it has passed.

    """
    left = until - clock.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left
