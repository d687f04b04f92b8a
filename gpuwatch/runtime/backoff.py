"""When something that failed is tried again: later each time, and never given up by itself."""

from collections.abc import Collection, Hashable
from dataclasses import dataclass, field

from gpuwatch.runtime.clock import Clock


@dataclass(slots=True)
class _Trying:
    """How often it has failed in a row, and from when on it is tried again (monotonic)."""

    failures: int = 0
    not_before: float = 0.0


@dataclass(slots=True, kw_only=True)
class Patience:
    """What waits for its next try: twice as long as the time before, up to the longest wait."""

    clock: Clock
    first_seconds: float
    longest_seconds: float
    _trying: dict[Hashable, _Trying] = field(default_factory=dict)

    def over(self, what: Hashable) -> bool:
        """Whether it may be tried now."""
        trying = self._trying.get(what)
        return trying is None or self.clock.monotonic() >= trying.not_before

    def failed(self, what: Hashable) -> float:
        """After how many seconds it is tried again."""
        trying = self._trying.setdefault(what, _Trying())
        wait = min(self.longest_seconds, self.first_seconds * 2.0**trying.failures)
        trying.failures = min(trying.failures + 1, 10)
        trying.not_before = self.clock.monotonic() + wait
        return wait

    def forget_all_but(self, kept: Collection[Hashable]) -> None:
        """What nobody will ask for again."""
        self._trying = {what: trying for what, trying in self._trying.items() if what in kept}

    def worked(self, what: Hashable) -> None:
        """The next failure is the first one again."""
        self._trying.pop(what, None)
