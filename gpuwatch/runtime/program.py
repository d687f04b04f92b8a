"""This program: which build runs, how it starts another process of itself, and what it says of an unexpected error."""

import errno
import logging
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

import gpuwatch
from gpuwatch.runtime.printable import printable_text

BUILD = ("version", "revision", "python_version")  # the labels of `_build_info`
_FILE = "revision.txt"  # beside gpuwatch/__init__.py; packaging/build_hook.py writes it, and the Dockerfile
_LONGEST_REVISION = 64


def build() -> tuple[str, str | None, str]:
    """The values of BUILD; the revision is None where it is not known."""
    return gpuwatch.__version__, _revision(), ".".join(str(part) for part in sys.version_info[:3])


def _revision() -> str | None:
    """The commit; the file may lie in a zip archive."""
    path = Path(gpuwatch.__file__).with_name(_FILE)
    read = getattr(gpuwatch.__loader__, "get_data", None)
    try:
        data: bytes = path.read_bytes() if read is None else read(str(path))
    except OSError:
        return None
    found = data.decode("ascii", "ignore").strip()
    return found if found.isalnum() and len(found) <= _LONGEST_REVISION else None


def own_command(*arguments: str) -> list[str]:
    """The command line of `gpuwatch ARGUMENTS`.

    An archive (zipapp, shiv, pex) or a folder that Python was given to run is run again: what lies in it cannot be
    imported by a fresh interpreter. Otherwise the package is, wherever this interpreter finds it; `-P` keeps it from
    finding one in the working directory.
    """
    spec = sys.modules["__main__"].__spec__
    if spec is not None and spec.name == "__main__" and spec.origin is not None:
        return [sys.executable, "-P", str(Path(spec.origin).parent.absolute()), *arguments]
    return [sys.executable, "-P", "-m", "gpuwatch", *arguments]


LEDGER_PATH = "/var/lib/gpuwatch/ledger.db"  # where the ledger is unless a setting says otherwise
VARIABLE = "GPUWATCH_TRACEBACK"  # set to anything: commands print the traceback, too
COULD_NOT = 2
_DAEMON_FAILED = 1  # the service manager starts a daemon again; 2 is for settings that a person must correct first
_DAEMONS = ("agent", "probe", "controller")
_OF_THE_MACHINE = {
    *(errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EMFILE, errno.ENFILE),
    *(errno.EIO, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ESTALE, errno.ETXTBSY),
}
_LONGEST_WORDS = 300  # characters of an error's own words


def report(error: Exception, command: str, environment: Mapping[str, str] = os.environ) -> int:
    """Print or log the error of a command (its first word); the result is the exit status."""
    if command in _DAEMONS:
        logging.getLogger("gpuwatch").critical(
            "The %s ends because of an error in gpuwatch itself. Please report it with these lines.",
            command,
            exc_info=error,
        )
        return _DAEMON_FAILED
    if environment.get(VARIABLE):
        sys.stderr.write(printable_text("".join(traceback.format_exception(error))))
    sys.stderr.write(printable_text(sentence(error, f"gpuwatch {command}".strip())) + "\n")
    return COULD_NOT


def sentence(error: Exception, command: str) -> str:
    """The error in one line: a bug of gpuwatch, and how to see more."""
    more = f"{VARIABLE}=1 {command} … prints the traceback"
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        place = f"{error.filename}: " if error.filename else ""
        return f"{command}: {place}{error.strerror}. ({more}.)"
    words = " ".join(f"{type(error).__name__}: {error}".split())
    words = words if len(words) <= _LONGEST_WORDS else f"{words[:_LONGEST_WORDS]}…"
    return f"{command}: unexpected error: {words}\nThis is a bug in gpuwatch. {more}; please report it."
