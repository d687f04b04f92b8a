"""A visit to a served page in a real Chromium, which notes whatever goes wrong, and what everybody needs of a page."""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

WAIT_MS = 20_000
AXE = Path(os.environ.get("GPUWATCH_AXE", "node_modules/axe-core/axe.min.js"))
NAMELESS = """[...document.querySelectorAll('button, select, input, a, canvas, dialog, [role=group], [role=region]')]
  .filter(each => !(each.innerText || each.ariaLabel || each.labels?.length || each.ariaLabelledByElements?.length
                    || each.getAttribute('aria-labelledby')) && each.checkVisibility())
  .map(each => each.outerHTML)"""
# WCAG 2.1: 4.5 to 1 for text of this size.
FAINT = """(() => {
  const level = colour => { const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = each => { for (; each; each = each.parentElement) { const c = getComputedStyle(each).backgroundColor;
    if (!/, 0\\)$|^transparent$/.test(c)) return c; } return 'rgb(255, 255, 255)'; };
  const found = [];
  for (const each of document.querySelectorAll('body *')) {
    const own = [...each.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !each.checkVisibility() || each.disabled) continue;
    const [a, b] = [getComputedStyle(each).color, ground(each)].map(level);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(each.textContent.trim().slice(0, 40) + ' ' + ratio.toFixed(2));
  }
  return found; })()"""


class Visit:
    """A page that is open, and everything that went wrong on it."""

    def __init__(self, context: BrowserContext, url: str, ready: str) -> None:
        """Go there, and wait until it is ready."""
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(url)
        self.page.wait_for_selector(ready)

    def text(self, selector: str) -> str:
        """What stands there."""
        return self.page.inner_text(selector)

    def run(self, script: str) -> Any:  # noqa: ANN401  JSON
        """What a script says."""
        return self.page.evaluate(script)


def violations(visit: Visit) -> list[tuple[str, str]]:
    """Of axe-core's rules, with the first element that breaks each (`npm install axe-core`, or GPUWATCH_AXE)."""
    if not AXE.exists():
        pytest.skip(f"no axe-core at {AXE} (npm install axe-core, or GPUWATCH_AXE)")
    visit.run(AXE.read_text(encoding="utf-8") + "; 0")
    return [(each["id"], each["nodes"][0]["html"][:120]) for each in visit.run("axe.run()")["violations"]]


@contextlib.contextmanager
def a_visit(
    browser: Browser,
    url: str,
    *,
    ready: str = "#rows tr",
    **context: Any,  # noqa: ANN401  Playwright's options
) -> Iterator[Visit]:
    """A visit with its own storage; nothing may go wrong on it, and nobody else is asked."""
    made = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
    try:
        visit = Visit(made, url, ready)
        yield visit
        assert visit.wrong == []
        assert [asked for asked in visit.asked if not asked.startswith(urljoin(url, "/"))] == []
    finally:
        made.close()


FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium(program: Path) -> Iterator[Browser]:
    """Started, and closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
