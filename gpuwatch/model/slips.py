"""PURE: what people mistype: which known name is near a written one, and which number was probably meant.

Nothing here decides that two names are the same, or what was meant. A near name is what a message suggests, or a reason
to hold; the number stands in a message, and a person types it again.
"""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from unicodedata import normalize

_LETTERS_AN_EDIT = 4  # a suggestion may differ in one of so many characters
_NUMBER = re.compile(r"[-+]?\d[\d.,_' \u00a0\u202f]*")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_POINTS = re.compile(r"[-+]?\d{1,3}(\.\d{3})+,\d+")  # 1.250,50
_LONGEST = 100
_MOST_DIGITS = 15  # before the point, and zeros after it


@lru_cache(maxsize=4096)
def fold_text(text: str) -> str:
    """Letters and digits alone, without case and typographic variants: `Prod_Inference ` and `prod-inference` agree."""
    return "".join(letter for letter in normalize("NFKC", text).casefold() if letter.isalnum())


@lru_cache(maxsize=65536)
def edits(one: str, other: str) -> int:
    """How many characters to insert, delete, replace or swap with their neighbour make one text of the other."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        earlier, before, row = before, row, [i]
        for j, b in enumerate(other, 1):
            row.append(min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b)))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                row[j] = min(row[j], earlier[j - 2] + 1)
    return row[-1]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None: none is near."""
    written = fold_text(name)
    ranked = sorted((edits(written, fold_text(each)), each) for each in known)
    if not ranked or ranked[0][0] > max(1, len(written) // _LETTERS_AN_EDIT):
        return None
    return ranked[0][1]


def meant_name(name: str, known: Iterable[str]) -> str:
    """A sentence to follow a name that is not known: the one that was probably meant, or all that there are."""
    known = sorted(known)
    near = nearest(name, known)
    return f"The nearest is {near!r}." if near is not None else f"There are: {', '.join(known) or 'none'}."


def readable(text: str) -> str | None:
    """The number that was probably meant, as one that is read: digits and a point; None: nothing like a number.

    1. A sign or a name of a currency, and any other unit, goes: `$2`, `250000 CNY`, `10.2kW`, `3y`.
    2. A comma before three digits separates thousands, if it can: `250,000`. One before any other count is a decimal
       point: `2,50`. Spaces, `_` and apostrophes between digits separate thousands, too.
    3. A percentage is a hundredth: `30%` is 0.3.
    """
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
