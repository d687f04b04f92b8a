"""The terminal's colours: those of the fleet page, each by its name where there are only sixteen."""

import os
import re
import sys
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.style import Style
from rich.text import Text
from rich.theme import Theme

from gpuwatch.model.colours import STATE_COLOURS
from gpuwatch.model.legible import legible
from gpuwatch.runtime.columns import wrapped

_GAP = re.compile(r"^ +| {2,}")  # what stands before a column
_MANY = frozenset({"256", "truecolor"})


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


def show(lines: Iterable[Text | str], out: Console | None = None) -> None:
    """Print lines of tables as they are, and sentences on as many lines as they take, with their indent."""
    out = out or console()
    width = width_of(out)
    for line in lines:
        text = Text(legible(line)) if isinstance(line, str) else line
        parts = [text] if width is None or text.no_wrap else _wrapped(text, width)
        for part in parts:
            out.print(part, soft_wrap=True)


def styled(line: str, styles: Mapping[str, str]) -> Text:
    """The line in the style of the first beginning that is its own."""
    return Text(legible(line), style=next((style for begin, style in styles.items() if line.startswith(begin)), ""))


def _wrapped(text: Text, width: int) -> list[Text]:
    """A line within the width; in a list it goes on below its last column, else where it began."""
    begin = max((found.end() for found in _GAP.finditer(text.plain) if found.end() <= width // 2), default=0)
    parts = wrapped(text.plain[begin:], width - begin, None)
    heads = [text.plain[:begin], *[" " * begin] * (len(parts) - 1)]
    return [Text(head + part, style=text.style) for head, part in zip(heads, parts, strict=True)]
