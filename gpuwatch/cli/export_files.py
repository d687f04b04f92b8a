"""How exported files reach the disk: all or none, and never over somebody's changes."""

import sys
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.cli.base import say


def write(folder: Path, files: Mapping[str, str], force: bool) -> None:
    """Write texts by their path below the folder, and say what became of each.

    Where one of them would change a file and `force` is not given, no file is written and the exit status is 2.
    """
    try:
        before = {name: _read(folder / name) for name in files}
        changed = [name for name, text in files.items() if before[name] not in {None, text.encode()}]
        if changed and not force:
            listed = "\n".join(f"  {folder / name}" for name in changed)
            say(f"Nothing was written. These files differ from what would be written:\n{listed}", err=True)
            say("To overwrite them, add --force. To compare, export into another folder.", err=True)
            sys.exit(2)
        for name, text in files.items():
            if before[name] != text.encode():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        say(f"{error.filename or folder} cannot be written: {error.strerror or error}", err=True)
        sys.exit(2)
    for name, text in files.items():
        became = "unchanged" if before[name] == text.encode() else "replaced" if name in changed else "written"
        say(f"{became:<9}  {folder / name}")


def _read(path: Path) -> bytes | None:
    """What is there now; None where there is no file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
