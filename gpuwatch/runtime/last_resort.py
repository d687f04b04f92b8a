"""What a process says of an error that nothing else has caught: one line for people, a traceback for a daemon's log."""

import errno
import logging
import os
import sys
import traceback
from collections.abc import Mapping

from gpuwatch.runtime.printable import printable_text

VARIABLE = "GPUWATCH_TRACEBACK"  # set to anything: commands print the traceback, too
COULD_NOT = 2
_DAEMON_FAILED = 1  # the service manager starts a daemon again; 2 is for settings that a person must correct first
_DAEMONS = ("agent", "probe", "controller")
_OF_THE_MACHINE = {
    *(errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EMFILE, errno.ENFILE),
    *(errno.EIO, errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ESTALE, errno.ETXTBSY),
}
_LONGEST = 300  # characters of an error's own words


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
    words = words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"
    return f"{command}: unexpected error: {words}\nThis is a bug in gpuwatch. {more}; please report it."
