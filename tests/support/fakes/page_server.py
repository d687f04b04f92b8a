"""A real server on loopback with a page that counts requests, as vLLM has one."""

import socket
import threading
from collections.abc import Callable
from contextlib import closing

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n"


def page(requests: int = 0, running: int = 0) -> bytes:
    """What a vLLM server shows."""
    return f'vllm:request_success_total{{m="a"}} {requests}\nvllm:num_requests_running {running}\n'.encode()


class PageServer:
    """A real server on loopback that answers every request with the bytes it is told to, and hangs up."""

    def __init__(self, port: int = 0) -> None:
        """On that port; 0: on any free one."""
        self.raw: bytes | Callable[[socket.socket], None] = HEAD + page()
        self.asked: list[bytes] = []
        self.listens_first = True
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        """Its page."""
        return f"http://127.0.0.1:{self.port}/metrics"

    def shows(self, requests: int = 0, running: int = 0) -> None:
        """What its page says from now on."""
        self.raw = HEAD + page(requests, running)

    def stop(self) -> None:
        """Listen no more."""
        if self._thread.is_alive():
            self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with closing(connection):
                connection.settimeout(5)
                if self.listens_first:
                    self.asked.append(connection.recv(65536))
                try:
                    if callable(self.raw):
                        self.raw(connection)
                    else:
                        connection.sendall(self.raw)
                except OSError:
                    continue  # the other end has had enough
