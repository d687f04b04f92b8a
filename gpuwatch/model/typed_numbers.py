"""PURE: numbers as people type them in their own habit: which number an option or a table would have to say.

Nothing here decides what was meant. The number stands in a message; a person types it again.

1. A sign or a name of a currency, and any other unit, goes: `$2`, `250000 CNY`, `10.2kW`, `3y`.
2. A comma before three digits separates thousands, if it can: `250,000`. One before any other count is a decimal point:
   `2,50`. Spaces, `_` and apostrophes between digits separate thousands, too.
3. A percentage is a hundredth: `30%` is 0.3.
"""

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

_NUMBER = re.compile(r"[-+]?\d[\d.,_' \u00a0\u202f]*")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_POINTS = re.compile(r"[-+]?\d{1,3}(\.\d{3})+,\d+")  # 1.250,50
_LONGEST = 100
_MOST_DIGITS = 15  # before the point, and zeros after it


def readable(text: str) -> str | None:
    """The number that was probably meant, as one that is read: digits and a point; None: nothing like a number."""
    found = None if len(text) > _LONGEST else _NUMBER.search(text)
    if found is None:
        return None
    digits = re.sub(r"[_'\s\u00a0\u202f]", "", found[0]).rstrip(".,")
    if _THOUSANDS.fullmatch(digits):
        digits = digits.replace(",", "")
    elif _POINTS.fullmatch(digits):
        digits = digits.replace(".", "").replace(",", ".")
    else:
        digits = digits.replace(",", ".")
    try:
        number = Decimal(digits)
    except InvalidOperation:
        return None
    if text[found.end() :].lstrip().startswith("%"):
        number /= 100
    return f"{number:f}"


def is_amount(number: Decimal) -> bool:
    """Whether a number is one that something can cost or measure: finite, and neither astronomic nor microscopic.

    Exact sums of others take as long as their exponents are large: 1E-99999999 takes minutes and gigabytes.
    """
    return number.is_finite() and (not number or -_MOST_DIGITS <= number.adjusted() <= _MOST_DIGITS)


def as_share(number: Decimal) -> str | None:
    """A percentage without its sign as a share, such as 0.3 for 30; None: it is no percentage, either."""
    return f"{(number / 100).normalize():f}" if 1 < number <= 100 else None  # noqa: PLR2004  percent


def right_way(text: str, example: str) -> str:
    """The end of a message about a text that is no number: `write 2.50`."""
    meant = readable(text)
    return f"write {meant}" if meant is not None else f"write for example {example}"


def semicolons(cells: Sequence[str]) -> str | None:
    """What is wrong with a line of a CSV file that has one cell and semicolons in it; None: not that."""
    return "its columns are separated by semicolons, not commas" if len(cells) == 1 and ";" in cells[0] else None
