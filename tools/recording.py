"""`python -m tools.recording`: write docs/pictures/recording.svg, the demo's terminal and `gpuwatch explain`, animated.

The demo's fleet is played as fast as it goes, and its screen kept at each round until the first machines are stopped;
then somebody types `gpuwatch explain` for a machine that has its notice. A row of the terminal that several pictures
have is written once.
"""

import io
import logging
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import cast

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from gpuwatch.cli.console import style_line, theme
from gpuwatch.cli.explain import of_now
from gpuwatch.cli.fleet import EXPLAINED
from gpuwatch.controller.context import LiveParts
from gpuwatch.controller.round import ControllerContext, Round, step
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.simulate.fleet.live_demo import Show
from gpuwatch.simulate.fleet.options import STORY_BEGINS, Options, lives
from gpuwatch.simulate.fleet.play import play, stage_play
from gpuwatch.simulate.fleet.screen import Board

FILE = Path(__file__).parent.parent / "docs/pictures/recording.svg"
COLUMNS, LINES = 100, 28
_LARGEST_BYTES = 200_000
_HOURS = 3.0
_FRAME_SECONDS, _LAST_SECONDS = 1.0, 9.0
_STOPS = 2  # after so many, somebody asks for a reason
_CELL, _ROW, _EDGE = 8.0, 18.0, 10.0
_INK, _GROUND = "#d8dee6", "#151b23"


class EnoughError(Exception):
    """The story has come to its end."""


@dataclass(slots=True)
class Cast:
    """Pictures of a terminal, and how long each is shown."""

    console: Console = field(
        default_factory=lambda: Console(
            width=COLUMNS,
            height=LINES,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
            theme=theme("truecolor"),
            highlight=False,
        )
    )
    _rows: dict[str, int] = field(default_factory=dict)
    _frames: list[tuple[tuple[int, ...], float]] = field(default_factory=list)

    def show(self, shown: object, seconds: float) -> None:
        """One picture; what does not fit is cut off."""
        lines = self.console.render_lines(shown, self.console.options.update(height=None), pad=False)  # type: ignore[arg-type]  # whatever rich draws
        rows = tuple(self._row(line) for line in lines[:LINES])
        self._frames.append((rows, seconds))

    def _row(self, line: Sequence[Segment]) -> int:
        """The number of this row; the same row has one number."""
        parts, column = [], 0
        for text, style, _ in line:
            if text.strip():
                colour = style.color.get_truecolor().hex if style is not None and style.color is not None else ""
                marks = (f' fill="{colour}"' if colour else "") + (
                    ' font-weight="bold"' if style and style.bold else ""
                )
                marks += ' opacity=".65"' if style is not None and style.dim else ""
                at = column + len(text) - len(text.lstrip())
                length = cell_len(text.strip()) * _CELL
                parts.append(f'<text x="{at * _CELL:g}" textLength="{length:g}"{marks}>{escape(text.strip())}</text>')
            column += cell_len(text)
        return self._rows.setdefault("".join(parts), len(self._rows))

    def svg(self) -> str:
        """The file: all rows once, and each picture as a group that is seen in its time."""
        total = sum(seconds for _, seconds in self._frames)
        rows = "".join(f'<g id="r{number}">{row}</g>' for row, number in self._rows.items() if row)
        empty = self._rows.get("", -1)
        groups, rules, begin = [], [], 0.0
        for number, (lines, seconds) in enumerate(self._frames):
            uses = "".join(
                f'<use href="#r{row}" y="{index * _ROW:g}"/>' for index, row in enumerate(lines) if row != empty
            )
            groups.append(f'<g class="f f{number}">{uses}</g>')
            first, last = 100 * begin / total, 100 * (begin + seconds) / total
            seen = f"0%{{opacity:{int(begin == 0)}}}{first:.3f}%{{opacity:1}}{last:.3f}%,100%{{opacity:0}}"
            rules.append(f"@keyframes k{number}{{{seen}}}.f{number}{{animation-name:k{number}}}")
            begin += seconds
        width, height = COLUMNS * _CELL + 2 * _EDGE, LINES * _ROW + 2 * _EDGE
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
            'aria-label="gpuwatch demo stops idle machines, and gpuwatch explain says why">'
            f"<style>text{{font:13px ui-monospace,Menlo,Consolas,monospace;white-space:pre}}"
            f".f{{opacity:0;animation:{total:g}s step-end infinite}}{''.join(rules)}"
            "@media (prefers-reduced-motion:reduce){.f{animation:none}.f:last-child{opacity:1}}</style>"
            f'<rect width="100%" height="100%" rx="8" fill="{_GROUND}"/><defs>{rows}</defs>'
            f'<g fill="{_INK}" transform="translate({_EDGE:g} {_EDGE + 13:g})">{"".join(groups)}</g></svg>\n'
        )


def record(folder: Path) -> str:
    """Play, and keep what the terminal shows."""
    options = Options(hours=_HOURS)
    workloads, horizon = lives(options)
    ledger = Ledger.open(folder / "ledger.db")
    parts, world = stage_play(options, workloads, horizon, ledger)
    board = Board(world=world, rules=parts.rules, clock=parts.clock, begin=STORY_BEGINS)
    show = Show(parts=parts, ledger=ledger, world=world, board=board, options=options, horizon=horizon)
    board.totals = show.totals
    board.page = "The fleet's page: http://127.0.0.1:9461/"
    shots = Cast()
    shots.show(Text("$ gpuwatch demo"), _FRAME_SECONDS)

    def controller(parts: ControllerContext) -> Round:
        done = step(parts)
        board.round(done)
        shots.show(board, _FRAME_SECONDS)
        stopped = sum(node.state is NodeState.STOPPED for node in done.observation.fleet.nodes)
        noticed = [act.review.step.node_id for act in done.acts if act.review.step.verb is Verb.NOTICE]
        if stopped >= _STOPS and noticed:
            text, _ = of_now(cast("LiveParts", parts), done, noticed[0])
            typed = Text(f"$ gpuwatch explain {noticed[0]}\n")
            for line in text.split("\n"):
                typed.append_text(style_line(line, EXPLAINED)).append("\n")
            shots.show(typed, _LAST_SECONDS)
            raise EnoughError
        return done

    try:
        play(parts, world, options, horizon, controller=controller)
    except EnoughError:
        return shots.svg()
    finally:
        ledger.close()
    sys.exit(f"in {_HOURS:g} hours no machine got its notice after {_STOPS} stops")


def main() -> None:
    """Write the file, unless it is too large for a README."""
    logging.disable()
    with tempfile.TemporaryDirectory() as folder:
        picture = record(Path(folder))
    if len(picture.encode()) > _LARGEST_BYTES:
        sys.exit(f"{FILE} would have more than {_LARGEST_BYTES} bytes: {len(picture.encode())}")
    FILE.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
