"""Values made from files, and made again when the files change: certificates, passwords, lists of users.

After an unusable change the value before it stays in use, and the error is logged once.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

_LOG = logging.getLogger(__name__)

T = TypeVar("T")


class ReloadingFile(Generic[T]):
    """One value made from files. `value` costs a stat of each; any thread may ask."""

    def __init__(
        self, paths: Sequence[Path], make: Callable[[], T], version: Callable[[], object] = lambda: None
    ) -> None:
        """Make it a first time. `version` changes with what is in no file.

        Raises:
            OSError: as `make` does.
            ValueError: the same.

        """
        self._paths = tuple(paths)
        self._make = make
        self._lock = threading.Lock()
        self._version = version
        self._seen = self._signature()  # before the reading: what changes in between is seen next time
        self._value = make()

    @property
    def value(self) -> T:
        """The value of the files as they are, or as they last could be used."""
        with self._lock:
            seen = self._signature()
            if seen != self._seen:
                self._seen = seen
                names = ", ".join(map(str, self._paths))
                try:
                    self._value = self._make()
                except (OSError, ValueError) as error:
                    _LOG.warning("%s changed and cannot be used, the old content stays in force: %s", names, error)
                else:
                    _LOG.info("%s changed and was read again", names)
            return self._value

    def _signature(self) -> tuple[object, ...]:
        """The version of all its files."""
        return signatures(self._paths), self._version()


def signatures(paths: Sequence[Path]) -> tuple[tuple[int, ...] | None, ...]:
    """Differs when a file was replaced or changed; symbolic links are followed, because mounted secrets are links."""
    return tuple(map(_signature, paths))


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size
