"""A folder that stands in for a host's root: files are written only where they differ."""

import os
import shutil
from pathlib import Path

BEGIN_UNIX = 2_088_144_000  # 2036-03-03 08:00 UTC, a Monday: later than any file's change time on the testing machine


class Folder:
    """A root folder whose files are written only where they differ."""

    def __init__(self, root: Path) -> None:
        """Nothing is there yet."""
        self.root = root
        self._known: dict[str, bytes] = {}
        self.owned = os.geteuid() == 0

    def put(self, name: str, content: str | bytes, *, uid: int | None = None) -> None:
        """A file by its absolute name on the made host."""
        data = content.encode() if isinstance(content, str) else content
        if self._known.get(name) == data:
            return
        path = f"{self.root}{name}"
        if name not in self._known:
            self.folder(name.rpartition("/")[0])
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(opened, data)
        finally:
            os.close(opened)
        self._known[name] = data
        if uid is not None:
            self.give(name, uid)

    def link(self, name: str, target: str) -> None:
        """A symbolic link."""
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(target)

    def folder(self, name: str, *, uid: int | None = None) -> None:
        """An empty folder."""
        (self.root / name.lstrip("/")).mkdir(parents=True, exist_ok=True)
        if uid is not None:
            self.give(name, uid)

    def give(self, name: str, uid: int) -> None:
        """Its owner, where the player may set one."""
        if self.owned:
            os.chown(self.root / name.lstrip("/"), uid, uid, follow_symlinks=False)

    def drop(self, name: str) -> None:
        """A file or a folder with all in it."""
        path = self.root / name.lstrip("/")
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            self._known = {each: data for each, data in self._known.items() if not each.startswith(f"{name}/")}
        else:
            path.unlink(missing_ok=True)
            self._known.pop(name, None)
