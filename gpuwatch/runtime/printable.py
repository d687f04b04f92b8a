"""Others' words where people read them, on terminals, in logs, messages and pages: tags, reasons, servers' answers."""


def legible(words: str, longest: int | None = None) -> str:
    """On one line, and nothing that a terminal obeys: what cannot be seen is told by its code.

    Control characters, ends of lines, and marks that turn the direction of text cannot be seen. Text that is longer
    than `longest` is cut off there.
    """
    return "".join(each if each.isprintable() else _code(each) for each in words[:longest])[:longest]


def shown(text: str) -> str:
    """Text of several lines for a terminal; whoever puts others' words into a line makes those `legible` before."""
    return "\n".join(map(legible, text.split("\n")))


def _code(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
