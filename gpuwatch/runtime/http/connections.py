"""Limits connections: how many at a time, for each client, and until when. If all are taken, slow clients are cut."""

import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter

from gpuwatch.runtime.clock import Clock

_NOTHING = b"Retry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
FULL = b"HTTP/1.1 503 Service Unavailable\r\n" + _NOTHING
GREEDY = b"HTTP/1.1 429 Too Many Requests\r\n" + _NOTHING


@dataclass(slots=True, kw_only=True)
class _Connection:
    """An open connection: its client, its deadline, and the answer that it gets if it is cut.

    `since` is when the server began to wait for it. A connection that the server does not wait for is not cut to make
    room: its thread has not run yet, or its request is being answered. Its `since` is None.
    """

    client: str
    until: float
    farewell: bytes
    since: float | None = None


class ConnectionLimiter:
    """The connections of a server; any thread may call any method."""

    def __init__(self, *, most: int, most_of_one: int, timeout_seconds: float, clock: Clock) -> None:
        """Begin without an open connection."""
        self._most, self._most_of_one = most, most_of_one
        self._timeout_seconds, self._clock = timeout_seconds, clock
        self._open: dict[socket.socket, _Connection] = {}
        self._lock = threading.Lock()

    @property
    def taken(self) -> list[socket.socket]:
        """Return the sockets of all connections."""
        with self._lock:
            return list(self._open)

    @property
    def late(self) -> list[socket.socket]:
        """Those past their deadline: they send nothing or too slowly, or do not read their answer."""
        now = self._clock.monotonic()
        with self._lock:
            return [connection for connection, visit in self._open.items() if now >= visit.until]

    def take(self, connection: socket.socket, client: str, *, plain: bool) -> bytes | None:
        """Admit a connection of that client; if there is no room, the answer to it.

        With `plain`, a connection that is cut to make room gets an answer; with TLS that is not possible.
        """
        with self._lock:
            held = Counter(visit.client for visit in self._open.values())
            if held[client] >= self._most_of_one:
                return GREEDY
            if len(self._open) >= self._most and not self._make_room(held):
                return FULL
            until = self._clock.monotonic() + self._timeout_seconds
            self._open[connection] = _Connection(client=client, until=until, farewell=FULL if plain else b"")
        return None

    def _make_room(self, held: Mapping[str, int]) -> bool:
        """Cut who has kept us waiting for longest, of the client that has most places; whether there was one."""
        waiting = [
            (-held[visit.client], visit.since, at) for at, visit in self._open.items() if visit.since is not None
        ]
        if not waiting:
            return False
        *_, longest = min(waiting, key=itemgetter(0, 1))
        farewell = self._open.pop(longest).farewell
        if farewell:
            with contextlib.suppress(OSError):
                longest.send(farewell, socket.MSG_DONTWAIT)
        cut(longest)
        return True

    def note_wrapped(self, connection: socket.socket, encrypted: socket.socket) -> None:
        """The place is now that of the same connection with TLS around it."""
        with self._lock:
            self._open[encrypted] = self._visit(connection)
            del self._open[connection]

    def listening(self, connection: socket.socket) -> None:
        """Whatever it wants, it should say now."""
        with self._lock:
            self._visit(connection).since = self._clock.monotonic()

    def working(self, connection: socket.socket) -> None:
        """Its request is read: it keeps its place until the answer is there."""
        with self._lock:
            self._visit(connection).since = None

    def answering(self, connection: socket.socket) -> None:
        """Its answer is being sent: it cannot get another one."""
        with self._lock:
            visit = self._visit(connection)
            visit.since, visit.farewell = self._clock.monotonic(), b""

    def again(self, connection: socket.socket) -> None:
        """It has its time for one more request."""
        with self._lock:
            visit = self._visit(connection)
            visit.since = self._clock.monotonic()
            visit.until = visit.since + self._timeout_seconds

    def leave(self, connection: socket.socket) -> None:
        """Its place is free."""
        with self._lock:
            self._open.pop(connection, None)

    def _visit(self, connection: socket.socket) -> _Connection:
        """What is known of a connection.

        Raises:
            ConnectionAbortedError: it had to make room for another.

        """
        if connection not in self._open:
            raise ConnectionAbortedError("cut, to make room for another")
        return self._open[connection]


def cut(connection: socket.socket) -> None:
    """End a connection under its thread's feet: reads return empty, writes fail."""
    with contextlib.suppress(OSError):
        # Not SSLSocket's own, which first takes the encryption away: the thread may be about to write.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
