"""PURE: what people read: numbers with their units (`0.86 GB`, `37 %`, `1h30m`), and others' words made harmless."""

from gpuwatch.model.duration import format_duration

_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_COUNTS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_ANY = 1e-9  # no limit that a person would write
_LARGE_ENOUGH = 0.5  # of the next unit: 0.86 GB reads better than 855 MB next to 21.5 GB


def legible(words: str, longest: int | None = None) -> str:
    """The text on one line without control characters: invisible characters are shown by their codes.

    Control characters, ends of lines, and marks that turn the direction of text cannot be seen. Text that is longer
    than `longest` is cut off there.
    """
    words = words[:longest]
    if words.isprintable():  # as nearly all are
        return words
    return "".join(each if each.isprintable() else _code(each) for each in words)[:longest]


def quantity_text(seen: float, limit: float | None, unit: str) -> str:
    """`1.4 cores, limit 0.8`: what was seen, and the limit where there is one; both in one unit."""
    if unit == "ratio" and limit is not None and limit < _ANY:
        return f"{number_text(100 * seen)} %, any is work"
    if unit == "ratio":
        return f"{number_text(100 * seen)} %" + ("" if limit is None else f", limit {number_text(100 * limit)} %")
    if unit.startswith("seconds"):
        words = f"{format_duration(seen)}{unit.removeprefix('seconds')}"
        return words + (f", limit {format_duration(limit)}" if limit else "")
    if unit in {"bytes", "bytes per second"}:
        most = max(abs(seen), abs(limit or 0.0))
        size, word = next(((size, word) for size, word in _BYTES if most >= _LARGE_ENOUGH * size), (1.0, "bytes"))
        per = "" if unit == "bytes" else "/s"
        return _against(seen / size, None if limit is None else limit / size, f"{word}{per}")
    return _against(seen, limit, unit)


def count_text(number: int) -> str:
    """`7 billion`, `6.74 billion`, `350 million`; below a million the number itself."""
    for size, word in _COUNTS:
        if number >= size:
            return f"{number / size:,.4g} {word}" if number < 1000 * size else f"{number / size:,.0f} {word}"
    return f"{number:,}"


def how_many(number: int, noun: str) -> str:
    """`1 node`, `1,200 nodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def number_text(value: float) -> str:
    """Three digits or so, without noise: `410`, `16.7`, `0.86`, `0.0042`."""
    if value != 0 and abs(value) < 0.1:  # noqa: PLR2004  two decimals would show too little of it
        return f"{value:.2g}"
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2  # noqa: PLR2004  as many digits as are read
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _against(seen: float, limit: float | None, unit: str) -> str:
    words = f"{number_text(seen)} {unit}".rstrip()
    return words if limit is None else f"{words}, limit {number_text(limit)}"


def _code(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
