"""Log lines on standard error: for people (the journal takes their priority), or one JSON object each."""

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Literal

from gpuwatch.runtime.printable import legible

LogFormat = Literal["text", "json"]

_STDERR = 2
# syslog(3)'s numbers, as sd-daemon(3) wants them.
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (logging.NOTSET, 7))


def log_to_stderr(style: str, form: LogFormat) -> None:
    """Begin, or go on in another form. `style` is of `logging` and for people; the journal's clock serves it."""
    handler = logging.StreamHandler(sys.stderr)
    journal = _is_journal(os.environ.get("JOURNAL_STREAM", ""))
    if form == "json":
        lines: logging.Formatter = _Json()
    else:
        lines = _Text(style if journal else f"%(asctime)s {style}")
    handler.setFormatter(_Journal(lines) if journal else lines)
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _is_journal(stream: str) -> bool:
    """Whether standard error is the journal, which $JOURNAL_STREAM names by device and inode."""
    try:
        status = os.fstat(_STDERR)
    except OSError:
        return False
    return stream == f"{status.st_dev}:{status.st_ino}"


class _Text(logging.Formatter):
    """Lines for people. What others say in one never looks like another record: further lines are indented."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's lines; control characters are shown by their codes."""
        return "\n    ".join(map(legible, super().format(record).split("\n")))


class _Journal(logging.Formatter):
    """Each line begins with its priority, those of a traceback too."""

    def __init__(self, lines: logging.Formatter) -> None:
        """Wrap the lines of another formatter."""
        super().__init__()
        self._lines = lines

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record for the journal."""
        priority = next(number for level, number in _PRIORITIES if record.levelno >= level)
        return "\n".join(f"<{priority}>{line}" for line in self._lines.format(record).splitlines())


class _Json(logging.Formatter):
    """One object a line: time (UTC), level, logger, message; exception, the traceback, where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line; control characters, line ends and what is not ASCII are escaped."""
        document = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        return json.dumps(document)
