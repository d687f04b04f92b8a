"""The page in a real Chromium: its first paint, the fleet's, and each round's, with a thousand nodes of eight GPUs."""

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page

from benchmarks.figures import Figure
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.fleet import Desk
from tests.support.builders.served_page import Site, a_site, populate
from tests.support.real.browser import chromium

_NODES = 1_000
_FEW = 10
_LOADS = 5
_ROUNDS = 8
_FIRST = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_FLEET = "performance.getEntriesByName('gpuwatch-first')[0].duration"
_UPDATES = "performance.getEntriesByName('gpuwatch-update').map(each => each.duration)"


def measure() -> Iterator[Figure]:
    """All figures; none where there is no Chromium."""
    program = shutil.which("chromium")
    if program is None:
        print("no chromium (Debian: apt install chromium): the page is not measured", file=sys.stderr)
        return
    with chromium(Path(program)) as browser:
        few, many = (_measured(browser, count) for count in (_FEW, _NODES))
    floor = f"{_FEW} nodes"
    for name, (runs, floor_runs) in {
        f"render what {_NODES:,} nodes are told as": (many[0], few[0]),
        "first paint": (many[1], few[1]),
        f"first paint of {_NODES:,} nodes": (many[2], few[2]),
        f"update to the next round of {_NODES:,} nodes": (many[3], few[3]),
    }.items():
        yield Figure(name=name, unit="ms", runs=runs, floor=floor, floor_runs=floor_runs)


def _measured(browser: Browser, count: int) -> tuple[list[float], list[float], list[float], list[float]]:
    """Of the server, of a page without a cache, and of one that is open."""
    desk = Desk(clock=ManualClock(wall=SystemClock().now()))
    populate(desk, count)
    with a_site(desk) as site:
        made = [_rendered(site) for _ in range(_LOADS)]
        first, fleet, updates = [], [], []
        for load in range(_LOADS):
            context = browser.new_context(viewport={"width": 1440, "height": 1000})
            page = context.new_page()
            page.goto(site.url)
            _await(page, "gpuwatch-first", 1)
            first.append(float(page.evaluate(_FIRST)))
            fleet.append(float(page.evaluate(_FLEET)))
            if load == _LOADS - 1:
                for seen in range(1, _ROUNDS + 1):
                    site.round()
                    _await(page, "gpuwatch-update", seen)
                updates = [float(each) for each in page.evaluate(_UPDATES)]
            context.close()
    return made, first, fleet, updates


def _await(page: Page, name: str, count: int) -> None:
    """Until the page has measured so many; its policy lets no script of Playwright's own wait in it."""
    while int(page.evaluate(f"performance.getEntriesByName('{name}').length")) < count:
        page.wait_for_timeout(50)


def _rendered(site: Site) -> float:
    """From the end of a round to the first answer of it, packed, over loopback."""
    site.round()
    begin = time.perf_counter()
    site.ask("/api/v1/fleet", Accept_Encoding="gzip")
    return (time.perf_counter() - begin) * 1e3
