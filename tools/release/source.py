"""What is released: the tree of the last commit, its version, and what the changelog says about it."""

import os
import re
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from packaging.version import Version

import gpuwatch
from tools.release.programs import FailedError, run

ROOT = Path(__file__).parents[2]
_HEADING = re.compile(r"^## \[(?P<name>[^\]]+)\](?: - (?P<date>\d{4}-\d{2}-\d{2}))?$", re.MULTILINE)


class NotReadyError(Exception):
    """The tree cannot be released; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A commit, written into a folder."""

    folder: Path
    version: Version
    revision: str
    epoch: int  # time of the commit: the time of every file, which makes packages the same on every machine

    def environment(self) -> dict[str, str]:
        """For programs that write times into files."""
        return {**os.environ, "SOURCE_DATE_EPOCH": str(self.epoch)}


def released(changelog: str) -> tuple[Version | None, str]:
    """The newest version that a changelog names, and what stands above it under Unreleased, without headings."""
    headings = list(_HEADING.finditer(changelog))
    newest = next((each for each in headings if each["name"] != "Unreleased"), None)
    waiting = ""
    if headings and headings[0]["name"] == "Unreleased":
        end = headings[1].start() if len(headings) > 1 else len(changelog)
        waiting = re.sub(r"^#.*$", "", changelog[headings[0].end() : end], flags=re.MULTILINE).strip()
    return (Version(newest["name"]) if newest else None), waiting


def checked(changelog: str, version: str) -> None:
    """Raises NotReadyError unless the changelog's newest version is the package's, and nothing is unreleased."""
    newest, waiting = released(changelog)
    remedy = "run `python -m tools.release --cut YYYY-MM-DD` and commit CHANGELOG.md, or build with ARGS=--draft"
    if newest != Version(version):
        raise NotReadyError(
            f"gpuwatch/__init__.py says {version}, and the newest version in CHANGELOG.md is {newest}; {remedy}"
        )
    if waiting:
        raise NotReadyError(f"CHANGELOG.md has entries under Unreleased, which are in no version; {remedy}")


def cut(changelog: str, version: str, date: str) -> str:
    """The changelog with everything that is unreleased under that version; an empty Unreleased stays on top."""
    newest, waiting = released(changelog)
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
        raise NotReadyError(f"the date of a release is written YYYY-MM-DD, not {date}")
    if newest == Version(version):
        raise NotReadyError(f"CHANGELOG.md has {version} already; raise the version in gpuwatch/__init__.py")
    if not waiting:
        raise NotReadyError("CHANGELOG.md has nothing under Unreleased")
    heading = f"## [Unreleased]\n\n## [{hyphenated(version)}] - {date}"
    return changelog.replace("## [Unreleased]", heading, 1)


def hyphenated(version: str) -> str:
    """A Python version as semantic versioning writes it: 1.0.0rc1 is 1.0.0-rc1."""
    return re.sub(r"(?<=\d)(?=(?:a|b|rc)\d)", "-", str(Version(version)))


def tilde(version: Version) -> str:
    """As Debian and RPM write it, so that a candidate is older than its release: 1.0.0~rc1."""
    return hyphenated(str(version)).replace("-", "~")


def export(folder: Path) -> Source:
    """Write the last commit's files into a folder. Raises NotReadyError outside of a clone."""
    try:
        revision = _git("rev-parse", "HEAD").decode().strip()
    except FailedError as error:
        raise NotReadyError("a release is made from a clone with git") from error
    with tarfile.open(fileobj=BytesIO(_git("archive", "--format=tar", "HEAD"))) as archive:
        archive.extractall(folder, filter="data")
    (folder / "gpuwatch/revision.txt").write_text(f"{revision}\n", encoding="ascii")
    version = re.search(r'^__version__ = "(.+)"$', (folder / "gpuwatch/__init__.py").read_text("utf-8"), re.MULTILINE)
    if version is None or version[1] != gpuwatch.__version__:
        raise NotReadyError("the version in gpuwatch/__init__.py is not committed")
    epoch = int(_git("log", "-1", "--format=%ct").decode())
    return Source(folder=folder, version=Version(version[1]), revision=revision, epoch=epoch)


def uncommitted() -> bool:
    """Whether the clone has changes that a release leaves out."""
    return bool(_git("status", "--porcelain").strip())


def _git(*arguments: str) -> bytes:
    return run(["git", *arguments], cwd=ROOT)
