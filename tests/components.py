"""Real programs that tests start. Without one its tests are skipped; where CI=true they fail instead."""

import os
import shutil
from pathlib import Path

import pytest

# What each is for, and the Debian package that brings it.
PACKAGES = {"cc": "gcc libc6-dev", "prometheus": "prometheus", "promtool": "prometheus"}


def require(name: str) -> Path:
    """The program's path; skips the running test where it is missing, or fails it where CI=true."""
    found = shutil.which(name)
    if found is not None:
        return Path(found)
    sentence = f"`{name}` is not installed here (Debian package: {PACKAGES.get(name, name)})"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{sentence}, and CI must run every test", pytrace=False)
    pytest.skip(sentence)
