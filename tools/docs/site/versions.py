"""`python -m tools.docs.site.versions [TAG…]`: build/site/VERSION/ of this working tree and of the docs/ of each tag.

Versions of earlier runs stay. build/site/index.html leads to the newest one, and versions.js offers all of them on
each page. If one version cannot be built, the site stays as it was. It needs Sphinx, in the environment that
`make site` makes.
"""

import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.version import VERSION_PATTERN, InvalidVersion, Version

import gpuwatch

_ROOT = Path(__file__).resolve().parents[3]
FIRST = "README.html"
_VERSION = re.compile(VERSION_PATTERN, re.VERBOSE | re.IGNORECASE)
_INDEX = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>gpuwatch</title>
<meta http-equiv="refresh" content="0; url={version}/{first}">
<p><a href="{version}/{first}">gpuwatch {version}</a></p>
</html>
"""


class SiteError(Exception):
    """The site cannot be built; the message says what to do."""


def docs_of(tag: str, folder: Path, root: Path = _ROOT) -> Path:
    """The folder docs/ as it was at a tag, written below `folder`.

    Raises:
        SiteError: the repository has no such tag, or the tag no docs/.

    """
    archive = subprocess.run(  # noqa: S603  a tag that the maintainer names
        ["git", "-C", str(root), "archive", f"refs/tags/{tag}", "docs"],  # noqa: S607  the maintainer's own
        capture_output=True,
        check=False,
    )
    if archive.returncode != 0:
        raise SiteError(f"the docs of tag {tag} cannot be read: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
        packed.extractall(folder, filter="data")
    return folder / "docs"


def version_of(tag: str) -> str:
    """The version that a tag such as `v1.0.0-rc1` names, as the package writes it: `1.0.0rc1`.

    Raises:
        SiteError: it names none.

    """
    try:
        return str(Version(tag))
    except InvalidVersion:
        raise SiteError(f"tag {tag} names no version; expected for example v1.0.0") from None


def put_list(site: Path) -> None:
    """Write versions.js and index.html for the versions that are in the folder of the site."""
    pages = {
        folder.name: sorted(str(page.relative_to(folder).with_suffix("")) for page in folder.rglob("*.html"))
        for folder in sorted(_versions(site), key=lambda each: Version(each.name), reverse=True)
    }
    newest = max(map(Version, pages), key=lambda version: (not version.is_prerelease, version))
    picker = (Path(__file__).parent / "picker.js").read_text(encoding="utf-8")
    listed = picker.replace("{}", json.dumps(pages, separators=(",", ":")), 1)
    (site / "versions.js").write_text(listed, encoding="utf-8")
    (site / "index.html").write_text(_INDEX.format(version=newest, first=FIRST), encoding="utf-8")


def _versions(site: Path) -> list[Path]:
    """The folders that are named as a version: a site that was built before it had versions left others, too."""
    return [page.parent for page in site.glob(f"*/{FIRST}") if _VERSION.fullmatch(page.parent.name)]


def _build(docs: Path, version: str, out: Path, of: str) -> None:
    """Sphinx's pages of a folder; a link that leads nowhere, and a page that README.md does not name, fail it."""
    with TemporaryDirectory() as parsed:
        options = ["-q", "-E", "-W", "--keep-going", "-c", str(Path(__file__).parent), "-d", parsed]
        named = ["-D", f"release={version}", "-D", f"html_title=gpuwatch {version}"]
        words = [sys.executable, "-m", "sphinx", *options, *named, str(docs), str(out)]
        done = subprocess.run(words, check=False)  # noqa: S603  of folders and versions
        if done.returncode != 0:
            raise SiteError(f"the pages of {of} have the faults above; build/site is as it was")


def _wanted(tags: Sequence[str]) -> dict[str, str]:
    """Each version with its tag."""
    wanted = {version_of(tag): tag for tag in tags}
    if gpuwatch.__version__ in wanted:
        raise SiteError(f"{wanted[gpuwatch.__version__]} is the version of this working tree: leave it out")
    return wanted


def main(tags: Sequence[str], root: Path = _ROOT) -> int:
    """The exit status: 1 if a version cannot be built; the site is then as it was before."""
    site = root / "build/site"
    try:
        wanted = _wanted(tags)
        site.parent.mkdir(exist_ok=True)
        with TemporaryDirectory(dir=site.parent) as folder:  # on the disk of the site: a move is a rename
            made, old = Path(folder) / "made", Path(folder) / "old"
            _build(root / "docs", gpuwatch.__version__, made / gpuwatch.__version__, "the working tree")
            for version, tag in wanted.items():
                docs = docs_of(tag, Path(folder) / "docs" / version, root)
                _build(docs, version, made / version, f"tag {tag}")
            old.mkdir()
            site.mkdir(exist_ok=True)
            for pages in sorted(made.iterdir()):
                if (site / pages.name).exists():
                    (site / pages.name).rename(old / pages.name)
                pages.rename(site / pages.name)
            put_list(site)
    except SiteError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"Look at {(site / 'index.html').relative_to(root)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
