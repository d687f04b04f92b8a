"""`python -m tests.integration.grafana.draw FOLDER`: a picture of each dashboard by page.tsx, FOLDER/NAME.png."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.support.dashboards import NAMES

_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--allow-file-access-from-files")
_WIDTH = 1600


def main(folder: Path) -> None:
    """Each as high as it is; an error of the page's own ends it."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=list(_FLAGS))
        page = browser.new_page(viewport={"width": _WIDTH, "height": 1000})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        for name in NAMES:
            page.set_viewport_size({"width": _WIDTH, "height": 1000})
            page.goto(f"file://{folder}/page.html?board={name}")
            page.wait_for_selector("body[data-ready]", timeout=60_000)
            height = page.evaluate("document.querySelector('body > div').offsetHeight")
            page.set_viewport_size({"width": _WIDTH, "height": height + 20})  # what is out of sight is not drawn
            page.wait_for_timeout(1500)
            page.screenshot(path=folder / f"{name}.png")
        browser.close()
    if errors:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
