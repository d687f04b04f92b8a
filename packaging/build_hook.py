"""Hatchling's hook: what is built from a clone holds the clone's commit, also what `pip install .` builds.

The release, the Dockerfile and `make shiv` write gpuwatch/revision.txt themselves.
"""

import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SECONDS = 10.0


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Write the clone's commit into the package; without git or a clone it is not known, and the build goes on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file. An editable installation has none: `gpuwatch version` asks the clone each time."""
        root = Path(self.root)
        if version == "editable" or not (root / ".git").exists() or (root / "gpuwatch/revision.txt").exists():
            return
        # The folder may be another user's, as with `sudo pip install .`; pip runs its code already.
        command = ["git", "-c", "safe.directory=*", "-C", str(root), "rev-parse", "HEAD"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)  # noqa: S603  ours
        except (OSError, subprocess.SubprocessError):
            return
        self._file().parent.mkdir(parents=True, exist_ok=True)
        self._file().write_text(done.stdout, encoding="ascii")
        build_data["force_include"][str(self._file())] = "gpuwatch/revision.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  hatchling's
        """Remove the file; the package has it."""
        self._file().unlink(missing_ok=True)

    def _file(self) -> Path:
        """Beside the package that is built, never in the clone's own folders."""
        return Path(self.directory) / "revision.txt"
