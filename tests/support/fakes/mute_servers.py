"""Servers on loopback that do not answer: nobody listens, no word is said, the connection is closed."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def nobody() -> Iterator[int]:
    """A port that refuses connections: it is bound, and nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


@contextmanager
def silence() -> Iterator[int]:
    """A port that accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@contextmanager
def hanging_up() -> Iterator[int]:
    """A port that closes every connection at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


UNREACHABLE: dict[str, Callable[[], AbstractContextManager[int]]] = {
    "nobody listens": nobody,
    "it never answers": silence,
    "it hangs up": hanging_up,
}
