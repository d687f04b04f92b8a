"""The page in Chinese: each text that it says has its Chinese, and so have the sentences that it asks for."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.controller.web.language import language_of, page_words, translate_asset
from gpuwatch.model.activity import State
from gpuwatch.runtime.translation import CHINESE, entries_of
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.served_page import Site, a_site
from tests.support.page_texts import counted, texts_of
from tests.support.paths import ROOT

WEB = ROOT / "gpuwatch/controller/web"
SCRIPTS = sorted(WEB.glob("*.js"))
# What looks like words for people and is none.
NAMES = {
    "use strict", "11px system-ui, sans-serif", "Enter", "Escape", "Arrow", "gpuwatch approve {}", "gpuwatch snooze 4h",
    "bytes per second", "Date", "Content-Type", "If-None-Match", "why far", "mid num", "axis faint", "timeline strip",
}  # fmt: skip


@pytest.fixture
def site() -> Iterator[Site]:
    """An idle machine, which will have its notice."""
    desk = Desk()
    desk.fleet.put(a_node("idle", held=600.0, name="idle"))
    desk.fleet.put(a_node("i-busy", State.BUSY, 60.0, owner="ann"))
    with a_site(desk) as site:
        site.round()
        yield site


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_each_text_of_a_script_has_its_chinese(script: Path) -> None:
    """Also the words behind numbers."""
    source = script.read_text(encoding="utf-8")
    said = [each.text for each in texts_of(source) if each.said] + list(counted(source))

    assert [each for each in said if each not in page_words(CHINESE)] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_says_a_text_that_cannot_be_chinese(script: Path) -> None:
    """Words for people stand in a template with `t`, or are looked up."""
    texts = texts_of(script.read_text(encoding="utf-8"))
    words = [each for each in texts if not each.said and re.search("^[A-Z][a-z]|[A-Za-z]{2,} [A-Za-z]{2,}", each.text)]

    assert [each for each in words if each.text not in NAMES and each.text not in page_words(CHINESE)] == []


def test_the_page_itself_is_chinese() -> None:
    """Its headings, buttons, hints and names for screen readers; only names and keys of the keyboard stay."""
    page = translate_asset("page.html", (WEB / "page.html").read_bytes(), CHINESE).decode()
    text = re.sub(r"<(?:kbd|code)>[^<]*<", "<", page)
    shown = re.findall(r">([^<>]*)<|(?:aria-label|aria-roledescription|placeholder|title)=\"([^\"]*)\"", text)
    english = {each for pair in shown for part in pair for each in re.findall("[A-Za-z/_]{2,}", part)}

    assert '<html lang="zh-CN">' in page
    assert english == {"gpuwatch", "GPU", "ID", "JSON", "JavaScript", "API", "/api/v", "/fleet", "Kubernetes", "Enter"}


def test_both_sides_have_the_same_parts() -> None:
    """Each part of the English has its place in the Chinese."""
    own = entries_of((WEB / "zh_CN.po").read_text(encoding="utf-8"))

    for english, other in own.items():
        assert sorted(re.findall(r"\{(\d*)\}", other)) == [str(n) for n in range(english.count("{}"))], english


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("", None),
        ("zh-CN,zh;q=0.9,en;q=0.8", CHINESE),
        ("en-US,en;q=0.9,zh-CN;q=0.8", None),
        ("en;q=0.3, zh-Hans-CN;q=0.9", CHINESE),
        ("zh-CN;q=0, en", None),
        ("fr, zh;q=0.5", CHINESE),
        ("*", None),
        ("zh-CN;q=x", CHINESE),
    ],
)
def test_a_browser_s_wishes_have_weights(accepted: str, language: str | None) -> None:
    """As Accept-Language says them."""
    assert language_of(accepted) == language


def test_sentences_of_an_answer_come_in_the_language_that_is_asked_for(site: Site) -> None:
    """Names and the words that scripts compare stay, also a machine's that is a state's; programs get English."""
    plain, chinese = (site.ask("/api/v1/nodes/idle", accept_language=each).json for each in ("", "zh-CN"))

    assert plain == site.ask("/api/v1/nodes/idle").json
    assert plain["row"]["why"] != chinese["row"]["why"]
    assert re.search("[一-鿿]", chinese["row"]["why"] + chinese["step"]["change"])
    for name in ("id", "name", "state", "activity", "next", "pool"):
        assert plain["row"][name] == chinese["row"][name]


def test_the_fleet_and_errors_come_in_the_language_too(site: Site) -> None:
    """What is kept for one language is not given to the other."""
    tags = [site.ask("/api/v1/fleet", accept_language=each).headers["etag"] for each in ("zh-CN", "en", "zh-CN", "")]
    errors = [site.ask("/api/v1/nodes/none", accept_language=each).json["error"] for each in ("zh-CN", "en")]

    assert tags[0] == tags[2] != tags[1] == tags[3]
    assert errors[0] != errors[1]
    assert site.ask("/", accept_language="zh-CN").headers["etag"] != site.ask("/").headers["etag"]
    assert "Accept-Language" in site.ask("/", accept_language="zh-CN").headers["vary"]
