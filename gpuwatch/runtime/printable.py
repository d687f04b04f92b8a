"""Makes text from outside harmless for readers: tags, reasons, servers' answers on terminals and in logs."""

from gpuwatch.model.readable import legible

__all__ = ["legible", "not_utf8", "printable_text"]


def printable_text(text: str) -> str:
    """Text of several lines for a terminal; text from outside within a line must be made `legible` first."""
    return "\n".join(map(legible, text.split("\n")))


def not_utf8(error: UnicodeDecodeError) -> str:
    """Say that a file is not text, where that shows, and how to mend it."""
    return f"is not UTF-8 text (byte 0x{error.object[error.start]:02x} at position {error.start}); save it as UTF-8"
