"""The site of several versions: tags of a repository become folders, with a list of versions on each page."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.components import require
from tests.support.paths import ROOT
from tests.support.real.browser import chromium
from tools.docs.site.versions import SiteError, docs_of, put_list, version_of

SPHINX = ROOT / ".venv/site/bin/python"
CONTENTS = "# All pages\n\n## Start\n- [the guard](guard.md)\n"
GUARD = "# The guard\n\nIt refuses.\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two tags: v1.0.0, and v1.1.0-rc1 with another page; then a link that leads nowhere, v1.0.1."""
    root = tmp_path / "repository"
    states = {
        "v1.0.0": {"README.md": CONTENTS, "guard.md": GUARD},
        "v1.1.0-rc1": {
            "README.md": f"{CONTENTS}- [money](money.md)\n",
            "money.md": "# Money\n\nIt is [kept](guard.md).",
        },
        "v1.0.1": {"money.md": "# Money\n\nIt is [kept](guards.md)."},
    }
    (root / "docs").mkdir(parents=True)
    git = ("git", "-C", str(root), "-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "tag.gpgsign=false")
    subprocess.run([*git, "init", "--quiet"], check=True)
    for tag, pages in states.items():
        for name, text in pages.items():
            (root / "docs" / name).write_text(text, encoding="utf-8")
        subprocess.run([*git, "add", "--all"], check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", tag], check=True)
        subprocess.run([*git, "tag", tag], check=True)
    return root


def test_the_pages_of_a_tag_are_those_of_its_commit(repository: Path, tmp_path: Path) -> None:
    """Also where the working tree has others; a tag that is not there is named."""
    docs = docs_of("v1.0.0", tmp_path / "old", repository)

    assert sorted(path.name for path in docs.iterdir()) == ["README.md", "guard.md"]
    with pytest.raises(SiteError, match=r"tag v9\.0\.0"):
        docs_of("v9.0.0", tmp_path / "none", repository)


def test_a_tag_names_a_version() -> None:
    """As the package writes it."""
    assert version_of("v1.0.0-rc1") == "1.0.0rc1"
    with pytest.raises(SiteError, match="latest"):
        version_of("latest")


@pytest.mark.parametrize(
    ("built", "first"),
    [(["1.9.0", "1.10.0", "2.0.0rc1"], "1.10.0"), (["1.0.0rc1", "1.0.0rc2"], "1.0.0rc2")],
)
def test_the_site_begins_with_the_newest_release(tmp_path: Path, built: list[str], first: str) -> None:
    """By version and not by letter; a candidate only where there is no release. All are listed, the newest first.

    What else is there, as the folders of a site that was built before it had versions, is no version.
    """
    for version in ["clouds", *built]:
        (tmp_path / version / "clouds").mkdir(parents=True)
        for page in ("README.html", "clouds/aws.html"):
            (tmp_path / version / page).touch()
    put_list(tmp_path)

    assert f'url={first}/README.html"' in (tmp_path / "index.html").read_text(encoding="utf-8")
    listed = re.findall(r"^  const versions = (.+);$", (tmp_path / "versions.js").read_text("utf-8"), re.MULTILINE)
    assert list(json.loads(listed[0]).items()) == [(each, ["README", "clouds/aws"]) for each in reversed(built)]


COPIES = """
import pathlib, sys

docs, out = map(pathlib.Path, sys.argv[-2:])
out.mkdir(parents=True)
for page in docs.glob("*.md"):
    text = page.read_text()
    if "guards.md" in text:
        sys.exit(f"{page.name}: a link leads nowhere")
    (out / page.name).with_suffix(".html").write_text(text)
"""


def made(root: Path, *tags: str, sphinx: Path | None = None) -> subprocess.CompletedProcess[str]:
    """What `make site` says of a repository, by the Sphinx that it installs, or by the module of a folder."""
    code = "import sys, pathlib; from tools.docs.site import versions as v; "
    code += "v.gpuwatch.__version__ = '1.1.0'; sys.exit(v.main(sys.argv[2:], pathlib.Path(sys.argv[1])))"
    python = SPHINX if SPHINX.exists() and not sphinx else Path(sys.executable)
    return subprocess.run(
        [str(python), "-c", code, str(root), *tags],
        env={"PYTHONPATH": f"{sphinx}:{ROOT}" if sphinx else str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_a_tag_that_cannot_be_built_leaves_the_site_as_it_was(repository: Path, tmp_path: Path) -> None:
    """Folders and list belong together: all versions that are asked for, or none of them, and the tag is named.

    A program in Sphinx's place copies pages, and refuses the link that leads nowhere.
    """
    stand_in = tmp_path / "stand_in"
    stand_in.mkdir()
    (stand_in / "sphinx.py").write_text(COPIES, encoding="utf-8")
    site = repository / "build/site"
    (repository / "docs/money.md").write_text("# Money\n", encoding="utf-8")
    assert made(repository, "v1.0.0", sphinx=stand_in).returncode == 0
    before = {str(path): path.read_bytes() for path in site.rglob("*") if path.is_file()}
    (repository / "docs/guard.md").write_text("# The guard\n\nIt says yes or no.\n", encoding="utf-8")
    broken = made(repository, "v1.1.0-rc1", "v1.0.1", sphinx=stand_in)

    assert broken.returncode == 1
    assert "tag v1.0.1" in broken.stderr
    assert "build/site is as it was" in broken.stderr
    assert {str(path): path.read_bytes() for path in site.rglob("*") if path.is_file()} == before
    assert [path.name for path in (repository / "build").iterdir()] == ["site"]


@pytest.mark.nightly
@pytest.mark.component("chromium")
@pytest.mark.skipif(not SPHINX.exists(), reason="Sphinx is not installed here (`make site`)")
def test_a_reader_goes_to_the_same_page_of_another_version(repository: Path) -> None:
    """Or to its first page, where it has no such page; a version with a broken link is refused, and the others stay."""
    site = repository / "build/site"
    (repository / "docs/money.md").write_text("# Money\n\nIt is [kept](guard.md).", encoding="utf-8")
    done = made(repository, "v1.0.0", "v1.1.0-rc1")
    assert done.returncode == 0, done.stderr
    broken = made(repository, "v1.0.1")
    assert (broken.returncode, "guards.md" in broken.stderr) == (1, True)
    assert "leave it out" in made(repository, "v1.1.0").stderr

    with chromium(require("chromium")) as browser:
        page = browser.new_page()
        page.goto(f"{site.as_uri()}/index.html")
        page.wait_for_url("**/1.1.0/README.html")
        page.click("text=the guard")
        page.select_option("#versions", label="1.0.0")
        page.wait_for_url("**/1.0.0/guard.html")
        page.goto(f"{site.as_uri()}/1.1.0rc1/money.html")
        assert page.inner_text("#versions").split() == ["1.1.0", "1.1.0rc1", "1.0.0"]
        page.select_option("#versions", label="1.0.0")
        page.wait_for_url("**/1.0.0/README.html")
