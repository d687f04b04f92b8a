"""A cloud that fails on purpose, on loopback: what a driver makes of it, and how often it asks."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BROKEN, LOST, SILENT = "status 500", "a connection that ends without an answer", "no answer at all"


class Trap(ThreadingHTTPServer):
    """One address; `seen` has method, path and body of each request."""

    def __init__(self, how: str, hold_seconds: float) -> None:
        """Listen at once; a silent one ends the connection after a while."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.how, self.hold_seconds, self.released = how, hold_seconds, threading.Event()
        self.seen: list[tuple[str, str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def times_changed(self, node_id: str) -> int:
        """How many requests that are no reads name the machine."""
        return sum(method != "GET" and node_id in path + body for method, path, body in self.seen)


class _Handler(BaseHTTPRequestHandler):
    server: Trap

    def parse_request(self) -> bool:
        """Take any method, and keep no connection."""
        if super().parse_request():
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.server.seen.append((self.command, self.path, body.decode("utf-8", "replace")))
            if self.server.how == BROKEN:
                self.wfile.write(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}")
            elif self.server.how == SILENT:
                self.server.released.wait(self.server.hold_seconds)
        self.close_connection = True
        return False


@contextmanager
def trap(how: str, hold_seconds: float = 0.0) -> Iterator[Trap]:
    """One that answers so."""
    with Trap(how, hold_seconds) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
