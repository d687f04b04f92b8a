"""Makes text from outside harmless for readers: tags, reasons, servers' answers on terminals and in logs."""

from gpuwatch.model.legible import legible

__all__ = ["legible", "shown"]


def shown(text: str) -> str:
    """Text of several lines for a terminal; text from outside within a line must be made `legible` first."""
    return "\n".join(map(legible, text.split("\n")))
