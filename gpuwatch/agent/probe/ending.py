"""Probes that are being ended, and those that cannot be: a process that sleeps in the kernel outlives its SIGKILL.

How many probes are abandoned is bounded. A GPU that hung is tried again only while fewer than two are, and a hang with
no GPU to blame has no successor while three are. A hang with a GPU to blame always has one, for the sake of the others;
since that GPU is left out from then on, there are never more abandoned probes than GPUs and two.
"""

import logging
import threading

from gpuwatch.agent.probe.child import KILL_SECONDS, TERMINATE_SECONDS, ProbeChild

_LOG = logging.getLogger(__name__)


class EndingProbes:
    """Ends each probe in a thread of its own, so that the supervisor never waits for it."""

    def __init__(self) -> None:
        """Nobody leaves yet."""
        self._ending: list[tuple[ProbeChild, threading.Thread]] = []
        self.stuck: list[ProbeChild] = []

    def end(self, child: ProbeChild) -> None:
        """Begin to end a probe; returns at once."""
        thread = threading.Thread(target=child.end, name="probe-end", daemon=True)
        self._ending.append((child, thread))
        thread.start()

    def reap(self) -> None:
        """Forget those that have ended; remember those that could not be ended."""
        for child, thread in self._ending:
            if not thread.is_alive() and child.process.poll() is None:
                self.stuck.append(child)
                _LOG.error(
                    "probe %d cannot be killed, because it sleeps in the kernel; it is left behind", child.process.pid
                )
        self._ending = [(child, thread) for child, thread in self._ending if thread.is_alive()]
        self.stuck = [child for child in self.stuck if child.process.poll() is None]

    def settle(self) -> None:
        """Wait until each has ended or proved that it cannot be ended: a second at most."""
        for _, thread in self._ending:
            thread.join(TERMINATE_SECONDS + KILL_SECONDS + 0.5)
        self.reap()

    @property
    def alive(self) -> tuple[ProbeChild, ...]:
        """All that still run."""
        there = [*self.stuck, *(child for child, _ in self._ending)]
        return tuple(child for child in there if child.process.poll() is None)
