"""A probe that was late with a GPU, and was replaced before its deadline: does that GPU answer after all?

If it does, it was slow and does not hang, and is tried again at once rather than after `hung_retry`; but only once in
that time, because a GPU that is always slow would come and go for ever.
"""

import queue
import threading

from gpuwatch.agent.probe.child import ProbeChild
from gpuwatch.agent.probe.retry import WAKE
from gpuwatch.runtime.clock import Clock


class LateProbe:
    """The probe of which the last word is awaited, by a thread of its own."""

    def __init__(self, clock: Clock, again_seconds: float) -> None:
        """Nobody is awaited; a GPU is retried at once once in `again_seconds`."""
        self.child: ProbeChild | None = None
        self._clock = clock
        self._again_seconds = again_seconds
        self._uuid = ""
        self._answered = False
        self._retried: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def watch(self, child: ProbeChild, uuid: str, seconds: float) -> None:
        """Wait for so long for the probe's next line, which is about that GPU."""
        self.child, self._uuid, self._answered = child, uuid, False
        self._thread = threading.Thread(target=self._run, args=(child, seconds), name="late-probe", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether a probe was watched, and has answered or not."""
        return self._thread is not None and not self._thread.is_alive()

    def part(self) -> tuple[ProbeChild | None, str | None]:
        """The probe, which nobody awaits any more, and the GPU that is to be tried again at once."""
        child, self.child = self.child, None
        if child is not None:
            child.lines.put(WAKE)
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        now = self._clock.monotonic()
        recently = now - self._retried.get(self._uuid, now - self._again_seconds) < self._again_seconds
        if child is None or not self._answered or recently:
            return child, None
        self._retried[self._uuid] = now
        return child, self._uuid

    def _run(self, child: ProbeChild, seconds: float) -> None:
        try:
            self._answered = child.lines.get(timeout=max(0.0, seconds)) not in (None, WAKE)
        except queue.Empty:
            return
