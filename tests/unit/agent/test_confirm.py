"""agent/confirm.py: an answer to a confirmation rests only on looks that began after the question."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent import confirm
from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.confirm import Busy, Confirmations, nonce_in
from gpuwatch.agent.evidence import watcher
from gpuwatch.agent.evidence.base import Moment, UnseenError
from gpuwatch.agent.evidence.registry import HostSignals
from gpuwatch.agent.evidence.settings import EvidenceSettings, SnoozeSettings
from gpuwatch.agent.evidence.watcher import HostWatcher, Watched
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import Evidence, State
from gpuwatch.model.gpu import GpuReading
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.gpu import a_busy_reading, a_cycle, a_process, a_reading
from tests.support.fakes.host import FolderHost
from tests.support.nightly import by_night
from tests.support.real.agents import eventually

NONCE = "0123456789abcdef"
RULES = ActivityRules(max_gap=100.0)


class Scripted:
    """A signal that says what it is told to, and counts its looks."""

    source = "a test"

    def __init__(self, name: str) -> None:
        self.name = name
        self.says = State.IDLE
        self.looks: list[Moment] = []
        self.held_up: threading.Event | None = None

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """The finding; where it is held up, the one before that is over by then."""
        self.looks.append(now)
        if self.held_up is not None:
            self.held_up.wait(30)
            raise UnseenError("it was held up")
        return (Evidence(name=self.name, says=self.says, observed=None, limit=None, unit="", source=""),)


class Rig:
    """An agent's parts without its processes: signals looked at once an hour, GPUs read when asked for."""

    def __init__(self) -> None:
        self.clock = ManualClock(elapsed_seconds=1000.0)
        self.slurm, self.cpu = Scripted("slurm"), Scripted("gpu_process_cpu")
        watched = [
            Watched(signal=self.slurm, interval_seconds=3600.0),
            Watched(signal=self.cpu, interval_seconds=3600.0, after_gpus=True),
        ]
        self.reading: GpuReading | None = a_reading()
        self.watcher = HostWatcher(watched, self.clock, 5.0, self._pids)
        self.core = AgentCore(
            node_id="n",
            clock=self.clock,
            rules=RULES,
            interval_seconds=60.0,
            stale_after_seconds=200.0,
            host=self.watcher.evidence,
        )
        self.cycles = 0
        self.confirmations = Confirmations(self.core, self.watcher, self.cycle, self.clock)

    def cycle(self) -> None:
        """The probe reads the GPU, unless it is gone."""
        if self.reading is not None:
            self.clock.advance(0.1)
            self.cycles += 1
            self.core.ingest_messages(a_cycle(self.cycles, self.clock.monotonic(), self.reading))

    def rest(self, seconds: float) -> None:
        """So long nothing happens, but a cycle at its end."""
        self.clock.advance(seconds)
        self.cycle()

    def _pids(self) -> frozenset[int]:
        readings = self.core.snapshot(self.clock.monotonic()).readings
        return frozenset(each.pid for reading in readings for each in reading.processes or ())


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """At rest for 50 seconds, each signal looked at once."""
    monkeypatch.setattr(watcher, "_SECOND_LOOK_SECONDS", 0.01)
    made = Rig()
    made.watcher.start()
    eventually(lambda: made.watcher.await_looks(0.0, 0.0))
    # The second look comes soon after the first, and is not what is tested here.
    eventually(lambda: len(made.slurm.looks) == len(made.cpu.looks) == 2)
    made.cycle()
    made.rest(50.0)
    yield made
    made.watcher.stop()


def test_it_looks_again_at_everything(rig: Rig) -> None:
    """The looks begin after the question, the GPUs' processes are known before they are looked at, and all is told."""
    rig.reading = a_reading(processes=(a_process(7),))
    asked_at = rig.clock.monotonic()
    verdict = rig.confirmations.answer(NONCE)

    assert all(signal.looks[-1].monotonic_seconds >= asked_at for signal in (rig.slurm, rig.cpu))
    assert rig.cpu.looks[-1].gpu_pids == frozenset({7})
    assert (verdict.confirm, verdict.activity.state) == (NONCE, State.PARKED)
    assert verdict.looked_seconds is not None
    assert 0.0 <= verdict.looked_seconds <= rig.clock.monotonic() - asked_at


def test_a_quiet_machine_keeps_its_idle_time(rig: Rig) -> None:
    """Being asked is no work."""
    before = rig.core.verdict(rig.clock.monotonic()).activity
    after = rig.confirmations.answer(NONCE).activity

    assert (before.state, after.state) == (State.IDLE, State.IDLE)
    assert after.held_seconds >= before.held_seconds >= 50.0


@pytest.mark.parametrize("what", ["slurm", "gpu"])
def test_work_that_began_since_the_last_look_is_seen(rig: Rig, what: str) -> None:
    """And the agent's own state learns of it: when it is over, the idle time begins at zero."""
    if what == "gpu":
        rig.reading = a_busy_reading()
    else:
        rig.slurm.says = State.BUSY
    cached = rig.core.verdict(rig.clock.monotonic()).activity.state
    confirmed = rig.confirmations.answer(NONCE)
    usual = rig.core.verdict(rig.clock.monotonic())
    rig.reading, rig.slurm.says = a_reading(), State.IDLE
    rig.watcher.ask(after_gpus=False)
    eventually(lambda: rig.watcher.evidence(rig.clock.monotonic())[0].says is State.IDLE)
    rig.rest(1.0)
    later = rig.core.verdict(rig.clock.monotonic()).activity

    assert (cached, confirmed.activity.state, usual.activity.state) == (State.IDLE, State.BUSY, State.BUSY)
    assert (usual.confirm, usual.looked_seconds) == (None, None)
    assert (later.state, later.held_seconds) == (State.IDLE, 0.0)


@pytest.mark.parametrize(
    ("hung", "before"),
    [
        *(("slurm", State.IDLE), ("gpu_process_cpu", State.BUSY)),
        *by_night(("slurm", State.BUSY), ("gpu_process_cpu", State.IDLE)),
    ],
)
def test_a_look_that_is_late_is_unknown(rig: Rig, hung: str, before: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never what it saw before, be that idle or busy; the answer comes in time, and the next one is sound again."""
    monkeypatch.setattr(confirm, "_LOOKS_SECONDS", 0.5)
    signal = rig.slurm if hung == "slurm" else rig.cpu
    signal.says = before
    rig.confirmations.answer(NONCE)
    signal.held_up, signal.says = threading.Event(), State.IDLE
    late = rig.confirmations.answer(NONCE).activity
    release, signal.held_up = signal.held_up, None
    release.set()
    sound = rig.confirmations.answer(NONCE).activity

    assert (late.state, late.doubt) == (State.UNKNOWN, f"{hung}: it could not be looked at again in time")
    assert sound.state is State.IDLE


@pytest.mark.parametrize("busy", [True, False])
def test_gpus_that_are_not_read_again_are_unknown(rig: Rig, busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the probe hangs, is gone or the GPUs were let go of: the last cycle says nothing of now."""
    monkeypatch.setattr(confirm, "_LOOKS_SECONDS", 0.2)
    monkeypatch.setattr(confirm, "ROUND_SECONDS", 0.3)
    rig.reading = a_busy_reading() if busy else a_reading()
    rig.cycle()
    rig.reading = None
    verdict = rig.confirmations.answer(NONCE)

    assert verdict.activity.state is State.UNKNOWN
    assert "could not be read again" in (verdict.activity.doubt or "")
    assert [gpu.activity.state for gpu in verdict.gpus] == [State.UNKNOWN]


def test_a_cycle_that_was_under_way_does_not_count(rig: Rig) -> None:
    """It may have read a GPU before the question came."""
    since = rig.clock.monotonic()
    messages = a_cycle(rig.cycles + 1, since, a_reading())
    rig.clock.advance(0.1)
    rig.core.ingest_messages(messages)

    assert rig.core.verdict_of(began_after=since, judged_after=since) is None
    rig.cycle()
    assert rig.core.verdict_of(began_after=since, judged_after=since) is not None
    assert rig.core.verdict_of(began_after=since, judged_after=rig.clock.monotonic() + 1) is None


# Many questions.


def test_one_round_answers_all_that_came_before_it(rig: Rig) -> None:
    """Those that come while it is at work share the next; no round begins within a second of the last."""
    rig.slurm.held_up = threading.Event()
    looks = len(rig.slurm.looks)
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(rig.confirmations.answer, NONCE)
        eventually(lambda: len(rig.slurm.looks) == looks + 1)
        rest = [pool.submit(rig.confirmations.answer, f"{NONCE}-{number}") for number in range(19)]
        eventually(lambda: rig.confirmations.waiting == 20)
        release, rig.slurm.held_up = rig.slurm.held_up, None
        release.set()
        answers = [each.result() for each in rest]
        first.result()
    began = [moment.monotonic_seconds for moment in rig.slurm.looks[looks:]]

    assert [each.confirm for each in answers] == [f"{NONCE}-{number}" for number in range(19)]
    assert {each.activity.state for each in answers} == {State.IDLE}
    assert len(began) == 2
    assert began[1] - began[0] >= 1.0
    assert rig.confirmations.waiting == 0


def test_too_many_questions_are_refused(rig: Rig) -> None:
    """At once: whoever asks without end costs neither threads nor looks."""
    rig.slurm.held_up = threading.Event()
    with ThreadPoolExecutor(32) as pool:
        waiting = [pool.submit(rig.confirmations.answer, NONCE) for _ in range(32)]
        eventually(lambda: rig.confirmations.waiting == 32)
        with pytest.raises(Busy):
            rig.confirmations.answer(NONCE)
        rig.slurm.held_up.set()
        for each in waiting:
            each.result()

    assert rig.confirmations.waiting == 0


def test_a_question_that_gets_no_round_in_time_is_in_doubt(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round before it hangs: it is answered all the same, and with doubt."""
    answered = threading.Event()
    look = rig.confirmations._look_again
    monkeypatch.setattr(rig.confirmations, "_look_again", lambda since: answered.wait(10) and look(since))
    monkeypatch.setattr(confirm, "ANSWER_SECONDS", 0.0)
    verdict = rig.confirmations.answer(NONCE)
    answered.set()

    assert (verdict.activity.state, verdict.confirm, verdict.looked_seconds) == (State.UNKNOWN, NONCE, None)


def test_a_flaw_in_a_round_is_doubt(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next round is another one."""
    with monkeypatch.context() as broken:
        broken.setattr(rig.watcher, "oldest", lambda _: 1 / 0)
        failed = rig.confirmations.answer(NONCE)
    sound = rig.confirmations.answer(NONCE)

    assert (failed.activity.state, sound.activity.state) == (State.UNKNOWN, State.IDLE)


# The real signals.


def test_every_signal_is_looked_at_again(tmp_path: Path) -> None:
    """All of them, whatever their interval; and what they say then is judged by the same limits as ever."""
    host = FolderHost(tmp_path)
    (tmp_path / "sys/class/net/eth0/device").mkdir(parents=True)
    host.write("proc/net/dev", "Inter-|\n face |\n  eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
    settings = EvidenceSettings(snooze=SnoozeSettings(directory=str(tmp_path / "run/gpuwatch/snoozes")))
    clock = SystemClock()
    signals = HostSignals(settings, clock, host.roots)
    signals.start(lambda: (a_reading(),))
    try:
        eventually(lambda: all(entry.says is State.IDLE for entry in signals.evidence(clock.monotonic())))
        since = clock.monotonic()
        unasked = signals.watcher.await_looks(since, 0.0)
        signals.watcher.require(since)
        doubts = {entry.note for entry in signals.evidence(clock.monotonic())}
        signals.watcher.ask(after_gpus=False)
        signals.watcher.ask(after_gpus=True)
        done = signals.watcher.await_looks(since, 20.0)
        says = {entry.says for entry in signals.evidence(clock.monotonic())}
    finally:
        signals.stop()

    assert (unasked, done) == (False, True)
    assert doubts == {"it could not be looked at again in time"}
    assert says == {State.IDLE}


# What is asked for.


@pytest.mark.parametrize("query", ["", "x=1", "confirms=abc"])
def test_no_confirmation_is_asked_for(query: str) -> None:
    """Other parameters are passed over."""
    assert nonce_in(query) is None


@given(st.from_regex(r"[A-Za-z0-9_-]{16,64}", fullmatch=True))
def test_a_nonce(nonce: str) -> None:
    """16 to 64 letters, digits, - or _."""
    assert nonce_in(f"confirm={nonce}&x=1") == nonce


@pytest.mark.parametrize(
    "query",
    [
        "confirm",
        "confirm=",
        f"confirm={'a' * 15}",
        f"confirm={'a' * 65}",
        f"confirm={NONCE}%0a",
        f"confirm={NONCE}+x",
        f"confirm={NONCE}&confirm={NONCE}",
        f"confirm={NONCE}\u00e9",
        "confirm=%00",
    ],
)
def test_what_is_no_nonce(query: str) -> None:
    """It is refused in words."""
    with pytest.raises(ValueError, match="16 to 64 letters"):
        nonce_in(query)
