"""Others' words where people read them, on terminals and in logs: tags, reasons, servers' answers."""


def legible(words: str) -> str:
    """On one line, and nothing that a terminal obeys: what cannot be seen is told by its code."""
    return "".join(each if each.isprintable() else _code(each) for each in words)


def shown(text: str) -> str:
    """Text of several lines for a terminal; whoever puts others' words into a line makes those `legible` before."""
    return "\n".join(map(legible, text.split("\n")))


def _code(letter: str) -> str:
    return letter.encode("unicode_escape").decode()
