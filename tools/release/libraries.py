"""Locked libraries for several Pythons in one folder: compiled files are named by their Python, others are equal."""

import filecmp
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.release.programs import run
from tools.release.source import ROOT

GLIBC = "2.28"  # RHEL 8's; every system with systemd 247 has a newer one
_PLATFORMS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}
_UNUSED = {"RECORD", "INSTALLER", "REQUESTED", "WHEEL", "direct_url.json"}  # of one Python each, and read by installers


class MixedError(Exception):
    """Two installations of a library differ in a file that they share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Libraries and gpuwatch itself."""

    agent: Path  # gpuwatch and what requirements/agent.lock has
    controller: Path  # what requirements/controller.lock has besides


def pythons() -> tuple[str, ...]:
    """Versions of Python that are supported, the oldest first: the classifiers of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    prefix = "Programming Language :: Python :: 3."
    return tuple(each.rpartition(" ")[2] for each in project["classifiers"] if each.startswith(prefix))


def build(uv: Path, wheel: Path, architecture: str, folder: Path) -> Tree:
    """Install both locks for every supported Python and merge them; uv checks every hash."""
    tree = Tree(agent=folder / "app", controller=folder / "controller")
    whole = folder / "whole"
    for lock, target in (("agent", tree.agent), ("controller", whole)):
        for python in pythons():
            one = folder / f"{lock}-{python}"
            _install(uv, ROOT / f"requirements/{lock}.lock", python, _PLATFORMS[architecture], one)
            merge(one, target)
            shutil.rmtree(one)
    only(whole, tree.agent, tree.controller)
    shutil.rmtree(whole)
    shutil.unpack_archive(wheel, tree.agent, format="zip")
    return tree


def merge(source: Path, target: Path) -> None:
    """Move an installation into a folder that may have the same libraries for another Python.

    Raises MixedError for a file whose content differs; metadata of a distribution may, and the first one stays.
    """
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source)
        metadata = ".dist-info" in relative.parts[0]
        if path.is_dir() or relative.parts[0] in ("bin", ".lock") or (metadata and path.name in _UNUSED):
            continue
        place = target / relative
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            path.rename(place)
        elif not metadata and not filecmp.cmp(path, place, shallow=False):
            raise MixedError(f"{relative} differs between two Pythons; it cannot be shared")


def only(whole: Path, known: Path, target: Path) -> None:
    """Move what is not in `known` to `target`. Raises MixedError where both have a library at two versions."""
    here, there = ({each.name for each in folder.glob("*.dist-info")} for folder in (whole, known))
    if lost := there - here:
        raise MixedError(f"requirements/controller.lock lacks {', '.join(sorted(lost))} of agent.lock: make lock")
    for path in sorted(whole.rglob("*")):
        if path.is_file() and not (known / path.relative_to(whole)).exists():
            place = target / path.relative_to(whole)
            place.parent.mkdir(parents=True, exist_ok=True)
            path.rename(place)


def _install(uv: Path, lock: Path, python: str, platform: str, target: Path) -> None:
    """Wheels alone: nothing of a library runs here."""
    options = ("--quiet", "--require-hashes", "--only-binary", ":all:", "--link-mode", "copy")
    host = ("--python-version", python, "--python-platform", platform)
    run([uv, "pip", "install", *options, *host, "--target", target, "-r", lock])
