"""PURE: charts as inline SVG for pages that load nothing: bars, points, stacked areas, histograms.

Each is drawn 480 units wide, so that its letters stay readable on a phone, and carries a title and a description. Names
are escaped. Colours are classes of `STYLE`, which a page includes once: k0 to k7, in light, dark and print.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape

WIDTH = 480
COLOURS = 8
_LIGHT = ("#0b62a8", "#b3470c", "#1a7a43", "#8a3a94", "#7a5c00", "#00777c", "#b02a5b", "#555f6b")
_DARK = ("#66b3f2", "#f0965a", "#63c98b", "#d39be0", "#d9b84a", "#5cc8cc", "#f285ab", "#a5b0bd")
_TEXT = 14
_LEAST_ROOM = 1e-12  # what differs by less is as good as equal
_LEAST_BAR = 60  # the longest bar's room: names are cut before it is less
_GAP = 4.0  # between words beside each other
_LETTER = 8.3  # a letter of that height is hardly wider in any font


def _colours(values: Sequence[str]) -> str:
    return " ".join(f"--k{number}: {value};" for number, value in enumerate(values))


STYLE = f"""
:root {{ {_colours(_LIGHT)} --ink: #1b1f24; --faint: #59636e; --paper: #ffffff; --line: #d0d7de; }}
@media screen and (prefers-color-scheme: dark) {{
  :root {{ {_colours(_DARK)} --ink: #e6edf3; --faint: #9aa5b1; --paper: #0d1117; --line: #30363d; }}
}}
svg {{ display: block; width: 100%; max-width: {WIDTH + 60}px; height: auto; }}
svg text {{ fill: var(--ink); font: {_TEXT}px system-ui, sans-serif;
  paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }}
svg .faint {{ fill: var(--faint); }}
svg .rule {{ stroke: var(--line); stroke-width: 1; }}
svg .mark {{ stroke: currentColor; stroke-width: 1.5; stroke-dasharray: 4 3; }}
svg .edge {{ stroke: var(--paper); stroke-width: 1; }}
{" ".join(f"svg .k{number} {{ fill: var(--k{number}); color: var(--k{number}); }}" for number in range(COLOURS))}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A bar, a point or a mark: its label, where it stands on x (and y), how it is written, its colour's number."""

    label: str
    x: float
    y: float = 0.0
    written: str = ""
    colour: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """One layer of stacked areas, a value for each step."""

    label: str
    values: Sequence[float]
    colour: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis measures, how a number on it is written, and which are, where they are not round ones."""

    name: str
    write: Callable[[float], str]
    ticks: Sequence[float] = ()


def bars(
    title: str, description: str, items: Sequence[Item], *, marks: Sequence[Item] = (), end: float = math.inf
) -> str:
    """A bar for each item with its number behind it; one longer than `end` is cut, and marks are lines across all."""
    row, head = 26, 20 * len(marks)
    written = 16 + _LETTER * max((len(item.written) for item in items), default=0)
    letters = max(1, int((WIDTH - written - 12 - _LEAST_BAR) / _LETTER))
    items = [replace(item, label=_cut(item.label, letters)) for item in items]
    left = 12 + _LETTER * max((len(item.label) for item in items), default=0)
    room = WIDTH - left - written
    most = min(end, max((each.x for each in (*items, *marks)), default=0.0))
    scale = room / most if most > _LEAST_ROOM else 0.0
    height = head + row * len(items) + 4
    drawn = []
    for number, item in enumerate(items):
        y, width = head + row * number, max(0.0, min(item.x, most)) * scale
        drawn += [
            _label(0, y + 18, item.label, "start", ""),
            f'<rect class="k{item.colour}" x="{left:.1f}" y="{y + 4}" width="{width:.1f}" height="{row - 8}"/>',
            _label(WIDTH, y + 18, item.written, "end", ""),
        ]
        if item.x > most:
            x = left + width - 14
            drawn.append(f'<path class="edge" fill="none" stroke-width="3" d="M{x:.1f} {y + 22}l6 -18m4 0l-6 18"/>')
    for number, mark in enumerate(marks):
        if 0 <= mark.x <= most:
            drawn += _mark(mark, left + mark.x * scale, 20 * number + 14, height, WIDTH)
    return _svg(title, description, height, drawn)


def points(title: str, description: str, items: Sequence[Item], x: Axis, y: Axis) -> str:
    """A labelled point for each item; an axis begins at 0 unless all points are far from it."""
    height, left, bottom, top = 334, 64.0, 284.0, 24.0
    right = WIDTH - 20.0
    low_x, high_x = _around([item.x for item in items], near=True)
    low_y, high_y = _around([item.y for item in items], near=True)

    def at_x(value: float) -> float:
        return left + (value - low_x) / (high_x - low_x) * (right - left)

    def at_y(value: float) -> float:
        return bottom - (value - low_y) / (high_y - low_y) * (bottom - top)

    drawn = [_label(0, 14, y.name, "start", "faint"), _label(right, height - 4, x.name, "end", "faint")]
    taken = [(0.0, 0.0, _LETTER * len(y.name), 17.0)]
    for value in ticks(low_y, high_y):
        drawn.append(_line(left, at_y(value), right, at_y(value)))
        drawn.append(_label(left - 6, at_y(value) + 5, y.write(value), "end", "faint"))
        taken.append((left - 6 - _LETTER * len(y.write(value)), at_y(value) - 9, left - 6, at_y(value) + 8))
    drawn += [_line(at_x(value), top, at_x(value), bottom) for value in ticks(low_x, high_x)]
    drawn += _evenly(bottom + 24, [(at_x(value), x.write(value), "middle") for value in ticks(low_x, high_x)])
    taken.append((0.0, bottom + 4, float(WIDTH), height))  # the words below
    spots = dict[tuple[float, float], list[Item]]()
    for item in items:
        spots.setdefault((round(at_x(item.x)), round(at_y(item.y))), []).append(item)
    taken += [(px - 7, py - 7, px + 7, py + 7) for px, py in spots]
    for (px, py), here in spots.items():
        drawn.append(f'<circle class="k{here[0].colour} edge" cx="{px:.0f}" cy="{py:.0f}" r="6"/>')
        words = _cut(", ".join(item.label for item in here), int(WIDTH / _LETTER))
        box = _free_place(px, py, _LETTER * len(words), taken, bottom)
        taken.append(box)
        drawn.append(_label(box[0], box[3] - 3, words, "start", ""))
    return _svg(title, description, height, drawn)


_Box = tuple[float, float, float, float]  # left, top, right, bottom


def _free_place(x: float, y: float, width: float, taken: Sequence[_Box], floor: float) -> _Box:
    """Where words at a point hit nothing: at its side if there is room, else above or below, over the floor."""
    sides = [(x + 10, y - 8), (x - 10 - width, y - 8)]
    above = [(x - width / 2, y + step * sign) for step in range(10, 240, 12) for sign in (-1, 1)]
    sides += [each for each in above if 0 <= each[1] <= floor - 13.0]
    boxes = [
        (left, top, left + width, top + 17.0)
        for near, top in sides
        if (left := min(max(0.0, near), WIDTH - width)) == near or top != y - 8
    ]

    def hits(box: _Box) -> bool:
        return any(
            box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3] for other in taken
        )

    return next((box for box in boxes if not hits(box)), boxes[-1])


def areas(title: str, description: str, bands: Sequence[Band], y: Axis, moments: Sequence[tuple[float, str]]) -> str:
    """Layers on each other, the first at the bottom; `moments` are ticks on x, from 0 to 1."""
    height, left, right, top, bottom = 240, 48.0, WIDTH - 8.0, 34.0, 206.0
    steps = max((len(band.values) for band in bands), default=0)
    below, most = [0.0] * steps, max(map(sum, zip(*(band.values for band in bands), strict=True)), default=0.0)
    _, high = _around([most])
    drawn = [_label(0, top - 8, y.name, "start", "faint")]
    for value in ticks(0.0, high):
        at = bottom - value / high * (bottom - top)
        drawn.append(_line(left, at, right, at))
        drawn.append(_label(left - 6, at + 5, y.write(value), "end", "faint"))
    legend = WIDTH - sum(24 + _LETTER * len(band.label) for band in bands)
    for band in bands:
        above = [under + value for under, value in zip(below, band.values, strict=True)]
        path = "L".join(_steps(above, high, (left, right, top, bottom)))
        back = "L".join(reversed(list(_steps(below, high, (left, right, top, bottom)))))
        drawn.append(f'<path class="k{band.colour}" d="M{path}L{back}Z"/>')
        drawn.append(f'<rect class="k{band.colour}" x="{legend:.1f}" y="3" width="12" height="12"/>')
        drawn.append(_label(legend + 16, 14, band.label, "start", ""))
        legend += 24 + _LETTER * len(band.label)
        below = above
    drawn += _evenly(bottom + 20, [_moment(left, right, share, words) for share, words in moments])
    return _svg(title, description, height, drawn)


def histogram(
    title: str,
    description: str,
    edges: Sequence[float],
    heights: Sequence[float],
    marks: Sequence[Item],
    x: Axis,
    y: Axis,
) -> str:
    """Bars between edges on a logarithmic x, and marks as lines with their labels above."""
    left, right, top = 48.0, WIDTH - 8.0, 18 * len(marks) + 30.0
    bottom = top + 170.0
    first, last = math.log(edges[0]), math.log(edges[-1])
    _, high = _around([max(heights, default=0.0)])

    def at(value: float) -> float:
        inside = min(max(math.log(value), first), last) if value > 0 else first
        return left + (inside - first) / (last - first) * (right - left)

    drawn = [_label(0, 14, y.name, "start", "faint")]
    for value in ticks(0.0, high):
        level = bottom - value / high * (bottom - top)
        drawn.append(_line(left, level, right, level))
        drawn.append(_label(left - 6, level + 5, y.write(value), "end", "faint"))
    for begin, end, value in zip(edges, edges[1:], heights, strict=False):
        tall = value / high * (bottom - top)
        drawn.append(
            f'<rect class="k7" x="{at(begin) + 0.5:.1f}" y="{bottom - tall:.1f}" '
            f'width="{at(end) - at(begin) - 1:.1f}" height="{tall:.1f}"/>'
        )
    shown = list[_Label]()
    for value in x.ticks:
        if edges[0] <= value <= edges[-1] and _apart([*shown, (at(value), x.write(value), "middle")]):
            shown.append((at(value), x.write(value), "middle"))
    drawn += _evenly(bottom + 24, shown)
    drawn.append(_label(right, bottom + 43, x.name, "end", "faint"))
    for number, mark in enumerate(sorted(marks, key=lambda each: -each.x)):
        drawn += _mark(mark, at(mark.x), 18 * number + 32, bottom, right)
    return _svg(title, description, bottom + 48, drawn)


_Label = tuple[float, str, str]  # x, words, anchor


def _moment(left: float, right: float, share: float, words: str) -> _Label:
    """Words under a moment, inside of the ends."""
    x, half = left + share * (right - left), _LETTER * len(words) / 2
    if x - half < left:
        return max(x, 0.0) if x + 2 * half <= WIDTH else 0.0, words, "start"
    return (x, words, "middle") if x + half <= WIDTH else (float(WIDTH), words, "end")


def _evenly(y: float, labels: Sequence[_Label]) -> list[str]:
    """A row of words: all of them, or each second, third ... where they would meet."""
    each = next((each for each in range(1, len(labels)) if _apart(labels[::each])), max(1, len(labels)))
    return [_label(x, y, words, anchor, "faint") for x, words, anchor in labels[::each]]


def _apart(labels: Sequence[_Label]) -> bool:
    """Whether no words meet their neighbour's."""
    before = -math.inf
    for x, words, anchor in labels:
        width = _LETTER * len(words)
        begin = x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchor]
        if begin < before + _GAP:
            return False
        before = begin + width
    return True


def _cut(words: str, letters: int) -> str:
    return words if len(words) <= letters else words[: letters - 1] + "…"


def ticks(low: float, high: float) -> Iterator[float]:
    """About five round numbers between two."""
    step = 10.0 ** math.floor(math.log10((high - low) / 5)) if high > low else 1.0
    step *= next((each for each in (1, 2, 5) if (high - low) / (step * each) <= 6), 10)  # noqa: PLR2004  seven ticks at most
    for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
        yield number * step


def _around(values: Sequence[float], *, near: bool = False) -> tuple[float, float]:
    """Ends of an axis that leaves some room and takes in 0; `near`: only if the values are as far apart as from 0."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if not near or high - low <= 0 or low <= 2 * (high - low):
        low, high = min(0.0, low), max(0.0, high)
    room = 0.08 * (high - low)
    return (low - (0.0 if low == 0 else room), high + room) if room > _LEAST_ROOM else (low, low + 1.0)


def _steps(values: Sequence[float], high: float, box: tuple[float, float, float, float]) -> Iterator[str]:
    """The corners of a line that holds each value for its step."""
    left, right, top, bottom = box
    for number, value in enumerate(values):
        y = bottom - value / high * (bottom - top)
        for edge in (number, number + 1):
            yield f"{left + edge / len(values) * (right - left):.1f} {y:.1f}"


def _mark(mark: Item, x: float, text_y: float, bottom: float, right: float) -> list[str]:
    """A line from its label down, the label on the side where there is room."""
    room = x + 6 + _LETTER * len(mark.label) <= right
    return [
        f'<line class="k{mark.colour} mark" x1="{x:.1f}" y1="{text_y - 10}" x2="{x:.1f}" y2="{bottom:.1f}"/>',
        _label(x + 5 if room else x - 5, text_y, mark.label, "start" if room else "end", f"k{mark.colour}"),
    ]


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="rule" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _label(x: float, y: float, words: str, anchor: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(title: str, description: str, height: float, drawn: Sequence[str]) -> str:
    texts = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">{texts}{"".join(drawn)}</svg>'
