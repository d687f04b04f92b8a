"""Runs a command and ends whatever it leaves running: `python -m tests.support.contained pytest ...`.

Processes whose parent has died are handed to this one (Linux: PR_SET_CHILD_SUBREAPER), also those of a test worker that
was killed. What still runs when the command is over is named and ended, and the run has failed.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from gpuwatch.runtime.clock import SystemClock

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
_GRACE_SECONDS = 20.0  # for what is already on its way to its end
_LEFT_SOMETHING = 97  # as an exit status of its own, where the command itself succeeded


def contained(command: Sequence[str], grace_seconds: float = _GRACE_SECONDS) -> int:
    """Run it to its end, and end its descendants; gives its exit status, or another one if any had to be ended."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    main = subprocess.Popen(command)

    def forward(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(main.pid, number)

    # The terminal sends Ctrl-C to the command as well; a second one from here would cut its summary short.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, forward)
    status = _reap_until(main.pid)
    left = _still_running(grace_seconds)
    for pid, what in left.items():
        sys.stderr.write(f"ERROR: process {pid} was left running by the tests and is ended now: {what}\n")
    _end_all()
    return status if status or not left else _LEFT_SOMETHING


def _reap_until(pid: int) -> int:
    """Wait for that child, and for every orphan that dies meanwhile; gives the child's exit status."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code


def _still_running(grace_seconds: float) -> dict[int, str]:
    """Descendants that do not end by themselves within the grace period, with their command lines."""
    clock = SystemClock()
    deadline = clock.monotonic() + grace_seconds
    while _children() and clock.monotonic() < deadline:
        clock.sleep(0.05)
        _reap()
    return {pid: _command_line(pid) for pid in _descendants()}


def _end_all() -> None:
    """Kill them all; the children of those that are killed first become our own, so it may take several turns."""
    while found := _descendants():
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        SystemClock().sleep(0.01)
        _reap()


def _reap() -> None:
    """Take note of the children that are dead."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _children(pid: int | None = None) -> list[int]:
    """The living and dead children of a process; of this one by default."""
    tasks = Path(f"/proc/{pid or os.getpid()}/task").glob("*/children")
    found: list[int] = []
    for task in tasks:
        with contextlib.suppress(OSError):
            found += map(int, task.read_text(encoding="ascii").split())
    return found


def _descendants() -> list[int]:
    """Children, their children, and so on."""
    found, new = [], _children()
    while new:
        found += new
        new = [child for pid in new for child in _children(pid)]
    return found


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone by now"


if __name__ == "__main__":
    sys.exit(contained(sys.argv[1:]))
