"""Which build runs: the version, the Python, and the revision, if the build wrote that down."""

import sys
from pathlib import Path

import gpuwatch

BUILD = ("version", "revision", "python_version")  # the labels of `_build_info`
_FILE = "revision.txt"  # beside gpuwatch/__init__.py; `make shiv` and the Dockerfile write it
_LONGEST = 64


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
    return found if found.isalnum() and len(found) <= _LONGEST else None
