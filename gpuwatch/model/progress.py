"""PURE: how long work reports how far it is."""

from collections.abc import Callable

# Gets what is done and the whole, in any unit; called often, so it must be quick.
Advance = Callable[[float, float], object]


def no_advance(_done: float, _whole: float) -> None:
    """Ignore the progress: nobody waits for it."""
