"""Silence of a fake cloud: its client gives up at once, by the error of its own time-out.

Short time-outs would take a slow answer of a busy machine for silence, and real ones would cost 20 seconds each. So the
clients keep their own, and where no answer is going to come, the wait for it ends as it would when they are over.
"""

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

_LONGEST_SECONDS = 60.0  # a client that waits longer, or for ever, is at fault
_wait_for_answer = http.client.HTTPConnection.getresponse
_waiting: dict[int, socket.socket] = {}  # connections of this process, by their own ports
_silent: set[int] = set()


@contextmanager
def no_answer_to(port: int) -> Iterator[None]:
    """Within, the client at this port of ours hears nothing more."""
    _silent.add(port)
    try:
        if (sock := _waiting.get(port)) is not None:
            with suppress(OSError):
                socket.socket.shutdown(sock, socket.SHUT_RD)  # not TLS's own, which would send a farewell
        yield
    finally:
        _silent.discard(port)


def _getresponse(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
    sock = connection.sock
    if sock is None or sock.family not in {socket.AF_INET, socket.AF_INET6}:
        return _wait_for_answer(connection)
    port = sock.getsockname()[1]
    _waiting[port] = sock
    try:
        if port not in _silent:
            return _wait_for_answer(connection)
    except (OSError, http.client.HTTPException):
        if port not in _silent:
            raise
    finally:
        del _waiting[port]
    seconds = sock.gettimeout()
    assert seconds is not None, "this client would wait for ever"
    assert seconds <= _LONGEST_SECONDS, f"this client would wait for {seconds} s"
    raise TimeoutError("timed out")


@contextmanager
def heard_at_once() -> Iterator[None]:
    """Within, every client of this process that meets silence gives up at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http.client.HTTPConnection, "getresponse", _getresponse)
        yield
