"""PURE: names that people mistype: which known name is near a written one.

Nothing here decides that two names are the same. A near name is what a message suggests, or a reason to hold.
"""

from collections.abc import Iterable
from functools import lru_cache
from unicodedata import normalize

_LETTERS_AN_EDIT = 4  # a suggestion may differ in one of so many characters


@lru_cache(maxsize=4096)
def folded(text: str) -> str:
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
    written = folded(name)
    ranked = sorted((edits(written, folded(each)), each) for each in known)
    if not ranked or ranked[0][0] > max(1, len(written) // _LETTERS_AN_EDIT):
        return None
    return ranked[0][1]


def meant(name: str, known: Iterable[str]) -> str:
    """A sentence to follow a name that is not known: the one that was probably meant, or all that there are."""
    known = sorted(known)
    near = nearest(name, known)
    return f"The nearest is {near!r}." if near is not None else f"There are: {', '.join(known) or 'none'}."
