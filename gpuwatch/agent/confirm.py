"""Confirmations: before a machine is stopped, the controller asks what is true now, and caches do not count.

Rules, all of them:

1. An answer rests only on looks that began after its question arrived: a look at every host signal and a whole cycle of
   the GPUs. What could not be looked at again in time is unknown in the answer.
2. The looks go into the agent's own state as in any cycle: a busy sign that they find starts the idle time again.
3. One round of looks at a time, at most one each second. A round answers all questions that arrived before it began;
   later ones wait for the next round.
4. Every question is answered within `ANSWER_SECONDS`, and too many at once are refused.
"""

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol
from urllib.parse import parse_qs

from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import Activity, BeforeStop, State
from gpuwatch.model.verdict import NodeVerdict
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

ROUND_SECONDS = 3.0  # all looks together
ANSWER_SECONDS = ROUND_SECONDS + 0.3  # the controller waits 5 s
_LOOKS_SECONDS = 2.0  # of these for the host signals; the rest is for the cycle that takes them in
_APART_SECONDS = 1.0  # from round to round: each asks the Slurm controller
_MOST_WAITING = 32

_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}", re.ASCII)


class Host(Protocol):
    """The host signals; `agent.evidence.watcher.HostWatcher` is one."""

    def ask(self, *, after_gpus: bool) -> None:
        """Look at them again, from now on."""
        ...

    def await_looks(self, since: float, seconds: float) -> bool:
        """Wait for a look at each, at most so many seconds."""
        ...

    def require(self, since: float | None) -> None:
        """Count no look that began earlier."""
        ...

    def oldest(self, since: float) -> float | None:
        """The begin of the oldest look that counts."""
        ...


class Busy(Exception):  # noqa: N818  not an error of the agent
    """Too many confirmations wait already."""


@dataclass(slots=True)
class _Round:
    """One round: its verdict, when the oldest look began that it rests on, and whether it is over."""

    found: tuple[NodeVerdict, float | None] | None = None
    over: threading.Event = field(default_factory=threading.Event)


def nonce_in(query: str) -> str | None:
    """The nonce of a query string; None where no confirmation is asked for.

    Raises:
        ValueError: it is not a nonce.

    """
    given = parse_qs(query, keep_blank_values=True).get("confirm")
    if given is None:
        return None
    if len(given) != 1 or not _NONCE.fullmatch(given[0]):
        raise ValueError("confirm must be given once, as 16 to 64 letters, digits, - or _")
    return given[0]


class Confirmations:
    """Answers requests that need fresh looks; any number of threads may ask."""

    def __init__(
        self,
        core: AgentCore,
        host: Host,
        ask_probe: Callable[[], None],
        clock: Clock,
        before_stop: Callable[[], BeforeStop | None] = lambda: None,
    ) -> None:
        """`ask_probe` has the GPUs read as soon as possible, `before_stop` is how far the host is; both do not wait."""
        self._core = core
        self._host = host
        self._ask_probe = ask_probe
        self._clock = clock
        self._published = threading.Condition()
        self._lock = threading.Lock()
        self._waiting = 0
        self._next: _Round | None = None  # which takes questions; it has not begun
        self._at_work = False
        self._last_began: float | None = None
        core.on_publish = self._hear
        self._before_stop = before_stop

    @property
    def waiting(self) -> int:
        """How many requests are not answered yet."""
        return self._waiting

    def answer(self, nonce: str) -> NodeVerdict:
        """The verdict by looks that begin from now on.

        Raises:
            Busy: too many questions wait already.

        """
        before, joined = self._before_stop(), self._join()
        try:
            joined.over.wait(ANSWER_SECONDS)
        finally:
            with self._lock:
                self._waiting -= 1
        now = self._clock.monotonic()
        if joined.found is None:
            why = f"nothing could be looked at again within {ANSWER_SECONDS:.0f} s"
            return replace(self._doubtful(why), confirm=nonce)
        verdict, oldest = joined.found
        looked = None if oldest is None else max(0.0, now - oldest)
        return replace(verdict, confirm=nonce, looked_seconds=looked, before_stop=before)

    def _join(self) -> _Round:
        """The next round to begin; somebody is at work on it from now on."""
        with self._lock:
            if self._waiting >= _MOST_WAITING:
                raise Busy
            joined = self._next = self._next or _Round()
            if not self._at_work:
                try:
                    threading.Thread(target=self._work, name="confirm", daemon=True).start()
                except RuntimeError as error:
                    self._next = None
                    raise Busy from error
                self._at_work = True
            self._waiting += 1
            return joined

    def _work(self) -> None:
        """Round after round, as long as somebody waits for one."""
        while True:
            if self._last_began is not None:
                self._clock.sleep(self._last_began + _APART_SECONDS - self._clock.monotonic())
            with self._lock:
                begun, self._next = self._next, None
                if begun is None:
                    self._at_work = False
                    return
                self._last_began = since = self._clock.monotonic()
            try:
                begun.found = self._look_again(since)
            except Exception:  # noqa: BLE001  a flaw in one round is doubt, and must not end the others
                _LOG.exception("a confirmation failed")
            finally:
                begun.over.set()

    def _look_again(self, since: float) -> tuple[NodeVerdict, float | None]:
        """Look at everything again. The first cycle shows which processes to look at; the last includes all results."""
        looks_until = since + _LOOKS_SECONDS
        self._host.ask(after_gpus=False)
        self._ask_probe()
        if self._await_cycle(since, since, looks_until) is not None:
            self._host.ask(after_gpus=True)
        self._host.await_looks(since, looks_until - self._clock.monotonic())
        self._host.require(since)
        try:
            required = self._clock.monotonic()
            self._ask_probe()
            found = self._await_cycle(since, required, since + ROUND_SECONDS)
        finally:
            self._host.require(None)
        oldest = self._host.oldest(since)
        if found is None:
            return self._doubtful(f"the GPUs could not be read again within {ROUND_SECONDS:.0f} s"), oldest
        verdict, began = found
        return verdict, began if oldest is None else min(began, oldest)

    def _await_cycle(self, began_after: float, judged_after: float, until: float) -> tuple[NodeVerdict, float] | None:
        """The verdict of a whole cycle that began and was judged after these, once there is one."""

        def found() -> tuple[NodeVerdict, float] | None:
            return self._core.verdict_of(began_after=began_after, judged_after=judged_after)

        with self._published:
            return self._published.wait_for(found, max(0.0, until - self._clock.monotonic()))

    def _hear(self) -> None:
        """Wake those who wait for a cycle: one was published."""
        with self._published:
            self._published.notify_all()

    def _doubtful(self, why: str) -> NodeVerdict:
        """The verdict as it would be, if it were not in doubt."""
        verdict = self._core.verdict(self._clock.monotonic())
        unknown = Activity(state=State.UNKNOWN, since=self._clock.now(), held_seconds=0.0, doubt=why)
        gpus = tuple(replace(gpu, activity=unknown) for gpu in verdict.gpus)
        return replace(verdict, activity=unknown, gpus=gpus, local_disks=None)
