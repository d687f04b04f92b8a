"""The kubelet's list of pods and devices, in a file for an agent that may not ask for it.

    python -m gpuwatch.agent.attribution.pod_list SOCKET FILE

Only root may connect to the kubelet's socket. This program does so and nothing else: it asks for the list, and writes
the kubelet's answer as it came. It takes no request, opens no port, and needs no capability. While the kubelet does not
answer, the file grows old, and the agent believes it no more.
"""

import contextlib
import os
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gpuwatch.agent.attribution.grpc import CallError, call
from gpuwatch.agent.attribution.pod_resources import METHOD, TIMEOUT_SECONDS, parse_list
from gpuwatch.runtime.clock import Clock, SystemClock
from gpuwatch.runtime.printable import printable_text

EVERY_SECONDS = 10.0
MOST_BYTES = 16 * 1024 * 1024
_OLDEST = timedelta(seconds=45)


def write_list(socket: Path, file: Path, clock: Clock) -> str | None:
    """Write the present list, whole or not at all; why that failed, as a clause."""
    try:
        message = call(socket, METHOD, TIMEOUT_SECONDS, clock)
        parse_list(message)
        new = file.with_name(f"{file.name}.new")
        new.write_bytes(message)
        new.chmod(0o644)
        new.replace(file)
    except (CallError, OSError, ValueError) as error:
        return f"the kubelet's list at {socket} cannot be read: {error}"
    return None


def read_list(file: Path, clock: Clock) -> bytes:
    """The newest list.

    Raises:
        CallError: the file is too old, too large, or cannot be read.

    """
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            message = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise CallError(f"{error.strerror}") from error
    age = clock.now() - datetime.fromtimestamp(status.st_mtime, UTC)
    if len(message) > MOST_BYTES or abs(age) > _OLDEST:
        raise CallError("the list is too large" if len(message) > MOST_BYTES else "the list is not renewed")
    return message


def main(words: list[str]) -> None:
    """Write the list every ten seconds, until the process is ended."""
    socket, file = map(Path, words)
    clock, wait, said = SystemClock(), threading.Event(), None
    while True:
        trouble = write_list(socket, file, clock)
        if trouble != said:
            with contextlib.suppress(OSError):
                sys.stderr.write(f"{printable_text(trouble or 'the list of the kubelet is written')}\n")
        said = trouble
        wait.wait(EVERY_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])
