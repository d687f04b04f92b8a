"""Templates of HTML: others' words are text, a forgotten name is an error, and jinja2 waits for the first page."""

import subprocess
import sys
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import pytest
from jinja2 import TemplateNotFound, UndefinedError

from gpuwatch.controller.web.snooze_page import SnoozePage
from gpuwatch.runtime.html import render
from tests.support.paths import ROOT

TEMPLATES = sorted(
    str(path.relative_to(ROOT / "gpuwatch"))
    for path in (ROOT / "gpuwatch").rglob("*.html")
    if "{%" in path.read_text(encoding="utf-8")
)
HOSTILE = "<script>alert(1)</script> & \"'`"


def test_words_of_others_are_text_and_printable() -> None:
    """Markup in a name is shown as it is, in text and in attributes; a control character is shown by its code."""
    page = SnoozePage(title=HOSTILE, text="eve\x1b[2J\x00", facts={"Owner": HOSTILE}, choices=((60, HOSTILE),))
    html = render("controller/web/snooze_page.html", page=page, say=str, lang="en")
    root = ET.fromstring(html.partition("\n")[2])  # noqa: S314  our own

    assert "<script" not in html
    assert root.findtext(".//h2") == HOSTILE
    assert root.findtext(".//dd") == HOSTILE
    assert root.findtext(".//button") == HOSTILE
    assert r"eve\x1b[2J\x00" in html


@dataclass
class _Untitled:
    """A page that lacks all that the template shows."""


def test_a_name_that_is_missing_is_an_error() -> None:
    """Nothing is shown as empty by mistake."""
    with pytest.raises(UndefinedError, match="title"):
        render("controller/web/snooze_page.html", page=_Untitled(), say=str, lang="en")


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_page_has_the_same_frame(name: str) -> None:
    """Each template but the frame itself extends it, and none has a script."""
    text = (ROOT / "gpuwatch" / name).read_text(encoding="utf-8")

    assert text.startswith('{% extends "runtime/base.html" %}') or name == "runtime/base.html"
    assert "<script" not in text


def test_a_template_that_does_not_exist_is_named() -> None:
    """The error says which one."""
    with pytest.raises(TemplateNotFound, match="no_such"):
        render("money/no_such.html")


def test_the_controller_loads_jinja2_with_the_first_page() -> None:
    """What the daemon imports at its start does not load it."""
    script = (
        "import sys, gpuwatch.cli.controller, gpuwatch.controller.web.snooze_page, gpuwatch.notify.notifier, "
        "gpuwatch.notify.reports; sys.exit('jinja2' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)

    assert done.returncode == 0
