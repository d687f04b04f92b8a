"""One colour for each state, on the fleet page and on terminals; a test holds page.css to this table.

People who are colour-blind can distinguish blue, orange and purple. The state's name stands next to each colour.
"""

from dataclasses import dataclass


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
