"""A copy of the repository in which a test may change files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

FOLDERS = (
    "gpuwatch/",
    "tools/",
    "tests/",
    "docs/",
    "examples/",
    "alerts/",
    "deploy/helm/",
    "deploy/kustomize/",
    "pyproject.toml",
)
_CACHES = {"__pycache__", ".hypothesis", ".pytest_cache"}


class RepositoryCopy:
    """A copy of the repository that remembers what is changed in it."""

    def __init__(self, root: Path) -> None:
        """Copy what git tracks, and new files that it does not ignore."""
        self.root = root
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *FOLDERS],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        names = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
        # Bytecode of what nobody changes here: with the file's own time and size it holds, and saves half a minute.
        for folder in {Path(name).parent for name in names if name.endswith(".py")}:
            if (ROOT / folder / "__pycache__").is_dir():
                shutil.copytree(ROOT / folder / "__pycache__", root / folder / "__pycache__")
        self._before = self._files()

    def write(self, name: str, text: str) -> None:
        """A new file."""
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def insert(self, name: str, before: str, text: str) -> None:
        """Text of an existing file, put before the first place that reads so."""
        path = self.root / name
        head, found, tail = path.read_text(encoding="utf-8").partition(before)
        assert found, f"{name} has no {before!r}"
        path.write_text(head + text + found + tail, encoding="utf-8")

    def find(self, name: str) -> str:
        """The one file of that name."""
        (found,) = self.root.rglob(name)
        return found.relative_to(self.root).as_posix()

    def run(self, *arguments: str, **variables: str) -> str:
        """What Python prints; the modules are those of this copy."""
        done = subprocess.run(
            [sys.executable, "-P", *arguments],
            cwd=self.root,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        """That of a process that imports this copy."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUWATCH_", "PYTEST_"))}
        return {**kept, "PYTHONPATH": str(self.root)}

    def changes(self) -> set[str]:
        """The files that were written since the copy was made, or since the last call."""
        after = self._files()
        changed = {name for name, text in after.items() if self._before.get(name) != text}
        self._before = after
        return changed

    def _files(self) -> dict[str, bytes]:
        files = (path for path in self.root.rglob("*") if path.is_file() and not {*path.parts} & _CACHES)
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}
