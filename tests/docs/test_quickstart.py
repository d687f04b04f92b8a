"""What a newcomer types works: the quick start's blocks as they stand, where nothing of gpuwatch has been."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clouds.alibaba import account as account_of_alibaba
from tests.support.components import require
from tests.support.newcomer import environment_with, installed_by, pattern, played, steps
from tests.support.paths import ROOT

# The README's lines, which are most of these, run each day: tests/docs/test_readme.py.
PAGES = [pytest.param(name, marks=pytest.mark.nightly) for name in ("quickstart.md", "quickstart.zh-CN.md")]


@pytest.mark.parametrize("name", PAGES)
def test_the_quick_start_works(name: str, tmp_path: Path) -> None:
    """Every block runs without an error and prints what the page says, in the page's order, in each language."""
    require("curl")
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    asked = steps(page)
    programs = environment_with(installed_by(page), tmp_path / "python")

    printed, status = played([block for block, _ in asked], tmp_path, programs)

    as_printed(asked, printed, status, tmp_path)


def as_printed(asked: list[tuple[str, list[str]]], printed: list[str], status: int, tmp_path: Path) -> None:
    """Every block ran, and printed the page's lines in their order."""
    logs = "\n".join(
        f"{log.name}: {log.read_text(encoding='utf-8')[-2000:]}" for log in (tmp_path / "home").glob("*.log")
    )
    assert status == 0, f"block {len(printed)} ended with {status}:\n{printed[-1]}\n{logs}"
    for (block, lines), seen in zip(asked, printed, strict=True):
        begin = 0
        for line in lines:
            found = pattern(line).search(seen, begin)
            assert found, f"{block}\nshould print {line!r} and printed\n{seen}\n{logs}"
            begin = found.end()


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["alibaba-quickstart.md", "alibaba-quickstart.zh-CN.md"])
def test_the_quick_start_on_alibaba_works(name: str, tmp_path: Path) -> None:
    """The same, with an account at the fake: a machine of the fleet, and one in a region that nobody looks at."""
    require("curl")
    page = (ROOT / "docs/clouds" / name).read_text(encoding="utf-8")
    asked = steps(page)
    programs = environment_with(installed_by(page), tmp_path / "python")
    account = f"{sys.executable} {Path(account_of_alibaba.__file__)} 5000 > account.log 2>&1 &\n"
    waits = "curl --silent --retry 60 --retry-delay 1 --retry-all-errors http://127.0.0.1:5000 > /dev/null\n"
    host = {**account_of_alibaba.VARIABLES, "GPUWATCH_CLOUD__ENDPOINT_URL": "http://127.0.0.1:5000"}

    printed, status = played([account + waits, *(block for block, _ in asked)], tmp_path, programs, host=host)

    as_printed(asked, printed[1:], status, tmp_path)


@pytest.mark.nightly
def test_the_page_of_the_demo_works(tmp_path: Path) -> None:
    """Its commands, too, in the clone."""
    page = (ROOT / "docs/demo.md").read_text(encoding="utf-8")
    programs = environment_with(installed_by(page), tmp_path / "python")
    blocks = [f"ln -s {ROOT}/docs docs\n", *(block for block, _ in steps(page))]

    printed, status = played(blocks, tmp_path, programs)

    assert status == 0, printed[-1]
    assert "stopped " in printed[1]
    assert '"wrongly_stopped": 0' in printed[1]


def test_only_what_the_page_installs_is_there(tmp_path: Path) -> None:
    """An extra that the page forgets is missing for its reader, and for the test of the page."""
    bare = environment_with(installed_by("$ pip install .   # on a GPU host\n"), tmp_path / "bare")
    full = environment_with(installed_by("$ pip install '.[aws]'\n"), tmp_path / "full")

    tried = [
        subprocess.run([each / "python", "-c", "import gpuwatch, boto3"], check=False, capture_output=True, text=True)
        for each in (bare, full)
    ]

    assert [each.returncode for each in tried] == [1, 0], [each.stderr for each in tried]
    assert "boto3" in tried[0].stderr


def test_a_page_that_promises_too_much_is_found() -> None:
    """A line that is not printed matches nothing, and `…` does not reach beyond its line."""
    ((block, lines),) = steps("```sh\ngpuwatch x\n```\n```text\nOK: … done\n```\n")

    assert block == "gpuwatch x\n"
    assert pattern(lines[0]).search("OK:  all is  done")
    assert not pattern(lines[0]).search("OK: all\nis done")
    assert not pattern(lines[0]).search("all is done")
