"""A socket at a path: whatever its clients do, the program that serves it ends when it is told to."""

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from socketserver import BaseRequestHandler

import pytest

from gpuwatch.runtime import unix_socket
from gpuwatch.runtime.unix_socket import UnixServer


class Slow:
    """A server whose first client is served until `go_on`."""

    def __init__(self, path: Path) -> None:
        begun, going = threading.Event(), threading.Event()

        class Handler(BaseRequestHandler):
            def handle(self) -> None:
                begun.set()
                going.wait(60)

        self.path, self.going = path, going
        self.server = UnixServer(path, Handler, mode=0o600, whose="controller")
        self.server.start()
        self.first = self.ask()
        assert begun.wait(60)

    def ask(self) -> socket.socket:
        """One more client."""
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.settimeout(0)
        with ExitStack() as refused:
            refused.push(closing(line))
            line.connect(str(self.path))
            refused.pop_all()
        return line


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    """The server, at work for its first client."""
    made = Slow(tmp_path / "x.sock")
    with closing(made.first):
        yield made
    made.going.set()


def test_clients_that_gave_up_in_a_full_queue_do_not_keep_it_from_ending(slow: Slow) -> None:
    """Their places in the queue stay taken, and nobody takes clients from it any more."""
    with suppress(BlockingIOError):
        for _ in range(1000):
            slow.ask().close()
    ending = threading.Thread(target=slow.server.close, daemon=True)
    ending.start()
    slow.going.set()
    ending.join(60)

    assert not ending.is_alive()
    assert not slow.path.exists()


def test_a_client_that_is_served_for_long_does_not_keep_it_from_ending(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that reloads, or is to end, makes no rounds meanwhile."""
    monkeypatch.setattr(unix_socket, "_END_SECONDS", 0.0)
    ending = threading.Thread(target=slow.server.close, daemon=True)
    ending.start()
    ending.join(60)

    assert not ending.is_alive()
    assert not slow.path.exists()
