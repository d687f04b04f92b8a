"""The terminal: a colour for each state as on the fleet page (a test holds page.css to it), and screens redrawn.

People who are colour-blind can distinguish blue, orange and purple. The state's name stands next to each colour.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rich.console import Console, Group
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

from gpuwatch.model.readable import legible
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.columns import wrap_words

_GAP = re.compile(r"^ +| {2,}")  # what stands before a column
_MANY = frozenset({"256", "truecolor"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Colour:
    """A colour on light and on dark ground as #rrggbb, and its name where a terminal has sixteen colours."""

    light: str
    dark: str
    ansi: str


# The light ones can be read on white and on black, so terminals, whose ground is not known, get those.
STATE_COLOURS: dict[str, Colour] = {
    "busy": Colour(light="#2a78b8", dark="#4a9ade", ansi="bright_blue"),
    "idle": Colour(light="#e39a1f", dark="#f0b043", ansi="yellow"),
    "occupied": Colour(light="#7a8b2c", dark="#b5c95a", ansi="green"),
    "parked": Colour(light="#8f63c7", dark="#b08be0", ansi="magenta"),
    "stalled": Colour(light="#c8382e", dark="#ef6a5f", ansi="red"),
    "unknown": Colour(light="#a3abb4", dark="#626c77", ansi="bright_black"),
    "healthy": Colour(light="#3a8f57", dark="#4fb477", ansi="green"),
}


def is_interactive() -> bool:
    """Whether somebody sits at a terminal that can show a screen."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in {"dumb", "unknown", ""}


def console(*, force_terminal: bool | None = None, width: int | None = None) -> Console:
    """Standard output with two styles for each state: `state.` is bold, `tint.` is not. NO_COLOR takes colours away."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")  # in a locale without °
    bare = Console(force_terminal=force_terminal, width=width)
    return Console(
        force_terminal=force_terminal,
        width=width,
        theme=theme(bare.color_system),
        highlight=False,
        markup=False,
        emoji=False,
    )


def theme(color_system: str | None) -> Theme:
    """The styles, for a terminal with so many colours."""
    many = color_system in _MANY
    colours = {name: each.light if many else each.ansi for name, each in STATE_COLOURS.items()}
    styles = {f"state.{name}": Style(color=colour, bold=True) for name, colour in colours.items()}
    return Theme(styles | {f"tint.{name}": Style(color=colour) for name, colour in colours.items()})


def width_of(out: Console) -> int | None:
    """How wide lines may be; None on a pipe and in a file, where they are whole. COLUMNS sets it everywhere."""
    return out.width if out.is_terminal or "COLUMNS" in os.environ else None


def show_lines(lines: Iterable[Text | str], out: Console | None = None) -> None:
    """Print lines of tables as they are, and sentences on as many lines as they take, with their indent."""
    out = out or console()
    width = width_of(out)
    for line in lines:
        text = Text(legible(line)) if isinstance(line, str) else line
        parts = [text] if width is None or text.no_wrap else _wrap_line(text, width)
        for part in parts:
            out.print(part, soft_wrap=True)


def style_line(line: str, styles: Mapping[str, str]) -> Text:
    """The line in the style of the first beginning that is its own."""
    return Text(legible(line), style=next((style for begin, style in styles.items() if line.startswith(begin)), ""))


def _wrap_line(text: Text, width: int) -> list[Text]:
    """A line within the width; in a list it goes on below its last column, else where it began."""
    begin = max((found.end() for found in _GAP.finditer(text.plain) if found.end() <= width // 2), default=0)
    parts = wrap_words(text.plain[begin:], width - begin, None)
    heads = [text.plain[:begin], *[" " * begin] * (len(parts) - 1)]
    return [Text(head + part, style=text.style) for head, part in zip(heads, parts, strict=True)]


def watch(draw: Callable[[int, int], Sequence[Text]], out: Console, clock: Clock, seconds: float) -> None:
    """Show what `draw` gives for the terminal's width and height, then wait so many seconds, and so on."""
    from rich.live import Live

    first = Text("asking the cloud and the agents …")
    with suppress(KeyboardInterrupt), Live(first, console=out, screen=True, auto_refresh=False) as live:
        while True:
            lines = draw(out.width, out.height)
            live.update(Group(*lines[: out.height]), refresh=True)
            clock.sleep(seconds)


def fit_height(lines: Sequence[Text], height: int) -> list[Text]:
    """The lines that fit; the last one says how many rows are missing."""
    if len(lines) <= height:
        return list(lines)
    kept = max(0, height - 1)
    return [*lines[:kept], Text(f"… {len(lines) - kept} more lines; a larger window or --pool, --state shows them")]
