"""Whether both container images build: where buildah, podman and mmdebstrap are, as `make container-test` does."""

import os
import shutil
import sys
from pathlib import Path

from tools.release.programs import run

_TOOLS = ("buildah", "podman", "runc", "mmdebstrap")


def check(folder: Path) -> str:
    """Build, run and test both, as `make container-test` does; one line with the result. Raises FailedError."""
    missing = [tool for tool in _TOOLS if not shutil.which(tool)]
    if missing or os.geteuid():
        reason = f"{', '.join(missing)} not installed here" if missing else "needs root"
        return f"left out: the images' builds were not checked: {reason} (make container-test)"
    run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "tests/integration/containers"],
        cwd=folder,
        env={**os.environ, "GPUWATCH_CONTAINERS": "real", "PYTHONPATH": str(folder)},
    )
    return "checked: both images build and run"
