"""A computer on which nobody has been: the blocks of a page run there as they stand, in one shell, in order.

It has its own network, processes, /run, /etc/gpuwatch and home, no settings, and a Python environment in which only
what the page installs is there.
"""

import os
import re
import shlex
import subprocess
import sys
import venv
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from gpuwatch.runtime.installed import DISTRIBUTION
from tests.support.bare_install import needed
from tests.support.components import missing, require
from tests.support.paths import ROOT

_PATIENCE_SECONDS = 1800.0  # two minutes where nobody else computes
_NOBODY = 65534
_PIP = re.compile(r"^\$ pip install (.*?)(?:\s+#.*)?$", re.MULTILINE)


def steps(page: str) -> list[tuple[str, list[str]]]:
    """Each sh block with the lines that it shall print: those of the text block right after it."""
    found = re.findall(r"^```sh\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", page, re.MULTILINE | re.DOTALL)
    return [(block, text.splitlines()) for block, text in found]


def pattern(line: str) -> re.Pattern[str]:
    """A line of the page: `…` stands for anything, blanks for any blanks."""
    words = [".*" if word == "…" else re.escape(word) for word in re.findall(r"…|[^…\s]+|\s+", line.strip())]
    return re.compile(re.sub(r"(\\\s|\s)+", r"\\s+", "".join(words)))


def installed_by(page: str) -> list[Requirement]:
    """What the page's `$ pip install` lines bring; `.` is the clone."""
    words = [word.strip("'\"") for line in _PIP.findall(page) for word in line.split()]
    return [Requirement(re.sub(r"^\.", DISTRIBUTION, word)) for word in words]


def environment_with(requirements: list[Requirement], folder: Path) -> Path:
    """A Python environment with these and what they need, as installed here; gives its folder of programs."""
    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    seen: set[str] = set()
    for wanted in requirements:
        for name in needed(wanted.name.lower(), seen, frozenset(wanted.extras)):
            _link(name, site)
        for script in distribution(wanted.name).entry_points.select(group="console_scripts"):
            program = folder / "bin" / script.name
            call = f"import sys\nfrom {script.module} import {script.attr}\nsys.exit({script.attr}())\n"
            program.write_text(f"#!{folder}/bin/python\n{call}", encoding="utf-8")
            program.chmod(0o755)
    (site / "clone.pth").write_text(f"{ROOT}\n", encoding="utf-8")
    return folder / "bin"


def _link(name: str, site: Path) -> None:
    for file in distribution(name).files or ():
        if file.parts[0] in {"..", "__pycache__"} or file.suffix == ".pth":
            continue
        here = site / file.parts[0]
        if not here.exists():
            here.symlink_to(Path(str(distribution(name).locate_file(file.parts[0]))))


def played(
    blocks: list[str], folder: Path, programs: Path, *, at_root: bool = False, host: Mapping[str, str] | None = None
) -> tuple[list[str], int]:
    """What each block printed, in one shell with job control as a terminal has it, and the shell's exit status.

    `at_root`: the reader is root, where the tester is. `host`: variables of the reader's own, such as a cloud account.
    """
    marked = "".join(f"printf '\\n@ {number}\\n'\n{block}" for number, block in enumerate(blocks))
    home = folder / "home"
    home.mkdir(exist_ok=True)
    folder.chmod(0o711)
    script = folder / "typed"
    script.write_text(f"set -em\n{marked}", encoding="utf-8")
    root = os.geteuid() == 0
    reader = ""
    if root and not at_root:  # then the reader is somebody without rights
        os.chown(home, _NOBODY, _NOBODY)
        reader = f"{require('setpriv')} --reuid={_NOBODY} --regid={_NOBODY} --clear-groups"
    world = {"HOME": str(home), "LANG": "C.UTF-8", "PATH": f"{programs}:/usr/bin:/bin", **(host or {})}
    known = shlex.join(f"{name}={value}" for name, value in world.items())
    prepare = (
        f"set -e; {require('ip')} link set lo up; mount -t tmpfs -o mode=755 none /run; mount -t tmpfs none /var/lib; "
        f"{_readable([Path(sys.base_prefix), Path(sys.prefix).resolve(), ROOT, folder]) if root else ''}"
        f"cd {home}; exec {reader} env -i {known} bash {script}"
    )
    fences = [
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
        *([] if root else ["--map-root-user"]),
    ]
    if subprocess.run([require("unshare"), *fences, "true"], check=False, capture_output=True).returncode:
        missing("this machine lets nobody have a network of their own (`unshare --net`)")
    done = subprocess.run(
        [require("unshare"), *fences, "sh", "-c", prepare],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=_PATIENCE_SECONDS,
    )
    return re.split(r"^@ \d+\n", done.stdout, flags=re.MULTILINE)[1:] or [done.stdout], done.returncode


def _readable(folders: list[Path]) -> str:
    """Commands that let everybody reach these folders, though they lie in a folder of root's alone."""
    closed = {
        folder: next((each for each in reversed(folder.parents) if not each.stat().st_mode & 0o001), None)
        for folder in folders
    }
    kept = {folder: f"/run/kept{number}" for number, (folder, parent) in enumerate(closed.items()) if parent}
    lines = [f"mkdir {place}; mount --bind {folder} {place}; " for folder, place in kept.items()]
    lines += [f"mount -t tmpfs -o mode=755 none {each}; " for each in {each for each in closed.values() if each}]
    lines += [f"mkdir -p {folder}; mount --bind {place} {folder}; " for folder, place in kept.items()]
    return "".join(lines)
