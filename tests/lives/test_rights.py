"""The rights with which lives are played are those that ship, and close what the kernel closes."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lives.rights import (
    FILES,
    FOLDERS,
    IMAGE,
    LINKS,
    MANIFEST,
    PTRACE,
    ROOT,
    UNIT,
    Sight,
    granted_by_image,
    granted_by_pod,
    granted_by_unit,
    nobody,
)

_LOOKS = """
import os, sys
pid, closed = sys.argv[1], []
for name in sys.argv[2:]:
    path = f"/proc/{pid}/{name}"
    try:
        if os.path.islink(path):
            os.readlink(path)
        elif os.path.isdir(path):
            for each in os.listdir(path):
                os.readlink(f"{path}/{each}")
        else:
            with open(path, "rb") as file:
                file.read(1)
    except PermissionError:
        closed.append(name)
    except OSError:
        pass
print(*closed)
"""


def test_a_change_of_what_ships_changes_what_is_played() -> None:
    """The unit's, the chart's and the image's own words decide."""
    unit, pod, image = (path.read_text(encoding="utf-8") for path in (UNIT, MANIFEST, IMAGE))
    more = [line + " CAP_SYS_NICE" if "Capabilit" in line else line for line in unit.splitlines()]

    assert "CAP_SYS_NICE" in granted_by_unit("\n".join(more)).capabilities
    assert granted_by_unit(unit.replace("User=gpuwatch-agent", "User=root")).root
    assert not granted_by_unit(unit).root
    assert not granted_by_pod(pod).sees_programs
    as_root = pod.replace("runAsUser: 10001", "runAsUser: 0")
    added = as_root.replace("            drop:\n            - ALL\n", "            add:\n            - SYS_PTRACE\n")
    assert granted_by_pod(added).sees_programs
    assert not granted_by_image(image).root
    assert granted_by_image(image.replace("USER 10001:10001", "USER 0")).root


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="root gives a process another user")
def test_the_kernel_closes_the_same_of_another_users_process() -> None:
    """Each link, folder and file that lives play as closed; none of those that the agent rests on besides."""
    rested_on = ("stat", "status", "cmdline", "cgroup", "comm", "net/dev", "loginuid", "mountinfo")
    with subprocess.Popen(["sleep", "60"]) as other:
        looks = [sys.executable, "-c", _LOOKS, str(other.pid), *LINKS, *FOLDERS, *FILES, *rested_on]
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        found = subprocess.run([*user, *looks], capture_output=True, text=True, check=False, timeout=60, cwd="/")
        other.kill()
    assert found.returncode == 0, found.stderr
    assert set(found.stdout.split()) >= {*LINKS, *FOLDERS, *FILES} - {"stack"}  # which a kernel may not have
    assert not set(found.stdout.split()) & set(rested_on)


def test_root_sees_all_and_everybody_their_own(tmp_path: Path) -> None:
    """The agent's own process is open to it; another one is by the one right."""
    (tmp_path / "proc/7").mkdir(parents=True)
    (tmp_path / "proc/7/exe").symlink_to("/usr/bin/top")
    (tmp_path / "home/alice").mkdir(parents=True)
    allowed = granted_by_unit(f"User=x\nCapabilityBoundingSet={PTRACE}\nAmbientCapabilities={PTRACE}\n")

    for rights, own, opens in ((ROOT, 1, True), (nobody(), 7, True), (nobody(), 1, False)):
        with Sight(rights, tmp_path, own).applied():
            assert _opens(tmp_path / "proc/7/exe") is opens
            assert (tmp_path / "proc/7/exe").is_symlink()
    with Sight(nobody(), tmp_path, 1).applied(), pytest.raises(PermissionError):
        list((tmp_path / "home/alice").iterdir())
    assert allowed.sees_programs


def _opens(link: Path) -> bool:
    try:
        return bool(link.readlink())
    except PermissionError:
        return False
