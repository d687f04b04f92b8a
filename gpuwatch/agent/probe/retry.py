"""A second probe that runs next to the first.

A trial finds out whether a GPU that hung answers again: the one at work goes on meanwhile, so the other GPUs lose
nothing if the GPU hangs again. If it answers, the trial takes that probe's place between two cycles.

A stand-by starts when the probe at work is late with a GPU, and leaves that GPU alone. If it is first to read the
others, it takes over.
"""

import queue
import threading
from collections.abc import Sequence

from gpuwatch.agent.devices.messages import Cycle, Down, End, Message, Reading, Step, Unavailable, decode
from gpuwatch.agent.probe.child import ProbeChild
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.model.duration import format_duration

TRIAL_CYCLES = 2  # figures over the time since the last cycle exist from the second cycle on
STAND_BY_CYCLES = 1  # freshness comes first
WAKE = b""  # in the place of a line: nobody said anything


def patience(settings: AgentSettings, message: Message) -> tuple[float, str]:
    """How long the line after this one may take, and what it should bring."""
    if isinstance(message, Step):
        doing = "open the driver" if message.what == "init" else "find its GPUs"
        return settings.start_deadline, doing
    if isinstance(message, End | Unavailable):
        return settings.interval + settings.deadline, "list its GPUs"
    return settings.deadline, "end its cycle"


class Trial:
    """One such probe, watched by a thread of its own until it has passed or failed, or is taken over."""

    def __init__(self, command: Sequence[str], uuid: str, settings: AgentSettings, cycles: int = TRIAL_CYCLES) -> None:
        """Start it; `uuid` is the GPU in question. It passes after so many whole cycles.

        Raises:
            OSError: it could not be started.

        """
        self.uuid = uuid
        self.child = ProbeChild(command)
        self.cycle: tuple[bytes, ...] = ()  # the lines of its last cycle, once it has passed
        self.failure = ""  # why it has not passed
        self.stalled = False  # a GPU holds it up, too
        self._heard: list[bytes] = []
        self._settings = settings
        self._cycles = cycles
        self._taken = False
        self._thread = threading.Thread(target=self._run, name="trial", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether it has passed or failed."""
        return not self._thread.is_alive()

    def hand_over(self) -> tuple[ProbeChild, tuple[bytes, ...]]:
        """Stop watching; the probe, and the lines of the cycle at hand."""
        self._taken = True
        self.child.lines.put(WAKE)
        self._thread.join()
        return self.child, self.cycle or tuple(self._heard)

    def _next(self, allowed: float, *, at_gpu: bool) -> bytes | None:
        """The next line; that it does not come in time from a GPU is noted before the wait is over."""
        first = min(allowed, self._settings.deadline) if at_gpu else allowed
        try:
            return self.child.lines.get(timeout=first)
        except queue.Empty:
            if first >= allowed:
                raise
        self.stalled = True
        line = self.child.lines.get(timeout=allowed - first)
        self.stalled = False
        return line

    def _run(self) -> None:
        """Read until it has passed, has failed, or is taken over."""
        allowed, cycles = self._settings.start_deadline, 0
        at_gpu = False
        while not self._taken:
            try:
                line = self._next(allowed, at_gpu=at_gpu)
            except queue.Empty:
                self.failure = f"a second probe said nothing within {format_duration(allowed)}"
                return
            if line == WAKE:
                continue
            if line is None:
                self.child.lines.put(None)  # for whoever takes it over
                self.failure = self.child.farewell().detail
                return
            try:
                message = decode(line)
            except ValueError as error:
                self.failure = f"it said {line[:80]!r}, which is no message: {error}"
                return
            allowed, _ = patience(self._settings, message)
            at_gpu = isinstance(message, Cycle | Reading | Down | Step) and message != Step(what="init")
            self._heard = [line] if isinstance(message, Cycle) else [*self._heard, line]
            match message:
                case Unavailable():
                    self.failure = message.detail
                    return
                case End():
                    cycles += 1
                    if cycles == self._cycles:
                        self.cycle = tuple(self._heard)
                        return
