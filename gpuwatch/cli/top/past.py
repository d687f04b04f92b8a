"""Bars, and the last two minutes of each GPU as a strip: what `gpuwatch top` draws where a terminal has room for it."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from gpuwatch.model.host_page import HostPage

WIDE = 100  # columns from which there is room
BAR = 6
STRIP_TITLE = "2 MIN"
_CELLS = 12
_CELL_SECONDS = 10.0
_LEVELS = "▁▂▃▄▅▆▇█"
_PARTS = " ▏▎▍▌▋▊▉█"


def bar(ratio: float | None) -> str:
    """Six cells, filled from the left; blank if it is not known."""
    eighths = 0 if ratio is None else round(8 * BAR * min(1.0, max(0.0, ratio)))
    whole, part = divmod(eighths, 8)
    return ("█" * whole + (_PARTS[part] if part else "")).ljust(BAR)


@dataclass(slots=True)
class Past:
    """The utilization of each GPU at each look of the last two minutes."""

    _looks: deque[tuple[datetime, dict[str, float]]] = field(default_factory=deque)

    def note(self, page: HostPage) -> None:
        """Keep the values of one look, for the GPUs that have one."""
        at = page.verdict.at
        values = {gpu.uuid: gpu.utilization_max_ratio or gpu.utilization_ratio for gpu in page.gpus}
        self._looks.append((at, {uuid: value for uuid, value in values.items() if value is not None}))
        while self._looks and not timedelta(0) <= at - self._looks[0][0] < timedelta(seconds=_CELLS * _CELL_SECONDS):
            self._looks.popleft()

    def strip(self, uuid: str) -> str:
        """Ten seconds a cell, the newest on the right, each the highest value; blank where there was no look."""
        if not self._looks:
            return ""
        newest = self._looks[-1][0]
        highest: dict[int, float] = {}
        for at, values in self._looks:
            cell = _CELLS - 1 - int((newest - at).total_seconds() // _CELL_SECONDS)
            if uuid in values and 0 <= cell < _CELLS:
                highest[cell] = max(highest.get(cell, 0.0), values[uuid])
        return "".join(_level(highest.get(cell)) for cell in range(_CELLS))


def _level(ratio: float | None) -> str:
    return " " if ratio is None else _LEVELS[min(7, max(0, int(8 * ratio)))]
