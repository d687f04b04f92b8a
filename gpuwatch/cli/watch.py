"""A screen that is drawn again and again, until Ctrl-C."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from gpuwatch.runtime.clock import Clock


def watch(draw: Callable[[int, int], Sequence[Text]], out: Console, clock: Clock, seconds: float) -> None:
    """Show what `draw` gives for the terminal's width and height, then wait so many seconds, and so on."""
    first = Text("asking the cloud and the agents …")
    with suppress(KeyboardInterrupt), Live(first, console=out, screen=True, auto_refresh=False) as live:
        while True:
            lines = draw(out.width, out.height)
            live.update(Group(*lines[: out.height]), refresh=True)
            clock.sleep(seconds)


def within(lines: Sequence[Text], height: int) -> list[Text]:
    """The lines that fit; the last one says how many rows are missing."""
    if len(lines) <= height:
        return list(lines)
    kept = max(0, height - 1)
    return [*lines[:kept], Text(f"… {len(lines) - kept} more lines; a larger window or --pool, --state shows them")]
