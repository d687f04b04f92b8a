"""The command `gpuwatch version`: which build this is, and which parts are installed with it."""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.cli.base import commands, json_option, print_text
from gpuwatch.runtime.json_document import json_text

# A requirement of an extra, such as `boto3>=1.35; extra == "aws"`, or of another: `gpuwatch-fleet[controller]; …`.
_REQUIREMENT = re.compile(r"""([\w.-]+)(?:\[(\w+)\])?.*extra == ['"](\w+)['"]""")
_GIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDocument:
    """Which build this is. `commit` is null where the build did not write it down; `extras` are those installed."""

    version: str
    commit: str | None
    python: str
    extras: list[str]


@commands.command()
@json_option
def version(*, as_json: bool) -> None:
    """Show the version, the commit, the Python and the installed extras."""
    found = installed_versions()
    if as_json:
        print_text(json_text("version", found))
        return
    extras = ", ".join(found.extras) or "none"
    print_text(f"gpuwatch {found.version}")
    for name, value in (("commit", found.commit or "not known"), ("Python", found.python), ("extras", extras)):
        print_text(f"    {name:<7} {value}")


def installed_versions() -> VersionDocument:
    """This build and its parts; no module is loaded for it."""
    from importlib import metadata  # a fifth of the start-up

    from gpuwatch.runtime.installed import DISTRIBUTION
    from gpuwatch.runtime.program import build

    number, revision, python = build()
    known = extras(metadata.requires(DISTRIBUTION) or ()) if _is_there(DISTRIBUTION) else {}
    found = [name for name in sorted(known) if all(map(_is_there, known[name]))]
    return VersionDocument(version=number, commit=revision or _checked_out(), python=python, extras=found)


def extras(requirements: Iterable[str]) -> dict[str, set[str]]:
    """The packages that each extra brings, also through other extras, from the metadata of an installed package."""
    from gpuwatch.runtime.installed import DISTRIBUTION

    direct: dict[str, set[str]] = {}
    through: list[tuple[str, str]] = []
    for name, other, extra in (found.groups() for each in requirements if (found := _REQUIREMENT.match(each))):
        direct.setdefault(extra, set())
        if other is not None and name == DISTRIBUTION:
            through.append((extra, other))
        else:
            direct[extra].add(name)
    return {
        extra: names.union(*(direct.get(other, ()) for of, other in through if of == extra))
        for extra, names in direct.items()
    }


def _is_there(package: str) -> bool:
    """Whether it is installed."""
    from importlib import metadata

    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _checked_out() -> str | None:
    """The commit of the checkout that this code lies in."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)  # noqa: S603  ours
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
