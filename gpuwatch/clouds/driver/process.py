"""One run of a driver: its file is checked, its environment is small, its output is bounded, its end is certain.

The request is the only input, and it is written when the permit has been checked: a driver that gets no request is
killed before it can read one. The process has a group of its own, which is killed at its end and at the deadline.
timeout(1) stands before it: so the deadline also holds when gpuwatch itself ends in the middle of a change.
"""

import os
import selectors
import shutil
import signal
import stat
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gpuwatch.clouds.errors import CloudError, CloudUnavailableError, NotSentError
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.clock import SystemClock

MOST_OUTPUT_BYTES = 8 << 20
_MOST_ERROR_BYTES = 16 << 10
_MOST_REQUEST_BYTES = 48 << 10  # less than a pipe holds, so that writing it never waits
_BLOCK = 1 << 16
_LOOK_SECONDS = 1.0  # a machine that slept meanwhile has used up time that no wait counts
_GUARD_SECONDS = 0.2  # by which timeout(1) comes later than this process, where that is still there
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
NOT_RUN = "DriverNotRun"  # our own code: the executable is not fit to be run
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a driver ended: a negative status is the signal that killed it."""

    status: int
    output: bytes
    complaints: bytes


def check_executable(path: Path) -> os.stat_result:
    """What the file is, if nobody but root and this user can decide what runs.

    Raises:
        CloudError: it is not fit to be run; the message says what would be right.

    """
    trusted = {0, os.geteuid()}
    try:
        found = path.stat()
        parents = [(each, each.stat()) for each in path.resolve().parents]
    except OSError as error:
        raise CloudError(f"the driver {path} cannot be run: {error.strerror}", code=NOT_RUN) from None
    if not path.is_absolute() or not stat.S_ISREG(found.st_mode):
        raise CloudError(f"the driver {path} is not a file by its absolute path", code=NOT_RUN)
    if found.st_uid not in trusted:
        raise _unfit(path, f"it belongs to the user {found.st_uid}", "chown root")
    if found.st_mode & _OTHERS_WRITE:
        raise _unfit(path, "others than its owner can write it", "chmod go-w")
    for each, what in parents:
        shared = what.st_mode & stat.S_IWOTH and not what.st_mode & stat.S_ISVTX
        if what.st_uid not in trusted or shared:
            right = "put it into a folder of root's, such as /usr/local/lib/gpuwatch"
            raise _unfit(path, f"others can write its folder {each}", right)
    if not os.access(path, os.X_OK):
        raise _unfit(path, "it is not executable", "chmod +x")
    return found


def _unfit(path: Path, wrong: str, right: str) -> CloudError:
    return CloudError(f"the driver {path} is not run: {wrong}; {right}", code=NOT_RUN)


def environment_of(names: tuple[str, ...]) -> dict[str, str]:
    """What a driver gets of our environment."""
    given = {name: os.environ[name] for name in names if name in os.environ}
    return {"PATH": _PATH, "LC_ALL": "C.UTF-8", "TZ": "UTC"} | given


def run(
    path: Path, request: bytes, *, environment: Mapping[str, str], seconds: float, before: Callable[[], None]
) -> Ended:
    """Run a driver on a request to its end; `before` is called as the last thing before it gets the request.

    Raises:
        NotSentError: it could not be started, or the request is too long; it got no request.
        CloudUnavailableError: it missed its deadline, or wrote too much.

    """
    check_executable(path)
    if len(request) > _MOST_REQUEST_BYTES:
        raise NotSentError(f"the request to {path.name} is longer than {_MOST_REQUEST_BYTES} bytes", code=NOT_RUN)
    guard = shutil.which("timeout", path=_PATH)
    if guard is None:
        raise NotSentError("drivers need the program timeout of coreutils, which is not installed", code=NOT_RUN)
    try:
        child = subprocess.Popen(  # noqa: S603  without a shell, and no argument is from outside
            [guard, "--signal=KILL", f"{seconds + _GUARD_SECONDS:.3f}", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise NotSentError(f"the driver {path} cannot be started: {error.strerror}", code=NOT_RUN) from None
    try:
        before()
        return _Run(path, child, seconds).finish(request)
    finally:
        # Before it is waited for, its number is nobody else's.
        if child.returncode is None:
            _kill_group(child.pid)
        for pipe in (child.stdin, child.stdout, child.stderr):
            with suppress(OSError):
                _open_pipe(pipe).close()
        child.wait()


class _Run:
    """A driver that runs."""

    def __init__(self, path: Path, child: "subprocess.Popen[bytes]", seconds: float) -> None:
        self._path, self._child, self._seconds = path, child, seconds
        self._clock = SystemClock()  # a process lives in real time
        self._ends = self._clock.uptime() + seconds
        self._output, self._complaints = bytearray(), bytearray()

    def finish(self, request: bytes) -> Ended:
        """Give it its request, and read what it writes until it ends; what it leaves running is not waited for."""
        child = self._child
        with suppress(BrokenPipeError):  # it ended, or does not want to read
            os.write(_open_pipe(child.stdin).fileno(), request)
        _open_pipe(child.stdin).close()
        watched = os.pidfd_open(child.pid)
        try:
            with selectors.DefaultSelector() as ready:
                for pipe, kept in ((child.stdout, self._output), (child.stderr, self._complaints)):
                    os.set_blocking(_open_pipe(pipe).fileno(), False)
                    ready.register(_open_pipe(pipe).fileno(), selectors.EVENT_READ, kept)
                ready.register(watched, selectors.EVENT_READ, None)
                while self._read_some(ready):
                    pass
        finally:
            os.close(watched)
        for pipe, kept in ((child.stdout, self._output), (child.stderr, self._complaints)):
            while self._read(_open_pipe(pipe).fileno(), kept):
                pass
        _kill_group(child.pid)
        return Ended(status=child.wait(), output=bytes(self._output), complaints=bytes(self._complaints))

    def _read_some(self, ready: selectors.BaseSelector) -> bool:
        """Read what is there; False: it has ended."""
        found: list[tuple[selectors.SelectorKey, int]] = []
        while not found and (left := self._ends - self._clock.uptime()) > 0:
            found = ready.select(min(left, _LOOK_SECONDS))
        if not found:
            raise CloudUnavailableError(
                f"the driver {self._path.name} did not end within {format_duration(self._seconds)} and was killed",
                code="DriverTimeout",
            )
        ended = False
        for key, _ in found:
            if key.data is None:
                ended = True
            elif not self._read(key.fd, key.data):
                ready.unregister(key.fd)
        return not ended

    def _read(self, pipe: int, kept: bytearray) -> bool:
        """Read once; False: nothing more is there."""
        try:
            more = os.read(pipe, _BLOCK)
        except BlockingIOError:
            return False
        if kept is self._complaints:
            kept += more[: max(0, _MOST_ERROR_BYTES - len(kept))]
            return bool(more)
        kept += more
        if len(kept) > MOST_OUTPUT_BYTES:
            raise CloudUnavailableError(
                f"the driver {self._path.name} wrote more than {MOST_OUTPUT_BYTES >> 20} MiB", code="DriverOutput"
            )
        return bool(more)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _open_pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    """A pipe that was asked for is there."""
    assert pipe is not None  # noqa: S101  for the types
    return pipe
