"""Looks at each signal in its own interval, and knows at any moment the last result. Readers never wait.

A file on a dead network mount, or a server that never answers, holds up its reader for ever. So each signal has a
thread of its own, and a look that is late, or too long ago, is unknown. A confirmation has every thread look again at
once (`ask`), and counts no look that began before it (`require`).
"""

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuwatch.agent.evidence.base import HostSignal, Moment, UnseenError, make_finding
from gpuwatch.agent.processes.process import ProcessView
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.duration import format_duration
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

_LATE_LOOKS = 3
_VIEW_VALID_SECONDS = 30.0
_SECOND_LOOK_SECONDS = 1.0  # rates need two: the second one comes soon


@dataclass(slots=True, kw_only=True)
class Watched:
    """A signal and what its last look gave. One thread writes; readers take each field once.

    `after_gpus`: it looks at what the GPUs show, so a fresh look needs a fresh reading of the GPUs.
    Without `evidence`, what it finds is no evidence of use, and is asked for by `current`.
    """

    signal: HostSignal
    interval_seconds: float
    after_gpus: bool = False
    evidence: bool = True
    seen: tuple[float, tuple[Evidence, ...]] | None = None  # when its look began
    looking_since: float | None = None
    looks: int = field(default=0)
    asked_at: float = -math.inf  # a look must begin after this, as soon as it can
    wake: threading.Event = field(default_factory=threading.Event)


class HostWatcher:
    """All signals of one host."""

    def __init__(
        self,
        watched: Sequence[Watched],
        clock: Clock,
        deadline_seconds: float,
        gpu_pids: Callable[[], frozenset[int] | None] = lambda: None,
        processes: Callable[[], ProcessView | None] = lambda: None,
    ) -> None:
        """Nothing is looked at before `start`: until then all of it is unknown."""
        self._watched = tuple(watched)
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._stopping = threading.Event()
        self._gpu_pids = gpu_pids
        self._processes = processes
        self._required_since: float | None = None
        self._looked = threading.Condition()

    def start(self) -> None:
        """Begin, each signal in a thread that ends with the process."""
        for each in self._watched:
            thread = threading.Thread(target=self._run, args=(each,), name=f"host-{each.signal.name}", daemon=True)
            thread.start()

    def stop(self) -> None:
        """Stop looking; returns at once, whatever hangs."""
        self._stopping.set()
        for each in self._watched:
            each.wake.set()

    def ask(self, *, after_gpus: bool) -> None:
        """Look at the signals of this kind again, from now on; returns at once."""
        with self._looked:
            now = self._clock.monotonic()
            for each in self._watched:
                if each.after_gpus is after_gpus:
                    each.asked_at = now
                    each.wake.set()

    def await_looks(self, since: float, seconds: float) -> bool:
        """Wait until every signal's last look began at `since` or later; False after so many seconds."""
        with self._looked:
            return self._looked.wait_for(lambda: all(began >= since for began in self._began()), seconds)

    def require(self, since: float | None) -> None:
        """Count no look that began before `since`, until the next call; None: count all."""
        self._required_since = since

    def oldest(self, since: float) -> float | None:
        """The begin of the oldest look that began at `since` or later."""
        return min((began for began in self._began() if began >= since), default=None)

    def _began(self) -> list[float]:
        """When the last look of each signal began."""
        return [-math.inf if (seen := each.seen) is None else seen[0] for each in self._watched]

    def evidence(self, now_monotonic: float) -> tuple[Evidence, ...]:
        """The evidence of all signals at that moment of the monotonic clock."""
        counted = [each for each in self._watched if each.evidence]
        return tuple(entry for each in counted for entry in self.current(each, now_monotonic))

    def look_once(self, each: Watched) -> None:
        """Look once, and keep what is seen. Whatever goes wrong is kept as unknown."""
        begin = self._clock.monotonic()
        each.looking_since = begin
        try:
            found = each.signal.find_evidence(self._moment(begin))
        except UnseenError as error:
            found = (make_finding(each.signal, State.UNKNOWN, str(error)),)
        except OSError as error:
            where = f": {error.filename}" if isinstance(error.filename, str) else ""
            found = (make_finding(each.signal, State.UNKNOWN, f"{error.strerror or type(error).__name__}{where}"),)
        except Exception as error:  # noqa: BLE001  a flaw in one signal must not end the others, or pass for idle
            found = (make_finding(each.signal, State.UNKNOWN, f"it failed: {type(error).__name__}"),)
            if each.seen is None or each.seen[1] != found:  # once, not at every look
                _LOG.exception("host signal %s failed", each.signal.name)
        each.seen = (begin, found)
        each.looks += 1
        each.looking_since = None

    def _moment(self, begin: float) -> Moment:
        """What a look that begins now may know; an old view of the processes proves nothing."""
        view = self._processes()
        if view is not None and begin - view.monotonic_seconds > _VIEW_VALID_SECONDS:
            view = None
        return Moment(at=self._clock.now(), monotonic_seconds=begin, gpu_pids=self._gpu_pids(), processes=view)

    def _run(self, each: Watched) -> None:
        while not self._stopping.is_set():
            self.look_once(each)
            with self._looked:
                if each.seen is not None and each.seen[0] >= each.asked_at and not self._stopping.is_set():
                    each.wake.clear()
                self._looked.notify_all()
            pause = each.interval_seconds
            each.wake.wait(min(_SECOND_LOOK_SECONDS, pause) if each.looks == 1 else pause)

    def current(self, each: Watched, now: float) -> tuple[Evidence, ...]:
        """The evidence of a signal: a late look makes it unknown, whatever the look before it saw."""
        why, seen = self.late(each, now), each.seen
        if why is None and seen is not None:
            return seen[1]
        return (make_finding(each.signal, State.UNKNOWN, why),)

    def late(self, each: Watched, now: float) -> str | None:
        """Why what the last look of a signal saw does not count now; None: it counts."""
        since, seen = each.looking_since, each.seen
        if since is not None and now - since > self._deadline_seconds:
            return f"it has not answered for {format_duration(now - since)}"
        if seen is None:
            return "not looked at yet"
        required = self._required_since
        if required is not None and seen[0] < required:
            return "it could not be looked at again in time"
        age = now - seen[0]
        if age > _LATE_LOOKS * each.interval_seconds + self._deadline_seconds:
            return f"it was last looked at {format_duration(age)} ago"
        return None
