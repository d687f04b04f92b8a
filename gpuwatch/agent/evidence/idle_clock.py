"""How long something has been silent, safe from wall clocks that jump."""

from collections.abc import Collection

from gpuwatch.agent.evidence.base import Moment


class Silence:
    """Stamps of last activity by key. Only the first stamp of a key is compared with the wall clock.

    From then on a new stamp means activity just now, and an unchanged one ages on the monotonic clock: a wall clock
    that leaps ahead makes nobody silent.
    """

    def __init__(self) -> None:
        self._silent_from: dict[str, tuple[float, float]] = {}

    def seconds(self, key: str, stamp_seconds: float, now: Moment) -> float:
        """Seconds of silence, given the Unix time of the last activity; a stamp in the future is none."""
        known = self._silent_from.get(key)
        if known is None:
            behind = max(0.0, now.at.timestamp() - stamp_seconds)
            known = (stamp_seconds, now.monotonic_seconds - behind)
        elif known[0] != stamp_seconds:
            known = (stamp_seconds, now.monotonic_seconds)
        self._silent_from[key] = known
        return now.monotonic_seconds - known[1]

    def forget_all_but(self, keys: Collection[str]) -> None:
        """Drop what is gone; a key that returns is new."""
        self._silent_from = {key: known for key, known in self._silent_from.items() if key in keys}
