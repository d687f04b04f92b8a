"""Programs of others that a release runs; what they print is shown only where they fail."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class FailedError(Exception):
    """A program failed, or is not installed; the message has its command and what it printed."""


def run(command: Sequence[str | Path], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> bytes:
    """What it writes to its standard output. Raises FailedError."""
    program = shutil.which(command[0])
    if program is None:
        raise FailedError(f"{command[0]} is not installed here")
    done = subprocess.run([program, *command[1:]], cwd=cwd, env=env, capture_output=True, check=False)  # noqa: S603  fixed commands
    if done.returncode:
        said = (done.stderr + done.stdout).decode(errors="replace").strip()
        raise FailedError(f"{' '.join(map(str, command))} ends with {done.returncode}: {said[-2000:]}")
    return done.stdout
