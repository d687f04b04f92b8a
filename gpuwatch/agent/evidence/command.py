"""Runs another program for a signal: no shell, a deadline, and nothing of it left behind."""

import math
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from gpuwatch.agent.environment import inherited
from gpuwatch.agent.evidence.base import UnseenError
from gpuwatch.model.duration import format_duration

_REAP_SECONDS = 1.0  # a killed process ends at once, unless it sleeps in the kernel
_LARGEST_OUTPUT_BYTES = 1 << 20
_LOOK_SECONDS = 0.05
_MOST_READS = 64  # of what a pipe can hold; who writes faster waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended: a negative status is the signal that killed it."""

    status: int
    output: bytes
    complained: bool  # it wrote to standard error


def run(argv: Sequence[str], deadline_seconds: float) -> Ended:
    """Run it to its end in a process group of its own, which is killed with it.

    Raises:
        UnseenError: it could not be started, or missed its deadline.

    """
    with _Heard() as output, _Heard() as complaints:
        try:
            child = subprocess.Popen(  # noqa: S603  what the administrator configured, without a shell
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output.writing,
                stderr=complaints.writing,
                env=inherited(),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise UnseenError(f"{argv[0]} could not be started: {error.strerror}") from None
        try:
            status = _ended(child, deadline_seconds, output, complaints)
        finally:
            _kill_group(child.pid)  # and whatever it left running
            if child.returncode is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_REAP_SECONDS)
        if status is None:
            raise UnseenError(f"{argv[0]} did not end within {format_duration(deadline_seconds)}")
        output.hear()
        complaints.hear()
        if output.cut:
            raise UnseenError(f"{argv[0]} said more than {_LARGEST_OUTPUT_BYTES} bytes")
        return Ended(status=status, output=bytes(output.data), complained=bool(complaints.data))


def _ended(child: "subprocess.Popen[bytes]", deadline_seconds: float, *pipes: "_Heard") -> int | None:
    """Its status, once it has ended; what it says is heard meanwhile. None: it missed its deadline."""
    for _ in range(math.ceil(deadline_seconds / _LOOK_SECONDS)):
        try:
            return child.wait(_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            for pipe in pipes:
                pipe.hear()
    return None


class _Heard:
    """What a program says on a pipe: its begin is kept, the rest is read and dropped, and it is never waited for.

    What the program leaves running may hold the pipe open for as long as it likes.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.cut = False
        self._reading, self.writing = os.pipe()

    def __enter__(self) -> Self:
        os.set_blocking(self._reading, False)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._reading)
        os.close(self.writing)

    def hear(self) -> None:
        """All that is there now, or as much of it as is dropped at once."""
        with suppress(BlockingIOError):
            for _ in range(_MOST_READS):
                more = os.read(self._reading, 1 << 16)
                room = _LARGEST_OUTPUT_BYTES - len(self.data)
                self.data += more[:room]
                self.cut |= len(more) > room


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
