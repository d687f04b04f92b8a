"""Runs another program: no shell, a deadline, and no process left behind."""

import math
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

from gpuwatch.model.duration import format_duration

_REAP_SECONDS = 1.0  # a killed process ends at once, unless it sleeps in the kernel
_LARGEST_OUTPUT_BYTES = 1 << 20
_POLL_SECONDS = 0.05
_MOST_READS = 64  # of what a pipe can hold; a program that writes faster waits
_SYSTEMD = frozenset({"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"})
_SETTINGS = "GPUWATCH_"  # they may hold hashes of passwords


class CommandError(Exception):
    """The program could not be started, missed its deadline or wrote too much; the message says which.

    `missing`: there is no such file.
    """

    missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a program ended: a negative status is the signal that killed it."""

    status: int
    output: bytes
    complaints: bytes  # what it wrote to standard error

    @property
    def complained(self) -> bool:
        """Whether it wrote to standard error."""
        return bool(self.complaints)


def inherited_environment() -> Mapping[str, str]:
    """This process's environment without the agent's settings and without its channel to systemd."""
    return {
        name: value for name, value in os.environ.items() if name not in _SYSTEMD and not name.startswith(_SETTINGS)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """The user that a program runs as, with the groups of that user and nothing else of this process's environment."""

    uid: int
    gid: int
    groups: Sequence[int]
    environment: Mapping[str, str]


def run(argv: Sequence[str], deadline_seconds: float, text: bytes = b"", *, user: RunAs | None = None) -> CommandResult:
    """Run a program to its end, in a process group that is killed afterwards.

    `text` is its standard input. Without `user` it runs as this process's; only root may name another one.

    Raises:
        CommandError: the program could not be started, missed its deadline, or wrote too much.

    """
    with _open_input(text) as given, _Pipe() as output, _Pipe() as complaints:
        try:
            child = subprocess.Popen(  # noqa: S603  without a shell
                argv,
                stdin=given,
                stdout=output.writing,
                stderr=complaints.writing,
                env=inherited_environment() if user is None else user.environment,
                cwd="/",
                start_new_session=True,
                user=None if user is None else user.uid,
                group=None if user is None else user.gid,
                extra_groups=None if user is None else user.groups,
            )
        except OSError as error:
            failed = CommandError(f"{argv[0]} could not be started: {error.strerror}")
            failed.missing = isinstance(error, FileNotFoundError | NotADirectoryError)
            raise failed from None
        try:
            status = _status(child, deadline_seconds, output, complaints)
        finally:
            _kill_group(child.pid)  # and all processes that it left running
            if child.returncode is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(_REAP_SECONDS)
        if status is None:
            raise CommandError(f"{argv[0]} did not end within {format_duration(deadline_seconds)}")
        output.read()
        complaints.read()
        if output.cut:
            raise CommandError(f"{argv[0]} wrote more than {_LARGEST_OUTPUT_BYTES} bytes")
        return CommandResult(status=status, output=bytes(output.data), complaints=bytes(complaints.data))


@contextmanager
def _open_input(text: bytes) -> Iterator[int]:
    """A descriptor to read the text from; no pipe, for it may hold less than the text."""
    if not text:
        yield subprocess.DEVNULL
        return
    try:
        opened = os.memfd_create("input")
    except OSError as error:
        raise CommandError(f"its input could not be kept: {error.strerror}") from None
    try:
        os.write(opened, text)
        os.lseek(opened, 0, os.SEEK_SET)
        yield opened
    finally:
        os.close(opened)


def _status(child: "subprocess.Popen[bytes]", deadline_seconds: float, *pipes: "_Pipe") -> int | None:
    """Its exit status; the pipes are read meanwhile. None: it missed its deadline."""
    for _ in range(math.ceil(deadline_seconds / _POLL_SECONDS)):
        try:
            return child.wait(_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            for pipe in pipes:
                pipe.read()
    return None


class _Pipe:
    """What a program writes on a pipe: the beginning is kept, the rest is read and dropped. Reading never waits.

    Processes that the program leaves running may hold the pipe open for as long as they like.
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

    def read(self) -> None:
        """Read what is there now, at most so much at once."""
        with suppress(BlockingIOError):
            for _ in range(_MOST_READS):
                more = os.read(self._reading, 1 << 16)
                room = _LARGEST_OUTPUT_BYTES - len(self.data)
                self.data += more[:room]
                self.cut |= len(more) > room


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
