"""Makes text from outside harmless for readers: tags, reasons, servers' answers on terminals and in logs."""


def legible(words: str, longest: int | None = None) -> str:
    """The text on one line without control characters: invisible characters are shown by their codes.

    Control characters, ends of lines, and marks that turn the direction of text cannot be seen. Text that is longer
    than `longest` is cut off there.
    """
    return "".join(each if each.isprintable() else _code(each) for each in words[:longest])[:longest]


def shown(text: str) -> str:
    """Text of several lines for a terminal; text from outside within a line must be made `legible` first."""
    return "\n".join(map(legible, text.split("\n")))


def _code(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
