"""When something that failed is tried again: after a longer wait each time, without end."""

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from gpuwatch.model.duration import backoff_seconds
from gpuwatch.runtime.clock import Clock

What = TypeVar("What", bound=Hashable)


@dataclass(slots=True)
class _Trying:
    """How often it has failed in a row, and from when on it is tried again (monotonic)."""

    failures: int = 0
    not_before: float = 0.0


@dataclass(slots=True, kw_only=True)
class Backoff(Generic[What]):
    """What waits for its next try: twice as long as the time before, up to the longest wait."""

    clock: Clock
    first_seconds: float
    longest_seconds: float
    _trying: dict[What, _Trying] = field(default_factory=dict)

    def __iter__(self) -> Iterator[What]:
        """What failed and has not worked since, in the order of the next tries."""
        return iter(sorted(self._trying, key=lambda what: self._trying[what].not_before))

    def is_over(self, what: What) -> bool:
        """Whether it may be tried now."""
        trying = self._trying.get(what)
        return trying is None or self.clock.monotonic() >= trying.not_before

    def note_failure(self, what: What) -> float:
        """Note a failure; the seconds until the next try."""
        trying = self._trying.setdefault(what, _Trying())
        trying.failures += 1
        wait = backoff_seconds(trying.failures, first=self.first_seconds, longest=self.longest_seconds)
        trying.not_before = self.clock.monotonic() + wait
        return wait

    def at_once(self, what: What) -> None:
        """It may be tried again now; what failed once more would wait all the longer."""
        if what in self._trying:
            self._trying[what].not_before = self.clock.monotonic()

    def forget_all_but(self, kept: Collection[What]) -> None:
        """Forget all failures but those of `kept`."""
        self._trying = {what: trying for what, trying in self._trying.items() if what in kept}

    def note_success(self, what: What) -> None:
        """Forget the failures of that name."""
        self._trying.pop(what, None)
