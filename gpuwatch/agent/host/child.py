"""Runs another program for a signal: no shell, a deadline, and nothing of it left behind."""

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO

from gpuwatch.agent.host.protocol import UnseenError
from gpuwatch.model.knobs import format_duration

_REAP_SECONDS = 1.0  # a killed process ends at once, unless it sleeps in the kernel
_LARGEST_OUTPUT_BYTES = 1 << 20
_NOT_ITS_BUSINESS = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID"})


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
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_ITS_BUSINESS}
    # Into memory rather than pipes: what it leaves running cannot hold up who reads them.
    with _memory("stdout") as output, _memory("stderr") as complaints:
        try:
            child = subprocess.Popen(  # noqa: S603  what the administrator configured, without a shell
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=complaints,
                env=environment,
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise UnseenError(f"{argv[0]} could not be started: {error.strerror}") from None
        try:
            status = child.wait(deadline_seconds)
        except subprocess.TimeoutExpired:
            _kill_group(child.pid)
            with suppress(subprocess.TimeoutExpired):
                child.wait(_REAP_SECONDS)
            raise UnseenError(f"{argv[0]} did not end within {format_duration(deadline_seconds)}") from None
        _kill_group(child.pid)  # whatever it left running
        return Ended(
            status=status,
            output=os.pread(output.fileno(), _LARGEST_OUTPUT_BYTES, 0),
            complained=os.fstat(complaints.fileno()).st_size > 0,
        )


def _memory(name: str) -> BinaryIO:
    """A file that is nowhere but in memory."""
    return os.fdopen(os.memfd_create(name), "wb")


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
