"""Makes names from outside harmless for readers; runtime/printable.py has the rest."""


def legible(words: str, longest: int | None = None) -> str:
    """The text on one line without control characters: invisible characters are shown by their codes.

    Control characters, ends of lines, and marks that turn the direction of text cannot be seen. Text that is longer
    than `longest` is cut off there.
    """
    words = words[:longest]
    if words.isprintable():  # as nearly all are
        return words
    return "".join(each if each.isprintable() else _code(each) for each in words)[:longest]


def _code(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
