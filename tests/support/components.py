"""Real programs that tests start. Without one its tests are skipped; where CI=true they fail instead."""

import os
import shutil
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from tests.support.kubernetes_programs import PROGRAMS, built

# What each is for, and the Debian package that brings it.
PACKAGES = {
    "amtool": "prometheus-alertmanager",
    "atd": "at",
    "buildah": "buildah",
    "cc": "gcc libc6-dev",
    "chromium": "chromium",
    "cron": "cron",
    "crontab": "cron",
    "curl": "curl",
    "dpkg-deb": "dpkg",
    "ip": "iproute2",
    "ipmi_sim": "openipmi",
    "mmdebstrap": "mmdebstrap",
    "pg_ctl": "postgresql util-linux",
    "podman": "podman",
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "promtool": "prometheus",
    "runc": "runc",
    "screen": "screen",
    "sshd": "openssh-server",
    "systemd-analyze": "systemd",
    "systemd-nspawn": "systemd-container libpam-systemd dbus",
    "tmux": "tmux",
    "victoria-metrics": "victoria-metrics",
}
_OUTSIDE_PATH = sorted(str(folder) for folder in Path("/usr/lib/postgresql").glob("*/bin"))  # as Debian keeps them


def require(name: str) -> Path:
    """The program's path; skips the running test where it is missing, or fails it where CI=true.

    What is built from Go modules is used at the pinned version only, whatever else of that name is in PATH.
    """
    if name in PROGRAMS:
        if not built(name).exists():
            missing(f"`{name}` is not built here (`python3 tests/support/kubernetes_programs.py {name}`, with Go)")
        return built(name)
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_OUTSIDE_PATH]))
    if found is None:
        missing(f"`{name}` is not installed here (Debian package: {PACKAGES.get(name, name)})")
    return Path(found)


def loaded(module: str) -> ModuleType:
    """A module that needs a package of others, such as a cloud's SDK; without it the same."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing(f"{module} needs {error.name}, which is not installed here")


def missing(sentence: str) -> NoReturn:
    """Skip the running test, or fail it where CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{sentence}, and CI must run every test", pytrace=False)
    pytest.skip(sentence)
