"""A server in the place of AWS that is slow on purpose, and a cloud that sends to it."""

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from gpuwatch.clouds.aws.cloud import AwsCloud
from gpuwatch.runtime.clock import ManualClock
from tests.support.fakes.moto_faults import REGION

ANSWER = b"<StopInstancesResponse><instancesSet/></StopInstancesResponse>"


@dataclass(slots=True)
class Sink:
    """An endpoint on loopback that notes what it reads; `greets` happens when a connection is accepted, before TLS."""

    tls: ssl.SSLContext | None = None
    greets: Callable[[], object] = lambda: None
    requests: list[bytes] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)
    connections: int = 0
    _socket: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _thread: threading.Thread | None = None
    _served: socket.socket | None = None  # the connection of now, which its client may keep open

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        """Serve one connection after the other."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Serve no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        if self._served is not None:
            with suppress(OSError):  # it is closed already
                socket.socket.shutdown(self._served, socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(10)

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            self.greets()
            self._served = connection
            try:
                if self.tls is not None:
                    connection = self._served = self.tls.wrap_socket(connection, server_side=True)
                connection.settimeout(10)
                self._serve(connection)
            except OSError:
                pass
            finally:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        """Answer whole requests."""
        seen = b""
        while piece := connection.recv(65536):
            self.pieces.append(piece)
            seen += piece
            head, blank, body = seen.partition(b"\r\n\r\n")
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            length = int(lengths[0].partition(b":")[2]) if lengths else 0
            if blank and len(body) >= length:
                self.requests.append(seen)
                seen = b""
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER))


def cloud_at(url: str, clock: ManualClock) -> AwsCloud:
    """The real adapter on that endpoint."""
    return AwsCloud(fleet="lab", clock=clock, regions=[REGION], endpoint_url=url)
