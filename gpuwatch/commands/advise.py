"""The group of commands that advise: what to commit to, which machine to choose, what is too large."""

from gpuwatch.commands.base import commands


@commands.group()
def advise() -> None:
    """Advice from what was measured, with its arithmetic; nothing is changed."""
