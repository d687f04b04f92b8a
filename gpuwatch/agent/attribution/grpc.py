"""One gRPC call with an empty request over a Unix socket: just enough HTTP/2, so that the agent carries no gRPC.

Of the answer only the message is read. Its headers are compressed with tables that we do without, so an error of the
server has no words here: it is an answer without a message. See docs/adr/0007-pod-resources.md.
"""

import socket
import struct
from pathlib import Path

from gpuwatch.runtime.clock import Clock

_MOST_BYTES = 16 * 1024 * 1024  # what the kubelet allows its own clients
_MOST_FRAME_BYTES = 16 * 1024  # RFC 9113 section 4.2: the limit unless a client raises it

# RFC 9113 section 6.
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
_ACK = _END_STREAM = 0x1
_END_HEADERS, _PADDED = 0x4, 0x8
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _INITIAL_WINDOW_SIZE = 1, 2, 4
_INITIAL_WINDOW_BYTES = 65_535
_STREAM = 1


class CallError(Exception):
    """The call brought no message; the text says why."""


class NoServerError(CallError):
    """The socket does not exist."""


def call(path: Path, method: str, timeout_seconds: float, clock: Clock) -> bytes:
    """The server's answer to an empty message; the whole call ends within the timeout.

    Raises:
        NoServerError: the socket does not exist.
        CallError: no server, no permission, no answer in time, no gRPC, or no message.

    """
    deadline = clock.monotonic() + timeout_seconds
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(str(path))
            connection.sendall(_request(method))
            return _message(_answer(_Frames(connection, deadline, clock)))
        except TimeoutError as error:
            raise CallError(f"no answer within {timeout_seconds:g} s") from error
        except FileNotFoundError as error:
            raise NoServerError(f"there is no {path}") from error
        except OSError as error:
            raise CallError(error.strerror or str(error)) from error


class _Frames:
    """Incoming frames, up to a deadline."""

    def __init__(self, connection: socket.socket, deadline: float, clock: Clock) -> None:
        self._connection = connection
        self._deadline = deadline
        self._clock = clock

    def next(self) -> tuple[int, int, int, bytes]:
        """Type, flags, stream and payload of the next frame."""
        head = self._exactly(9)
        size, (kind, flags, stream) = int.from_bytes(head[:3]), struct.unpack(">BBI", head[3:])
        if size > _MOST_FRAME_BYTES:
            raise CallError("the server does not speak HTTP/2")
        return kind, flags, stream & 0x7FFFFFFF, self._exactly(size)

    def send(self, frame: bytes) -> None:
        """Send one HTTP/2 frame."""
        self._connection.sendall(frame)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            left = self._deadline - self._clock.monotonic()
            if left <= 0:
                raise TimeoutError
            self._connection.settimeout(left)
            more = self._connection.recv(size - len(data))
            if not more:
                raise CallError("the connection ended before the answer")
            data += more
        return bytes(data)


def _request(method: str) -> bytes:
    """All frames of the client: settings, a window for the answer, one request with one empty message."""
    settings = {_HEADER_TABLE_SIZE: 0, _ENABLE_PUSH: 0, _INITIAL_WINDOW_SIZE: _MOST_BYTES}
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(
        (
            _PREFACE,
            _frame(_SETTINGS, 0, 0, b"".join(struct.pack(">HI", *setting) for setting in settings.items())),
            _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _MOST_BYTES - _INITIAL_WINDOW_BYTES)),
            _frame(_HEADERS, _END_HEADERS, _STREAM, b"".join(_literal(*header) for header in headers.items())),
            _frame(_DATA, _END_STREAM, _STREAM, struct.pack(">BI", 0, 0)),
        )
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """A header that enters no table (RFC 7541 section 6.2.2); both texts are shorter than 127 bytes."""
    return bytes((0, len(name))) + name.encode("ascii") + bytes((len(value),)) + value.encode("ascii")


def _answer(frames: _Frames) -> bytes:
    """The data of our stream, to its end."""
    body = bytearray()
    while True:
        kind, flags, stream, payload = frames.next()
        if kind in {_SETTINGS, _PING} and not flags & _ACK:
            frames.send(_frame(kind, _ACK, 0, payload if kind == _PING else b""))
        if stream != _STREAM:
            continue
        if kind == _RESET:
            raise CallError("the server broke off the call")
        if kind == _DATA:
            body += payload[1 : len(payload) - payload[0]] if flags & _PADDED and payload else payload
            if len(body) > _MOST_BYTES:
                raise CallError(f"the answer is larger than {_MOST_BYTES} bytes")
        if kind in {_DATA, _HEADERS} and flags & _END_STREAM:
            return bytes(body)


def _message(body: bytes) -> bytes:
    """The one message in the data, uncompressed because we offered no compression."""
    if not body:
        raise CallError("the server refuses the call or does not know it")
    if body[:5] != struct.pack(">BI", 0, len(body) - 5):
        raise CallError("the answer is not one whole message")
    return body[5:]
