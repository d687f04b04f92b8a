"""Keeps one probe running and feeds its messages to the core. Whatever the probe does, this loop goes on.

A driver call that hangs cannot be interrupted, only its process can be left behind. So each line has a deadline; a
probe that misses it is killed, and abandoned if even that does not end it (it sleeps in the kernel). The next one does
not touch the GPU that hung. A second probe (`retry.py`) stands by as soon as the first is late with a GPU, and another
finds out later whether that GPU answers again.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence

from gpuwatch.agent.devices.messages import End, Message, Reading, Step, Unavailable, decode
from gpuwatch.agent.probe.child import KILL_SECONDS, TERMINATE_SECONDS, EndingProbes, ProbeChild, ProbeExit
from gpuwatch.agent.probe.command import leaving_out, probe_command, suspect
from gpuwatch.agent.probe.late import Lateness, LateProbe, SilentError
from gpuwatch.agent.probe.outage import Outage
from gpuwatch.agent.probe.retry import STAND_BY_CYCLES, WAKE, Trial, patience
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.state import AgentCore, Interruption
from gpuwatch.model.duration import format_duration
from gpuwatch.model.gpu import GpuInfo
from gpuwatch.model.gpu_identity import gpu_name
from gpuwatch.runtime.backoff import Backoff
from gpuwatch.runtime.clock import Clock

_LOG = logging.getLogger(__name__)

_RELEASE_SECONDS = 2 * (TERMINATE_SECONDS + KILL_SECONDS) + 1.0
_MOST_STUCK = 3  # abandoned probes; see leavers.py
_GOOD_CYCLES = 5  # after so many the next failure counts as the first one
_LONGEST_RETRY_FACTOR = 64  # the longest wait for a GPU that hangs again and again, in times of `hung_retry`
_PROBE = "the probe"


class ProbeSupervisor:
    """The probe of one node, watched by one thread."""

    def __init__(self, core: AgentCore, settings: AgentSettings, clock: Clock, command: Sequence[str] = ()) -> None:
        """`command` replaces the probe of the settings; flags are appended for GPUs that are not to be touched."""
        self._core = core
        self._settings = settings
        self._clock = clock
        self._command = tuple(command) or probe_command(settings)
        self._stopping = threading.Event()
        self._released: str | None = None
        self._resting = False  # released, and the loop has noticed
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._child: ProbeChild | None = None
        self._trial: Trial | None = None
        self._late = Lateness(clock, self._dismiss)
        self._successor: Trial | None = None  # which of the two takes over
        self._late_probe = LateProbe(clock, settings.hung_retry)
        self._doubted: tuple[str, float] | None = None  # the GPU to blame, and the seconds that it has left
        self._ending = EndingProbes()
        self._outage = Outage(clock)
        self._step: Step | None = None  # what the probe was about to do, unless it has said more since
        self._nameless: dict[str, GpuInfo] = {}  # GPUs that hung before they said who they are, by stand-in
        self._held_back = False  # no trial begins, for fear of one more that cannot be ended
        self._careful = False  # the last probe hung in opening the driver: the next one attaches no GPU
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
            child = self._child
        seconds = [each.child for each in (self._trial, self._late.standby) if each is not None]
        held = [*self._ending.alive, *(each for each in (child, self._late_probe.child) if each is not None), *seconds]
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
        child = self._child
        if child is not None:
            child.lines.put(WAKE)

    def _wait(self, seconds: float) -> None:
        """Wait for that time, unless the loop is called."""
        with self._changed:
            self._changed.wait_for(lambda: self._called, seconds)

    def _rest(self) -> None:
        """Publish in each interval that the GPUs are released, until they are acquired: the verdict stays fresh."""
        self._end_seconds()
        with self._changed:
            self._resting = True
            self._changed.notify_all()
            while self._released is not None and not self._stopping.is_set():
                self._core.withhold(self._released)
                self._turns += 1
                self._changed.wait(self._settings.interval)
            self._resting = False
        self._hung, self._failures = self._forgotten()  # a reset may have mended them
        self._nameless.clear()

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
            self._wait(self._account(ending))
            if self._successor is None and not ending.culprit:
                self._await_stuck()
        self._end_seconds()

    def _account(self, ending: ProbeExit) -> float:
        """Tell the core and the log why the probe is replaced; the seconds until the next one starts."""
        init_hang = ending.why is Interruption.HANG and self._opening
        seamless = self._successor is not None and bool(self._successor.cycle)
        if init_hang:
            self._core.cannot_open(self._outage.init_hang(ending.detail), ending.why)
        elif seamless:
            self._core.replace_probe(ending.why)
        else:
            self._core.interrupt(ending.why, ending.detail)
        self._careful = init_hang
        at_once = ending.culprit or ending.why is Interruption.RENEW
        delay = 0.0 if at_once else self._failures.note_failure(_PROBE)
        quiet = self._outage and (init_hang or ending.why is Interruption.RENEW)  # the log has it already
        level = logging.DEBUG if quiet else logging.INFO if ending.why is Interruption.RENEW else logging.WARNING
        _LOG.log(level, "probe replaced in %s (%s): %s", format_duration(delay), ending.why.value, ending.detail)
        return delay

    def _one_probe(self) -> ProbeExit:
        """Start a probe, or take over a second one, and listen to it until it must be replaced."""
        heard: tuple[bytes, ...] = ()
        successor, self._successor = self._successor, None
        self._step = None
        if successor is not None:
            child, heard = successor.hand_over()
        else:
            try:
                child = ProbeChild(self._leaving_out(self._hung))
            except OSError as error:
                return ProbeExit(why=Interruption.EXIT, detail=f"it could not be started: {error}")
        self._child = child
        if self._called:
            child.lines.put(WAKE)
        try:
            return self._listen(child, heard)
        finally:
            self._child = None
            self._part_with(child)

    def _part_with(self, child: ProbeChild) -> None:
        """End a probe; one that was replaced before its time was over may still show that the GPU is only slow."""
        doubted, self._doubted = self._doubted, None
        if doubted is None:
            self._ending.end(child)
        else:
            self._hear_late_probe()
            self._late_probe.watch(child, *doubted)

    def _hear_late_probe(self) -> None:
        """End a probe that was late. A GPU that it could read after all is tried again at once."""
        child, uuid = self._late_probe.part()
        if child is not None:
            self._ending.end(child)
        if uuid is not None:
            self._hung.at_once(uuid)

    def _leaving_out(self, uuids: Iterable[str]) -> list[str]:
        """The command line of a probe that leaves these GPUs alone."""
        return leaving_out(self._command, uuids, {**self._nameless, **self._core.expected}, careful=self._careful)

    def _listen(self, child: ProbeChild, heard: Iterable[bytes]) -> ProbeExit:
        """Feed the core line by line, first what was `heard`; the result is why there will be no more."""
        allowed, doing, good_cycles = self._settings.start_deadline, "write its first line", 0
        backlog = deque(heard)
        while True:
            try:
                line = backlog.popleft() if backlog else self._next_line(child, allowed, good_cycles)
            except SilentError as silence:
                self._successor = self._late.take()
                return self._hang(allowed, doing, silence.left)
            if self._called:
                return ProbeExit(why=Interruption.EXIT, detail="it is no longer wanted")
            if line == WAKE:
                continue
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
            self._note(message)
            allowed, doing = patience(self._settings, message)
            if not isinstance(message, End):
                continue
            good_cycles += 1
            if good_cycles >= _GOOD_CYCLES:
                self._failures.note_success(_PROBE)
            if not backlog and self._try_again():
                return ProbeExit(why=Interruption.RENEW, detail="a GPU that hung answers again")

    def _note(self, message: Message) -> None:
        """What a message says beyond its readings."""
        self._step = message if isinstance(message, Step) else None
        if isinstance(message, Unavailable):
            self._outage.note(message.cause, message.detail, message.remedy)
        elif self._outage and isinstance(message, Reading):
            self._outage.note_reading()

    def _next_line(self, child: ProbeChild, allowed: float, good_cycles: int) -> bytes | None:
        """The next line; see `Lateness`."""
        # Where GPUs are looked for first, each may have to be initialised; later none does.
        late = self._settings.late if self._step is None or good_cycles else self._settings.deadline
        noted = 0.0

        def look(waited: float) -> None:
            nonlocal noted
            self._turns += 1
            if self._opening and waited - noted >= self._settings.deadline:
                noted = waited
                detail = f"nvmlInit or amdsmi_init has not returned for {format_duration(round(waited, 1))}"
                self._core.cannot_open(self._outage.init_hang(detail))

        return self._late.next_line(child, late=late, allowed=allowed, begin=self._stand_by, look=look)

    def _stand_by(self) -> Trial | None:
        """A second probe that leaves out the GPU with which the first is late."""
        gpu = self._suspect
        if gpu is None or gpu.uuid in tuple(self._hung):  # it is left out already, which has not helped
            return None
        try:
            command = self._leaving_out([*self._hung, gpu.uuid])
            return Trial(command, gpu.uuid, self._settings, STAND_BY_CYCLES)
        except OSError as error:
            _LOG.warning("no second probe could be started: %s", error)
            return None

    def _dismiss(self, second: Trial) -> None:
        """End a second probe that is not needed."""
        self._ending.end(second.hand_over()[0])

    @property
    def _opening(self) -> bool:
        """Whether the probe is opening the driver."""
        return self._step is not None and self._step.what == "init"

    @property
    def _suspect(self) -> GpuInfo | None:
        """The GPU that the probe is busy with."""
        if self._step is None:
            return self._core.awaited
        gpu = suspect(self._step, {**self._nameless, **self._core.expected})
        if gpu is not None and gpu.uuid not in self._core.expected:
            self._nameless[gpu.uuid] = gpu
        return gpu

    def _try_again(self) -> bool:
        """Between two cycles, begin or conclude a trial; True if it has passed and replaces this probe."""
        trial = self._trial
        if self._late_probe.over:
            self._hear_late_probe()
        self._reap()
        if trial is not None:
            if not trial.over:
                return False
            self._trial = None
            if trial.cycle:
                self._successor = trial
                self._hung.note_success(trial.uuid)
                self._nameless.pop(trial.uuid, None)
                return True
            self._ending.end(trial.child)
            self._postpone(trial.uuid, trial.failure)
            return False
        hung = tuple(self._hung)
        if not hung or not self._hung.is_over(hung[0]):
            return False
        if len(self._ending.alive) >= _MOST_STUCK - 1:
            if not self._held_back:
                self._held_back = True
                _LOG.warning("%s is not tried again before one of the probes left behind has ended", hung[0])
            return False
        self._held_back = False
        try:
            self._trial = Trial(self._leaving_out(hung[1:]), hung[0], self._settings)
        except OSError as error:
            self._postpone(hung[0], f"no probe could be started: {error}")
        return False

    def _end_seconds(self) -> None:
        """End each probe but the one at work, and wait until each has ended, as far as it can be ended."""
        self._late.stop()
        self._hear_late_probe()
        for second in (self._trial, self._successor):
            if second is not None:
                self._dismiss(second)
        self._trial = self._successor = None
        self._ending.settle()

    def _hang(self, allowed: float, doing: str, left: float) -> ProbeExit:
        """Note which GPU it was, so that the next probe serves the others. So many seconds were `left` for it."""
        gpu = self._suspect
        if gpu is None:
            what = "nvmlInit or amdsmi_init did not return" if self._opening else f"it did not {doing}"
            why = f"{what} within {format_duration(allowed)}"
            return ProbeExit(why=Interruption.HANG, detail=why)
        limit, fresh = self._settings.late if left else allowed, gpu.uuid not in tuple(self._hung)
        why = f"{gpu_name(gpu.uuid, gpu.index)} was not read within {format_duration(limit)}"
        self._postpone(gpu.uuid, why)
        self._doubted = (gpu.uuid, left) if left else None
        if self._trial is not None:  # it does not leave this GPU out
            self._dismiss(self._trial)
            self._trial = None
        return ProbeExit(why=Interruption.HANG, detail=why, culprit=fresh)

    def _postpone(self, uuid: str, why: str) -> None:
        """Do not read a GPU for some time, longer after each hang."""
        wait = self._hung.note_failure(uuid)
        _LOG.warning("%s is not read for %s: %s", uuid, format_duration(wait), why)

    def _reap(self) -> None:
        """Forget abandoned probes that have ended."""
        self._ending.reap()
        self._core.note_abandoned(len(self._ending.stuck))

    def _await_stuck(self) -> None:
        """Wait while there are too many abandoned probes."""
        self._ending.settle()
        last = self._ending.stuck[-1:]
        while not self._called:
            self._turns += 1
            self._reap()
            if last != self._ending.stuck[-1:] or len(self._ending.stuck) < _MOST_STUCK:
                return
            self._wait(self._settings.restart_max)
