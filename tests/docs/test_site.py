"""The site of the documentation: what its pages become before Sphinx reads them, and that each has a place."""

import re

from tests.support.paths import ROOT
from tools.docs.site.conf import LISTS, contents, pairs, within

DOCS = ROOT / "docs"


def test_each_page_has_one_place_in_the_contents() -> None:
    """Those of decisions, settings and JSON have theirs below the pages that list them."""
    placed = re.findall(r"^[\w/.-]+$", contents((DOCS / "README.md").read_text(encoding="utf-8")), re.MULTILINE)
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")} - {"README"}

    assert set(LISTS) <= pages
    assert sorted(placed) == sorted(
        page for page in pages if not page.startswith(("adr/", "settings/", "json/")) or page == "adr/README"
    )


def test_what_is_outside_of_the_pages_is_a_name() -> None:
    """Files and folders of the repository; links within the pages, to the web and in blocks stay as they are."""
    page = "[code](../../gpuwatch/guard/rules.py), [`iam`](../../iam), [all](../adr), [guard](../guard.md#busy), [web](https://a.b)"
    block = "\n```\n[code](../../gpuwatch/guard/rules.py)\n```\n"

    assert within("clouds/aws", page + block) == (
        "code, `iam`, [all](../adr/README.md), [guard](../guard.md#busy), [web](https://a.b)" + block
    )


def test_words_of_chinese_are_found_within_a_clause() -> None:
    """Most have two characters, and there is no space between them."""
    assert pairs("idle: 空闲的机器,关机 GPU 用") == ["空闲", "闲的", "的机", "机器", "关机"]
