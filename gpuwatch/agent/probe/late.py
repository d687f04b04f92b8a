"""Waiting for a probe's next line. For one that is late with a GPU a second begins, which leaves that GPU out.

Does that GPU answer after all? If it does, it was slow and does not hang, and is tried again at once rather than after
`hung_retry`; but only once in that time, because a GPU that is always slow would come and go for ever.
"""

import contextlib
import queue
import threading
from collections.abc import Callable

from gpuwatch.agent.probe.child import ProbeChild
from gpuwatch.agent.probe.retry import WAKE, Trial
from gpuwatch.runtime.clock import Clock

_LOOK_SECONDS = 0.05  # how often both probes are looked at


class SilentError(Exception):
    """The line did not come in time, or the second probe was first: then some seconds are `left` for it."""

    def __init__(self, left: float) -> None:
        """`left` is 0 if its time was over."""
        super().__init__(left)
        self.left = left


class Lateness:
    """Who stands by for the probe at work."""

    def __init__(self, clock: Clock, dismiss: Callable[[Trial], None]) -> None:
        """`dismiss` ends a second probe that is not needed."""
        self.standby: Trial | None = None
        self._clock = clock
        self._dismiss = dismiss

    def next_line(
        self,
        child: ProbeChild,
        *,
        late: float,
        allowed: float,
        begin: Callable[[], Trial | None],
        look: Callable[[float], None],
    ) -> bytes | None:
        """The next line; None at the end of the probe's output.

        `begin` starts a second probe once the line is `late`, if that can help; `look` is called now and then with the
        seconds waited. All in seconds.

        Raises:
            SilentError: the line did not come within `allowed`, or the second probe has passed, or another GPU holds it
                up: so both are to blame. `standby` is the successor.

        """
        start, pause, tried = self._clock.monotonic(), min(late, allowed), False
        while True:
            with contextlib.suppress(queue.Empty):
                line = child.lines.get(timeout=pause)
                self.stop()
                return line
            waited = self._clock.monotonic() - start
            look(waited)
            if waited >= allowed:
                raise SilentError(0.0)
            if not tried:
                tried = True
                self.standby = begin()
            elif self.standby is not None and (self.standby.over or self.standby.stalled):
                if self.standby.cycle or self.standby.stalled:
                    raise SilentError(allowed - waited)
                self.stop()
            pause = min(late if self.standby is None else _LOOK_SECONDS, allowed - waited)

    def take(self) -> Trial | None:
        """The probe that stands by; it is the caller's from now on."""
        standby, self.standby = self.standby, None
        return standby

    def stop(self) -> None:
        """Nobody needs to stand by."""
        standby = self.take()
        if standby is not None:
            self._dismiss(standby)


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
