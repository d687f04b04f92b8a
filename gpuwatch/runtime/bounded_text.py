"""Text files that people name, with a bound: /dev/zero, a disk image or a packed bomb must not fill the memory."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

MOST_CHARACTERS = 64 << 20  # of a file that is held as a whole
MOST_IN_A_LINE = 1 << 20
_GZIP = b"\x1f\x8b"


def text_of(path: Path, *, encoding: str = "utf-8-sig") -> str:
    """A whole file.

    Raises:
        OSError: it cannot be read, or holds more than that; `strerror` has the reason.
        UnicodeDecodeError: it is not text in that encoding.

    """
    with path.open(encoding=encoding) as file:
        text = file.read(MOST_CHARACTERS + 1)
    if len(text) > MOST_CHARACTERS:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_CHARACTERS >> 20} MiB", str(path))
    return text


@contextmanager
def table_lines(path: Path) -> Iterator[Iterator[str]]:
    """Lines of a table, packed by gzip or not; it is opened once, as a pipe may be.

    Raises:
        OSError: it cannot be read, or a line is too long; `strerror` has the reason.
        EOFError: its end is missing; zlib.error: it is damaged.
        UnicodeDecodeError: it is not UTF-8.

    """
    import gzip  # noqa: PLC0415  the agent reads settings by this module, and needs no gzip

    with path.open("rb") as raw:
        packed = raw.peek(2)[:2] == _GZIP
        with (
            gzip.GzipFile(fileobj=raw) if packed else raw as binary,
            TextIOWrapper(binary, encoding="utf-8-sig", newline="") as lines,
        ):
            yield _read_lines(lines)


def _read_lines(file: TextIO) -> Iterator[str]:
    """The lines of an open file, one after the other.

    Raises:
        OSError: one of them is too long to be of a table; `strerror` says which.

    """
    number = 0
    while line := file.readline(MOST_IN_A_LINE + 1):
        number += 1
        if len(line) > MOST_IN_A_LINE:
            raise OSError(errno.EFBIG, f"line {number} is longer than {MOST_IN_A_LINE >> 20} MiB; is it a table?")
        yield line
