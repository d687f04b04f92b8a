"""Translated pages keep step with the English ones: a new heading, command, setting or link is missed at once."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.zh-CN.md"), *(ROOT / "docs").rglob("*.zh-CN.md")])
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"(^|\s)#\s.*")
_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def english(page: Path) -> Path:
    """The page that this one translates."""
    return page.with_name(page.name.replace(".zh-CN", ""))


def text(page: Path) -> str:
    """A page of the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", text(page))


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """Language and lines of each block, comments apart."""
    return [
        (language, [_COMMENT.sub("", line).rstrip() for line in block.splitlines()])
        for language, block in _FENCE.findall(text(page))
    ]


def targets(page: Path) -> Counter[str]:
    """Where a page links to, but to its other language; a translated page or picture counts as the English one."""
    found = Counter(target.replace(".zh-CN.", ".") for target in _LINK.findall(prose(page)))
    del found[english(page).name]
    return found


def code(page: Path) -> Counter[str]:
    """Settings, commands and verdicts that a page's prose names; line breaks are blanks."""
    return Counter(re.sub(r"\s+", " ", word) for word in _CODE.findall(prose(page)))


def outline(page: Path) -> list[str]:
    """The levels of the headings, in order, and how many rows, items and pictures stand below each."""
    lines = prose(page).splitlines()
    kinds = {"#": r"^#+ ", "|": r"^\|", "-": r"^- ", "1": r"^\d\. ", "!": r"^!\["}
    marks = (kind for line in lines for kind, shape in kinds.items() if re.match(shape, line))
    levels = iter([line.split()[0] for line in lines if re.match(r"^#+ ", line)])
    return [next(levels) if mark == "#" else mark for mark in marks]


def test_there_are_translations() -> None:
    """The README and the quick start are there in Simplified Chinese."""
    assert {str(page) for page in PAGES} >= {"README.zh-CN.md", "docs/quickstart.zh-CN.md"}


@pytest.mark.parametrize("page", PAGES, ids=str)
class TestInStep:
    """What a reader of the translation finds is what a reader of the English page finds."""

    def test_headings_tables_and_lists(self, page: Path) -> None:
        """Headings, rows, items and pictures stand in the same order."""
        assert outline(page) == outline(english(page))

    def test_blocks(self, page: Path) -> None:
        """Commands, configurations and outputs are the same; comments are translated."""
        assert commands(page) == commands(english(page))

    def test_comments_are_translated(self, page: Path) -> None:
        """No comment of a block is left in English, paths and commands apart."""
        comments = [
            found[0] for _, block in _FENCE.findall(text(page)) for found in re.finditer(r"(?<=\s)#\s.*", block)
        ]
        left = [each for each in comments if not re.search(r"[\u4e00-\u9fff]", each) and "http://" not in each]
        assert not left

    def test_links(self, page: Path) -> None:
        """The same pages are linked, as often."""
        assert targets(page) == targets(english(page))

    def test_settings_and_commands(self, page: Path) -> None:
        """The same settings, commands and verdicts are named, as often."""
        assert code(page) == code(english(page))

    def test_both_link_to_each_other(self, page: Path) -> None:
        """A reader of one finds the other."""
        assert f"]({english(page).name})" in text(page)
        assert f"]({page.name})" in text(english(page))
