"""Clients that hold connections and ask for nothing in time, each from a loopback address of its own; a process.

`python -m tests.support.fakes.slow_clients PORT COUNT KIND` says `ready` when each has connected
once; who is cut comes again soon.
"""

import contextlib
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

from gpuwatch.runtime.clock import SystemClock

# What each says at first, and what it adds now and then.
KINDS = {
    "silent": (b"", b""),
    "dripping": (b"GET /metrics HTTP/1.1\r\nX-Slow: ", b"x"),
    "not reading": (b"GET /metrics HTTP/1.1\r\n\r\n" * 50, b""),
}
_PAUSE_SECONDS = 0.05
_AWAY_SECONDS = 1.0  # at least; up to five times that, each its own
_LITTLE_BYTES = 2048  # who reads nothing also has no room for what it is told


@contextlib.contextmanager
def slow_clients(url: str, count: int, kind: str) -> Iterator[None]:
    """So many, each connected at least once."""
    command = [sys.executable, "-m", "tests.support.fakes.slow_clients", str(urlsplit(url).port), str(count), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as crowd:
        try:
            assert crowd.stdout is not None
            assert crowd.stdout.readline() == "ready\n"
            yield
        finally:
            crowd.kill()


def _connect(number: int, port: int) -> socket.socket:
    """The client of that number, on its way."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _LITTLE_BYTES)
    client.settimeout(0)
    client.bind((f"127.1.{number // 250}.{number % 250 + 1}", 0))
    client.connect_ex(("127.0.0.1", port))
    return client


def _crowd(port: int, count: int, kind: str) -> None:
    first, more = KINDS[kind]
    clock, cut = SystemClock(), select.epoll()
    open_: dict[int, tuple[int, socket.socket]] = {}
    due, begun = dict.fromkeys(range(count), clock.monotonic()), False
    while True:
        new = {number for number, at in due.items() if at <= clock.monotonic()}
        for number in new:
            del due[number]
            client = _connect(number, port)
            open_[client.fileno()] = number, client
            cut.register(client, select.EPOLLRDHUP)
        clock.sleep(_PAUSE_SECONDS)
        for number, client in open_.values():
            with contextlib.suppress(OSError):
                client.send(first if number in new else more)
        if not begun:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            begun = True
        for descriptor, _ in cut.poll(0):
            number, client = open_.pop(descriptor)
            client.close()
            due[number] = clock.monotonic() + _AWAY_SECONDS * (1 + number % 40 / 10)


if __name__ == "__main__":
    _crowd(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
