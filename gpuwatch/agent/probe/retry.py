"""A second probe that runs next to the first and finds out whether a GPU that hung answers again.

The one at work goes on meanwhile: the other GPUs lose nothing if the GPU hangs again. If it answers, the trial takes
that probe's place between two cycles.
"""

import queue
import threading
from collections.abc import Sequence

from gpuwatch.agent.devices.messages import Cycle, End, Unavailable, decode
from gpuwatch.agent.probe.child import KILL_SECONDS, TERMINATE_SECONDS, ProbeChild
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.model.duration import format_duration

_CYCLES = 2  # figures over the time since the last cycle exist from the second cycle on


class Trial:
    """One such probe, watched by a thread of its own until it has passed or failed."""

    def __init__(self, command: Sequence[str], uuid: str, settings: AgentSettings) -> None:
        """Start it; `uuid` is the GPU in question.

        Raises:
            OSError: it could not be started.

        """
        self.uuid = uuid
        self.child = ProbeChild(command)
        self.cycle: tuple[bytes, ...] = ()  # the lines of its last cycle, once it has passed
        self.failure = ""  # why it has not passed
        self._settings = settings
        self._unwanted = False
        self._thread = threading.Thread(target=self._run, name="trial", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """Whether it has passed or failed; a failed one was ended, as far as it could be."""
        return not self._thread.is_alive()

    def call_off(self) -> None:
        """Ask for its end; returns at once."""
        self._unwanted = True
        self.child.lines.put(None)

    def stop(self) -> None:
        """End it, whatever its result."""
        self.call_off()
        self._thread.join(TERMINATE_SECONDS + KILL_SECONDS + 0.5)
        if self.cycle:
            self.child.end()

    def _run(self) -> None:
        self.failure = self._watch()
        if self.failure:
            self.child.end()

    def _watch(self) -> str:
        """Read so many whole cycles; returns None, or why they did not come."""
        allowed, lines, cycles = self._settings.start_deadline, list[bytes](), 0
        while True:
            try:
                line = self.child.lines.get(timeout=allowed)
            except queue.Empty:
                return f"a second probe said nothing within {format_duration(allowed)}"
            if self._unwanted:
                return "it is no longer wanted"
            if line is None:
                return self.child.farewell().detail
            try:
                message = decode(line)
            except ValueError as error:
                return f"it said {line[:80]!r}, which is no message: {error}"
            allowed = self._settings.deadline
            lines = [line] if isinstance(message, Cycle) else [*lines, line]
            match message:
                case Unavailable():
                    return message.detail
                case End():
                    cycles, allowed = cycles + 1, self._settings.interval + self._settings.deadline
                    if cycles == _CYCLES:
                        self.cycle = tuple(lines)
                        return ""
