"""Keeps one probe running and feeds its messages to the core. Whatever the probe does, this loop goes on.

A driver call that hangs cannot be interrupted, only its process can be left behind. So each line has a deadline; a
probe that misses it is killed, and abandoned if even that does not end it (it sleeps in the kernel). The next one skips
the GPU that hung. A second probe finds out whether that GPU answers again, while the first one works (`retry.py`).
"""

import logging
import queue
import threading
from collections import deque
from collections.abc import Iterable, Sequence

from gpuwatch.agent.devices.messages import End, Message, Unavailable, decode
from gpuwatch.agent.exporter.groups import read
from gpuwatch.agent.probe.child import KILL_SECONDS, TERMINATE_SECONDS, ProbeChild, ProbeExit
from gpuwatch.agent.probe.parked import ParkedProbe
from gpuwatch.agent.probe.retry import Trial
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.state import AgentCore, Interruption
from gpuwatch.model.duration import format_duration
from gpuwatch.model.gpu_identity import called
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import Clock
from gpuwatch.runtime.reexec import own_command

_LOG = logging.getLogger(__name__)

_RELEASE_SECONDS = 2 * (TERMINATE_SECONDS + KILL_SECONDS) + 1.0
_MOST_STUCK = 3  # abandoned probes; then a new one waits until one of them ends, and a trial does one earlier
_GOOD_CYCLES = 5  # after so many the next failure counts as the first one
_LONGEST_RETRY_FACTOR = 64  # the longest wait for a GPU that hangs again and again, in times of `hung_retry`
_PROBE = "the probe"


def probe_command(settings: AgentSettings) -> tuple[str, ...]:
    """The command line of the probe for these settings."""
    command = own_command("probe")
    command += [
        "--on-request",
        "--source",
        settings.source,
        "--interval",
        str(settings.interval),
        "--seed",
        str(settings.seed),
        "--metrics",
        ",".join(sorted(read(settings))),
    ]
    for flag, value in (("--script", settings.script), ("--capture", settings.capture)):
        if value is not None:
            command += [flag, value]
    return tuple(command)


class ProbeSupervisor:
    """The probe of one node, watched by one thread."""

    def __init__(
        self,
        core: AgentCore,
        settings: AgentSettings,
        clock: Clock,
        command: Sequence[str] = (),
        first: ParkedProbe | None = None,
    ) -> None:
        """`command` replaces the probe of the settings; `--skip UUID` is appended for each GPU that is not read.

        `first` is the first probe, where one runs already.
        """
        self._core = core
        self._settings = settings
        self._clock = clock
        self._command = tuple(command) or probe_command(settings)
        self._stopping = threading.Event()
        self._released: str | None = None
        self._resting = False  # released, and the loop has noticed
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._first = first
        self._child: ProbeChild | None = None
        self._trial: Trial | None = None
        self._stuck: list[ProbeChild] = []
        self._hung, self._failures = self._forgotten()
        self._turns = 0

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the probes and the loop, within one to three seconds."""
        self._stopping.set()
        self._call()
        self._thread.join(_RELEASE_SECONDS)

    @property
    def alive(self) -> bool:
        """Whether the loop still runs."""
        return self._thread.is_alive()

    @property
    def turns(self) -> int:
        """A number that changes as long as the loop works: with each message of a probe, each try, each wait's end."""
        return self._turns

    def ask(self) -> None:
        """Ask the running probe, if there is one, to begin a cycle now."""
        child = self._child
        if child is not None:
            child.ask()

    @property
    def released(self) -> str | None:
        """Who released the GPUs and when, as text; None while they are read."""
        return self._released

    def release(self, words: str) -> tuple[int, ...]:
        """End the probe and start none until `acquire`; returns the pids of probes that still hold the device."""
        with self._changed:
            self._released = self._released or words
        self._call()
        with self._changed:
            self._changed.wait_for(lambda: self._resting, _RELEASE_SECONDS)
            child, trial = self._child, self._trial
        held = [*self._stuck, *([] if child is None else [child]), *([] if trial is None else [trial.child])]
        return tuple(each.process.pid for each in held if each.process.poll() is None)

    def acquire(self) -> None:
        """Read all GPUs again."""
        with self._changed:
            self._released = None
            self._changed.notify_all()

    def _forgotten(self) -> tuple[Backoff[str], Backoff[str]]:
        """Fresh back-offs: no GPU has hung a probe, and no probe has failed."""
        retry, settings = self._settings.hung_retry, self._settings
        return (
            Backoff(clock=self._clock, first_seconds=retry, longest_seconds=retry * _LONGEST_RETRY_FACTOR),
            Backoff(clock=self._clock, first_seconds=settings.restart_min, longest_seconds=settings.restart_max),
        )

    @property
    def _called(self) -> bool:
        """Whether the running probe must end now."""
        return self._stopping.is_set() or self._released is not None

    def _call(self) -> None:
        """Wake the loop, whatever it waits for."""
        with self._changed:
            self._changed.notify_all()
        child, trial = self._child, self._trial
        if child is not None:
            child.lines.put(None)
        if trial is not None:
            trial.call_off()

    def _wait(self, seconds: float) -> None:
        """Wait for that time, unless the loop is called."""
        with self._changed:
            self._changed.wait_for(lambda: self._called, seconds)

    def _rest(self) -> None:
        """Publish in each interval that the GPUs are released, until they are acquired: the verdict stays fresh."""
        self._end_trial()
        with self._changed:
            self._resting = True
            self._changed.notify_all()
            while self._released is not None and not self._stopping.is_set():
                self._core.withhold(self._released)
                self._turns += 1
                self._changed.wait(self._settings.interval)
            self._resting = False
        self._hung, self._failures = self._forgotten()  # a reset may have mended them

    def _run(self) -> None:
        """Run one probe after another until `stop`."""
        while not self._stopping.is_set():
            self._turns += 1
            if self._released is not None:
                self._rest()
                continue
            ending = self._one_probe()
            if self._called:
                continue
            self._core.interrupt(ending.why, ending.detail)
            failed = ending.why is not Interruption.RENEW
            delay = self._failures.failed(_PROBE) if failed else 0.0
            level = logging.WARNING if failed else logging.INFO
            _LOG.log(level, "probe replaced in %s (%s): %s", format_duration(delay), ending.why.value, ending.detail)
            self._wait(delay)
            self._await_stuck()
        self._end_trial()

    def _one_probe(self) -> ProbeExit:
        """Start a probe, or take over a trial that has passed, and listen to it until it must be replaced."""
        heard: tuple[bytes, ...] = ()
        if self._trial is not None and self._trial.cycle:
            trial, self._trial = self._trial, None
            self._hung.worked(trial.uuid)
            child, heard = trial.child, trial.cycle
        else:
            try:
                child = ProbeChild(self._skipping(self._hung), self._first)
            except OSError as error:
                return ProbeExit(why=Interruption.EXIT, detail=f"it could not be started: {error}")
        self._child, self._first = child, None
        if self._called:
            child.lines.put(None)
        try:
            return self._listen(child, heard)
        finally:
            self._child = None
            child.end()
            self._leave_behind(child)

    def _skipping(self, uuids: Iterable[str]) -> list[str]:
        """The command line of a probe that leaves these GPUs alone."""
        return [*self._command, *(part for uuid in uuids for part in ("--skip", uuid))]

    def _leave_behind(self, child: ProbeChild) -> None:
        """Remember a killed probe that has not ended."""
        if child.process.poll() is None:
            self._stuck.append(child)
            _LOG.error(
                "probe %d cannot be killed, because it sleeps in the kernel; it is left behind", child.process.pid
            )

    def _listen(self, child: ProbeChild, heard: Iterable[bytes]) -> ProbeExit:
        """Feed the core line by line, first what was `heard`; the result is why there will be no more."""
        allowed, doing, good_cycles = self._settings.start_deadline, "write its first line", 0
        backlog = deque(heard)
        while True:
            try:
                line = backlog.popleft() if backlog else child.lines.get(timeout=allowed)
            except queue.Empty:
                return self._hang(allowed, doing)
            if self._called:
                return ProbeExit(why=Interruption.EXIT, detail="it is no longer wanted")
            if line is None:
                return child.farewell()
            try:
                message = decode(line)
                self._core.ingest(message)
                self._turns += 1
            except Exception as error:  # noqa: BLE001  no output of a probe may end this loop
                return ProbeExit(
                    why=Interruption.GARBAGE, detail=f"it wrote {line[:80]!r}, which is not a message: {error}"
                )
            allowed, doing = self._after(message)
            if not isinstance(message, End):
                continue
            good_cycles += 1
            if good_cycles >= _GOOD_CYCLES:
                self._failures.worked(_PROBE)
            if not backlog and self._try_again():
                return ProbeExit(why=Interruption.RENEW, detail="a GPU that hung answers again")

    def _after(self, message: Message) -> tuple[float, str]:
        """How long the next line may take, and what it should bring."""
        deadline = self._settings.deadline
        if isinstance(message, End | Unavailable):
            return self._settings.interval + deadline, "list its GPUs"
        return deadline, "end its cycle"

    def _try_again(self) -> bool:
        """Between two cycles, begin or conclude a trial; True if it has passed and shall replace this probe."""
        trial = self._trial
        self._reap()
        if trial is not None:
            if not trial.over or trial.cycle:
                return trial.over
            self._trial = None
            self._leave_behind(trial.child)
            self._postpone(trial.uuid, trial.failure)
            return False
        hung = tuple(self._hung)
        if not hung or not self._hung.over(hung[0]) or len(self._stuck) >= _MOST_STUCK - 1:
            return False
        try:
            self._trial = Trial(self._skipping(hung[1:]), hung[0], self._settings)
        except OSError as error:
            self._postpone(hung[0], f"no probe could be started: {error}")
        return False

    def _end_trial(self) -> None:
        """Forget the probe, which has ended."""
        trial, self._trial = self._trial, None
        if trial is not None:
            trial.stop()
            self._leave_behind(trial.child)

    def _hang(self, allowed: float, doing: str) -> ProbeExit:
        """Note which GPU it was, so that the next probe serves the others."""
        gpu = self._core.awaited
        if gpu is None:
            return ProbeExit(why=Interruption.HANG, detail=f"it did not {doing} within {format_duration(allowed)}")
        why = f"{called(gpu.uuid, gpu.index)} was not read within {format_duration(allowed)}"
        self._postpone(gpu.uuid, why)
        return ProbeExit(why=Interruption.HANG, detail=why)

    def _postpone(self, uuid: str, why: str) -> None:
        """Do not read a GPU for some time, longer after each hang."""
        wait = self._hung.failed(uuid)
        _LOG.warning("%s is not read for %s: %s", uuid, format_duration(wait), why)

    def _reap(self) -> None:
        """Forget abandoned probes that have ended."""
        self._stuck = [child for child in self._stuck if child.process.poll() is None]

    def _await_stuck(self) -> None:
        """Wait while there are too many abandoned probes."""
        while not self._called:
            self._turns += 1
            self._reap()
            if len(self._stuck) < _MOST_STUCK:
                return
            self._wait(self._settings.restart_max)
