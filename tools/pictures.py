"""`python -m tools.pictures`: draw docs/pictures/ from the demo's fleet, with the system's Chromium and Playwright.

Two simulated days are played as fast as they go. The pictures are the terminal of `gpuwatch demo` when the first
machines are stopped, the controller's page on the second day, and the HTML report of that day.
"""

import io
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from playwright.sync_api import Page, sync_playwright
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME

from gpuwatch.cli.console import theme
from gpuwatch.controller.round import ControllerContext, Round, step
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.money.accounting.settings import CostSettings
from gpuwatch.money.report.gather import gather_report
from gpuwatch.money.report.pages import as_html
from gpuwatch.money.report.period import Period
from gpuwatch.runtime.clock import Clock
from gpuwatch.simulate.demo import serve_page
from gpuwatch.simulate.fleet.live_demo import Show
from gpuwatch.simulate.fleet.options import STORY_BEGINS, Options, lives
from gpuwatch.simulate.fleet.play import play, stage_play
from gpuwatch.simulate.fleet.screen import Board

FOLDER = Path(__file__).parent.parent / "docs/pictures"
_HOURS = 42.0
_WIDTH, _REPORT_WIDTH, _COLUMNS = 1200, 760, 120
_LARGEST_BYTES = 200_000
_BUSY_NODES = 4
_PAINT_MILLISECONDS = 1500
_TERMINAL = """<style>
body {{ margin: 0; background: #fff }}
svg {{ display: block; box-sizing: border-box; width: {width}px; border: 1px solid #d0d7de }}
</style>{svg}"""


@contextmanager
def a_browser() -> Iterator[Callable[[int], Page]]:
    """New pages of a light Chromium."""
    program = shutil.which("chromium")
    if program is None:
        sys.exit("Chromium is not installed (Debian package: chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield lambda width: browser.new_page(viewport={"width": width, "height": 800}, color_scheme="light")
        browser.close()


def keep(page: Page, name: str, height: int) -> None:
    """One picture, of the top of the page; refuses one that is too large for a README."""
    path = FOLDER / f"{name}.png"
    width = page.evaluate("innerWidth")
    page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
    if path.stat().st_size > _LARGEST_BYTES:
        sys.exit(f"{path} has more than {_LARGEST_BYTES} bytes")


def terminal(board: Board) -> str:
    """The demo's screen as an HTML page."""
    console = Console(
        record=True,
        width=_COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        theme=theme("truecolor"),
        highlight=False,
    )
    console.print(board)
    svg = console.export_svg(title="gpuwatch demo", theme=DEFAULT_TERMINAL_THEME)
    return _TERMINAL.format(width=_WIDTH, svg=svg)


def report(ledger: Ledger, clock: Clock, interval: float) -> str:
    """The second day's report."""
    day = STORY_BEGINS.date() + timedelta(days=1)
    period = Period(zone=ZoneInfo("UTC"), first=day, after=day + timedelta(days=1))
    return as_html(gather_report(ledger, period, clock.now(), CostSettings(), interval))


def is_first_morning(done: Round) -> bool:
    """Some nodes are stopped, and another gets its notice."""
    stopped = [node for node in done.observation.fleet.nodes if node.state is NodeState.STOPPED]
    return len(stopped) > 1 and any(act.review.step.verb is Verb.NOTICE for act in done.acts)


def is_busy_morning(done: Round) -> bool:
    """The second day's first round in which some nodes work, one has its notice, and others are stopped."""
    nodes = done.observation.fleet.nodes
    states = [node.activity.state for node in nodes if node.state is NodeState.RUNNING]
    noticed = any(act.review.step.verb is Verb.NOTICE for act in done.acts)
    second_day = done.observation.now > STORY_BEGINS + timedelta(hours=25)
    return second_day and noticed and states.count(State.BUSY) >= _BUSY_NODES and len(states) < len(nodes)


def main() -> None:
    """Play, and draw."""
    FOLDER.mkdir(exist_ok=True)
    logging.disable()
    options = Options(hours=_HOURS)
    workloads, horizon = lives(options)
    with tempfile.TemporaryDirectory() as folder, a_browser() as new_page:
        ledger = Ledger.open(Path(folder) / "ledger.db")
        parts, world = stage_play(options, workloads, horizon, ledger)
        board = Board(world=world, rules=parts.rules, clock=parts.clock, begin=STORY_BEGINS)
        show = Show(parts=parts, ledger=ledger, world=world, board=board, options=options, horizon=horizon)
        board.totals = show.totals
        board.page = "The fleet's page: http://127.0.0.1:9461/"
        missing = ["demo", "page"]
        with serve_page(parts, ledger) as (url, take):

            def controller(parts: ControllerContext) -> Round:
                done = step(parts)
                take(done, 0.1)
                board.round(done)
                if "demo" in missing and is_first_morning(done):
                    missing.remove("demo")
                    page = new_page(_WIDTH)
                    page.set_content(terminal(board))
                    keep(page, "demo", int(page.locator("svg").bounding_box()["height"]))  # type: ignore[index]
                if "page" in missing and is_busy_morning(done):
                    missing.remove("page")
                    page = new_page(_WIDTH)
                    page.goto(url)
                    page.wait_for_selector("#rows tr")
                    page.wait_for_timeout(_PAINT_MILLISECONDS)
                    keep(page, "page", 940)
                return done

            play(parts, world, options, horizon, controller=controller)
        page = new_page(_REPORT_WIDTH)
        page.set_content(report(ledger, parts.clock, options.interval))
        keep(page, "report", 1000)
        ledger.close()
    if missing:
        sys.exit(f"the story has no moment for {', '.join(missing)}")


if __name__ == "__main__":
    main()
