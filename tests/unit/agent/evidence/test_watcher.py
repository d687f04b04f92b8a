"""agent/evidence/watcher.py and signals.py: every signal at its pace, no failure taken for idleness, nobody waits."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules, Memory, fold
from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError
from gpuwatch.agent.evidence.registry import SIGNALS, Around, HostSignals, on_gpus
from gpuwatch.agent.evidence.settings import EvidenceSettings, SnoozeSettings
from gpuwatch.agent.evidence.watcher import HostWatcher, Watched
from gpuwatch.model.activity import Evidence, State
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.builders.gpu import a_busy_reading, a_process, a_reading, a_sample
from tests.support.fakes.host import FolderHost
from tests.support.real.agents import eventually

DEADLINE = 5.0
INTERVAL = 10.0


def said(says: State, name: str = "people") -> Evidence:
    """A finding."""
    return Evidence(name=name, says=says, observed=None, limit=None, unit="", source="a test")


class Scripted:
    """A signal that does as it is told."""

    source = "a test"

    def __init__(self, act: Callable[[Moment], tuple[Evidence, ...]], name: str = "people") -> None:
        self.act = act
        self.name = name

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """Whatever that is."""
        return self.act(now)


def idle(_: Moment) -> tuple[Evidence, ...]:
    """Nothing to be seen."""
    return (said(State.IDLE),)


class Watch:
    """A watcher of one signal on a clock of its own."""

    def __init__(self, act: Callable[[Moment], tuple[Evidence, ...]]) -> None:
        self.clock = ManualClock()
        self.watched = Watched(signal=Scripted(act), interval_seconds=INTERVAL)
        self.watcher = HostWatcher([self.watched], self.clock, DEADLINE)

    def told(self) -> Evidence:
        """What the core is handed now."""
        (entry,) = self.watcher.evidence(self.clock.monotonic())
        return entry


def test_before_its_first_look_a_signal_is_unknown() -> None:
    """Not looked at is not idle."""
    assert Watch(idle).told().note == "not looked at yet"


def test_a_look_is_good_for_three_intervals() -> None:
    """Beyond that, and what a look may take, it is unknown how things are."""
    watch = Watch(idle)
    watch.watcher.look_once(watch.watched)
    watch.clock.advance(3 * INTERVAL + DEADLINE)
    still = watch.told()
    watch.clock.advance(0.1)

    assert still.says is State.IDLE
    assert (watch.told().says, watch.told().note) == (State.UNKNOWN, "it was last looked at 35s ago")


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (UnseenError("the words"), "the words"),
        (PermissionError(13, "Permission denied", "/run/x"), "Permission denied: /run/x"),
        (TimeoutError(), "TimeoutError"),
        (ZeroDivisionError("secret"), "it failed: ZeroDivisionError"),
    ],
)
def test_a_look_that_fails_is_unknown(error: Exception, note: str) -> None:
    """A failure takes the place of what was seen before, and says why; a flaw of ours does not repeat what it held."""
    watch = Watch(idle)
    watch.watcher.look_once(watch.watched)

    def fail(_: Moment) -> tuple[Evidence, ...]:
        raise error

    watch.watched.signal = Scripted(fail)
    watch.watcher.look_once(watch.watched)

    assert (watch.told().says, watch.told().note) == (State.UNKNOWN, note)


def test_a_signal_that_hangs_is_unknown_and_holds_up_nobody() -> None:
    """Past the deadline what it saw before counts no more; the other signals go on, and asking never waits."""
    clock, release = SystemClock(), threading.Event()
    looks: list[Moment] = []

    def hang(_: Moment) -> tuple[Evidence, ...]:
        looks.append(_)
        if len(looks) > 1:
            release.wait()
        return (said(State.IDLE, "disk"),)

    other = Watched(signal=Scripted(idle), interval_seconds=0.01)
    watcher = HostWatcher([Watched(signal=Scripted(hang, "disk"), interval_seconds=0.01), other], clock, 0.2)

    def says() -> dict[str, State]:
        return {entry.name: entry.says for entry in watcher.evidence(clock.monotonic())}

    watcher.start()
    try:
        eventually(lambda: len(looks) == 2 and says() == {"people": State.IDLE, "disk": State.UNKNOWN}, says)
        (note,) = (entry.note for entry in watcher.evidence(clock.monotonic()) if entry.name == "disk")
        before = other.looks
        eventually(lambda: other.looks > before + 5)
        release.set()
        eventually(lambda: says() == {"people": State.IDLE, "disk": State.IDLE}, says)
    finally:
        release.set()
        watcher.stop()

    assert (note or "").startswith("it has not answered for ")


def test_a_look_that_returns_too_late_is_as_old_as_its_beginning() -> None:
    """What it saw was then."""
    watch = Watch(idle)

    def slow(now: Moment) -> tuple[Evidence, ...]:
        watch.clock.advance(100)
        return idle(now)

    watch.watched.signal = Scripted(slow)
    watch.watcher.look_once(watch.watched)

    assert watch.told().says is State.UNKNOWN


# All of them.


def test_every_signal_has_its_section() -> None:
    """SIGNALS and EvidenceSettings name the same evidence, and every signal is called as its section."""
    made = {name: make(Around(settings=EvidenceSettings(), roots=Roots())) for name, make in SIGNALS.items()}

    assert set(SIGNALS) == set(EvidenceSettings.__slots__) - {"enabled", "deadline", "local_disks", "pods"}
    assert {name: signal.name for name, signal in made.items()} == {name: name for name in SIGNALS}


def test_a_signal_that_is_off_says_nothing() -> None:
    """One, or all; the command is off until there is one."""
    clock = ManualClock()
    some = HostSignals(EvidenceSettings(snooze=SnoozeSettings(enabled=False)), clock)
    none = HostSignals(EvidenceSettings(enabled=False), clock)
    simulated = HostSignals(EvidenceSettings(), clock, own_processes=False)

    assert {each.name for each in some.evidence(0)} == set(SIGNALS) - {"snooze", "command"}
    assert {each.name for each in simulated.evidence(0)} == set(SIGNALS) - {
        *("processes", "gpu_process_cpu", "cpu", "connections", "scheduled", "command")
    }
    assert none.evidence(0) == ()


def test_the_processes_of_all_gpus() -> None:
    """Each once; not known where a GPU cannot list its own, or none was read."""
    both = (a_reading(0, processes=(a_process(7), a_process(8))), a_reading(1, processes=(a_process(7),)))

    assert {each.pid for each in on_gpus(both) or ()} == {7, 8}
    assert on_gpus((a_reading(0),)) == frozenset()
    assert on_gpus((*both, a_reading(2, processes=None))) is None
    assert on_gpus(()) is None


@given(says=st.lists(st.sampled_from([State.BUSY, State.IDLE, State.UNKNOWN]), max_size=6), at_work=st.booleans())
def test_busy_wins_and_doubt_is_never_idle(says: list[State], at_work: bool) -> None:
    """Whatever the signals say together, in any order: any busy is busy, else any unknown is unknown."""
    reading = a_busy_reading() if at_work else a_reading()
    sample = replace(a_sample(0, reading), host=tuple(said(each, str(n)) for n, each in enumerate(says)))
    state = fold(Memory(), sample, ActivityRules()).activity.state

    if at_work or State.BUSY in says:
        assert state is State.BUSY
    elif State.UNKNOWN in says:
        assert state is State.UNKNOWN
    else:
        assert state is State.IDLE


def test_a_quiet_host_looked_at_for_real(tmp_path: Path) -> None:
    """All signals in their threads, on a host of folders: after two looks each has spoken, and none is busy."""
    host = FolderHost(tmp_path)
    (tmp_path / "sys/class/net/eth0/device").mkdir(parents=True)
    host.write("proc/net/dev", "Inter-|\n face |\n  eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
    host.sockets()
    clock = SystemClock()
    host.clock.wall, host.clock.elapsed_seconds = clock.now(), clock.monotonic()
    host.login_written()
    settings = EvidenceSettings(snooze=SnoozeSettings(directory=str(tmp_path / "run/gpuwatch/snoozes")))
    signals = HostSignals(settings, clock, host.roots)
    signals.start(lambda: (a_reading(),))

    def says() -> dict[str, State]:
        return {entry.name: entry.says for entry in signals.evidence(clock.monotonic())}

    names = ["people", "processes", "gpu_process_cpu", "cpu", "disk", "network", "connections", "inhibitors"]
    quiet = dict.fromkeys([*names, "scheduled", "snooze"], State.IDLE)
    try:
        eventually(lambda: says() == quiet, says)
    finally:
        signals.stop()

    assert (tmp_path / "run/gpuwatch/snoozes").is_dir()
