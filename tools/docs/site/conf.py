"""Sphinx's settings of the site: `make site` builds all pages of docs/, with search, in light and dark.

The contents are those of docs/README.md: each section there is a part of the list. Only the pages are in the site: of
what a page links to elsewhere in the repository the name stands there.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

from gpuwatch import __version__

_ROOT = Path(__file__).resolve().parents[3]
DOCS = _ROOT / "docs"

project, release, html_title = "gpuwatch", __version__, f"gpuwatch {__version__}"
extensions = ["myst_parser", "sphinx_copybutton"]
root_doc = "README"
html_theme = "furo"
html_copy_source = html_show_sourcelink = html_show_copyright = html_show_sphinx = False
html_extra_path: list[str] = []
html_favicon = str(_ROOT / "gpuwatch/controller/web/icon.svg")
html_static_path, html_css_files, templates_path = ["static"], ["site.css"], ["templates"]
# Those of the theme, and the list of versions.
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}
copybutton_prompt_text = "$ "
myst_heading_anchors = 4  # as GitHub has them
suppress_warnings = ["misc.highlighting_failure"]  # a block of a language that it does not colour

# Pages that list others, which have their places below them.
LISTS = {"adr/README": "*", "CONFIGURATION": "settings/*", "json": "json/*"}
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]`]|`[^`]*`)+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_CHINESE = re.compile("[\u4e00-\u9fff]{2,}")


def within(page: str, text: str, docs: Path = DOCS) -> str:
    """The text of a page (`clouds/aws`) without links that lead out of docs/; a folder's link leads to its page."""

    def changed(found: re.Match[str]) -> str:
        words, target, place = found[1], found[2], found[3] or ""
        if ":" in target:
            return found[0]
        there = (docs / page).parent.joinpath(target).resolve()
        if not there.is_relative_to(docs):
            return words
        if there.is_dir():
            return f"[{words}]({target}/README.md{place})" if (there / "README.md").exists() else words
        return found[0]

    blocks = [(block.start(), block.end()) for block in _FENCE.finditer(text)]
    parts, at = list[str](), 0
    for start, end in blocks:
        parts += [_LINK.sub(changed, text[at:start]), text[start:end]]
        at = end
    return "".join([*parts, _LINK.sub(changed, text[at:])])


def contents(text: str) -> str:
    """The list of pages that docs/README.md makes, section by section; a page stands where it is named first."""
    parts, seen = _SECTION.split(text), set[str]()
    made = list[str]()
    for title, section in zip(parts[1::2], parts[2::2], strict=True):
        names = (found[2].removesuffix(".md") for found in _LINK.finditer(section) if found[2].endswith(".md"))
        pages = [name for name in dict.fromkeys(names) if not name.startswith("..") and name not in seen]
        seen.update(pages)
        made.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```"]))
    return "\n\n".join(made)


def pairs(text: str) -> list[str]:
    """Each two characters of Chinese text that stand together.

    Sphinx keeps a whole clause as one word, and its search finds three letters within a word, but most words of Chinese
    have two.
    """
    return [run[at : at + 2] for run in _CHINESE.findall(text) for at in range(len(run) - 1)]


def read_page(app: Any, page: str, source: list[str]) -> None:  # noqa: ANN401  as below
    """Change a page before it is parsed."""
    text = within(page, source[0], Path(app.srcdir).resolve())
    if page == root_doc:
        text += "\n" + contents(source[0])
    if page in LISTS:
        text += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{LISTS[page]}\n```\n"
    source[0] = text


def setup(app: Any) -> None:  # noqa: ANN401  Sphinx is not there where this is only tested
    """Called by Sphinx."""
    english: Any = import_module("sphinx.search.en").SearchEnglish

    def split(self: object, text: str) -> list[str]:
        return [*english.split(self, text), *pairs(text)]

    app.add_search_language(type("Search", (english,), {"split": split}))
    app.connect("source-read", read_page)
