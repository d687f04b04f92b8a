"""The terminal's colours: those of the fleet page, each by its name where there are only sixteen."""

import os
import sys

from rich.console import Console
from rich.style import Style
from rich.theme import Theme

from gpuwatch.model.colours import STATE_COLOURS

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
    many = bare.color_system in _MANY
    colours = {name: each.light if many else each.ansi for name, each in STATE_COLOURS.items()}
    styles = {f"state.{name}": Style(color=colour, bold=True) for name, colour in colours.items()}
    styles |= {f"tint.{name}": Style(color=colour) for name, colour in colours.items()}
    return Console(
        force_terminal=force_terminal,
        width=width,
        theme=Theme(styles),
        highlight=False,
        markup=False,
        emoji=False,
    )
