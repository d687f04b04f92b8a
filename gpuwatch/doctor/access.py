"""What this user may read and write, asked of the kernel and not tried."""

import os
from pathlib import Path


def may_write(path: Path) -> bool:
    """Whether this user may read and write it; in a folder, also make and remove files."""
    mode = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
    return os.access(path, mode, effective_ids=True)


def closed(path: Path) -> str | None:
    """Why that file or folder cannot be written or made; None: it can."""
    try:
        nearest = next((each for each in (path, *path.parents) if each.exists()), path)
    except PermissionError as error:
        return f"{error.filename} is closed to this user"
    return None if may_write(nearest) else f"{nearest} is closed to this user"
