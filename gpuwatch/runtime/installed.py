"""How this copy of gpuwatch was installed, and so how a part that it lacks is added to it."""

import json
import shlex
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import gpuwatch

# The name in Python's package index. The name `gpuwatch` there belongs to another program: no hint may install that.
DISTRIBUTION = "gpuwatch-fleet"
IMAGE_MARK = "of-an-image"  # the Dockerfile makes this file in the folder of its Python
_PACKAGED = Path("/usr/lib/gpuwatch/app")  # of the deb and rpm packages
_OWN_ENVIRONMENT = frozenset({"forecast"})  # extras that neither the packages nor the images have: requirements/


class MissingExtraError(ImportError):
    """An extra is not installed; the words say how to install it."""


class Kind(Enum):
    """What this copy came from."""

    CLONE = "clone"  # a checkout, also where pip copied it from there
    WHEEL = "wheel"
    PACKAGE = "package"  # deb or rpm
    ONE_FILE = "one file"  # pyz
    IMAGE = "image"


def install_command(extra: str, *, upgrade: bool = False) -> str:
    """What adds an extra to this copy of gpuwatch, or renews it: a command, or what to install instead.

    It never names another program: a checkout is installed from its folder, a wheel from where it came.
    """
    origin, folder = _origin(), Path(gpuwatch.__file__).parents[1]
    by_name = _pip(f"{DISTRIBUTION}[{extra}]", upgrade=upgrade)
    match kind_of(folder, Path(sys.prefix), origin, one_file="_bootstrap" in sys.modules):  # shiv's own module
        case Kind.CLONE | Kind.WHEEL:
            return _pip(_requirement(folder, origin, extra), upgrade=upgrade)
        case _ if extra in _OWN_ENVIRONMENT:
            return f"{by_name}, in a Python environment of its own"
        case Kind.PACKAGE:
            return f"install {'a newer' if upgrade else 'the'} package gpuwatch-controller"
        case Kind.IMAGE:
            return f"use {'a newer' if upgrade else 'the'} image of the controller"
        case Kind.ONE_FILE:
            return f"install the package gpuwatch-controller, or {by_name}; this file has the agent's part alone"


def kind_of(folder: Path, prefix: Path, origin: Mapping[str, Any], *, one_file: bool) -> Kind:
    """What a copy in `folder` came from, run by the Python in `prefix`.

    `origin` is what pip noted when it installed gpuwatch (`direct_url.json`), empty where it noted nothing.
    """
    if folder == _PACKAGED:
        return Kind.PACKAGE
    if one_file:
        return Kind.ONE_FILE
    if (prefix / IMAGE_MARK).is_file():
        return Kind.IMAGE
    return Kind.CLONE if _checkout(folder, origin) is not None else Kind.WHEEL


def _checkout(folder: Path, origin: Mapping[str, Any]) -> Path | None:
    """The checkout that the copy is part of, or was made from; None for none, or one that is gone."""
    if _is_checkout(folder):
        return folder
    url = urlsplit(str(origin.get("url", "")))
    made_of = Path(unquote(url.path))
    return made_of if url.scheme == "file" and "dir_info" in origin and _is_checkout(made_of) else None


def _is_checkout(folder: Path) -> bool:
    return (folder / "pyproject.toml").is_file() and (folder / "gpuwatch/__init__.py").is_file()


def _requirement(folder: Path, origin: Mapping[str, Any], extra: str) -> str:
    """What pip is asked for: a checkout's folder, the place that a wheel came from, or the name in the index."""
    checkout = _checkout(folder, origin)
    if checkout is not None:
        return f"{checkout}[{extra}]"
    url = urlsplit(str(origin.get("url", "")))
    named = f"{DISTRIBUTION}[{extra}]"
    if url.scheme == "file":
        return f"{named} @ {url.geturl()}" if Path(unquote(url.path)).exists() else named
    if not url.netloc:
        return named
    versioned = origin.get("vcs_info")
    kind = f"{versioned.get('vcs')}+" if isinstance(versioned, dict) else ""
    return f"{named} @ {kind}{urlunsplit(url._replace(netloc=url.netloc.rpartition('@')[2]))}"


def _pip(wanted: str, *, upgrade: bool) -> str:
    """The command, safe to copy; always in quotes, for some shells read brackets."""
    quoted = shlex.quote(wanted)
    return f"pip install {'-U ' if upgrade else ''}{quoted if quoted != wanted else repr(wanted)}"


def _origin() -> dict[str, Any]:
    """What pip noted; empty where it did not install this copy, or from the index."""
    from importlib import metadata  # noqa: PLC0415  a fifth of the start-up, for an error alone

    try:
        noted = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        read = json.loads(noted or "{}")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}
