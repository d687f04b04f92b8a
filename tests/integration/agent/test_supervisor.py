"""agent/probe/supervisor.py: whatever its probe does, the agent goes on. The probes here are real processes."""

import re
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.probe.command import probe_command
from gpuwatch.agent.probe.supervisor import ProbeSupervisor
from gpuwatch.agent.published import Snapshot
from gpuwatch.agent.settings import AgentSettings
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import DownCause
from gpuwatch.model.metric import DEFAULT_GROUPS
from gpuwatch.runtime.clock import SystemClock
from tests.support.nightly import by_night
from tests.support.paths import ROOT
from tests.support.real.agents import eventually

KNOBS = AgentSettings(interval=0.05, deadline=1.5, restart_min=0.05, restart_max=0.2, hung_retry=60.0)


class Watched:
    """A supervisor over probes of these lives."""

    def __init__(self, folder: Path, lives: str, settings: AgentSettings = KNOBS) -> None:
        """Start at once."""
        self.clock = SystemClock()
        self.folder = folder
        self.core = AgentCore(
            node_id="node-1",
            clock=self.clock,
            rules=settings.activity,
            interval_seconds=settings.interval,
            stale_after_seconds=30.0,
        )
        command = (sys.executable, "-m", "tests.support.fakes.probe", str(folder), lives)
        self.supervisor = ProbeSupervisor(self.core, settings, self.clock, command)
        self.supervisor.start()

    @property
    def shown(self) -> Snapshot:
        """What the agent shows now."""
        return self.core.snapshot(self.clock.monotonic())

    @property
    def up(self) -> list[int | None]:
        """GPUs with values."""
        return [reading.info.index for reading in self.shown.readings]

    @property
    def starts(self) -> int:
        """How many probes there have been."""
        return len(list(self.folder.iterdir()))

    def record(self, end: Callable[[], object]) -> list[Snapshot]:
        """What the agent shows from now on, cycle by cycle, until then."""
        seen: list[Snapshot] = []

        def over() -> object:
            shown = self.shown
            if not seen or shown.version != seen[-1].version:
                seen.append(shown)
            return end()

        self.until(over)
        return seen

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for it."""
        eventually(condition, lambda: (self.starts, self.shown))


Watch = Callable[..., Watched]


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """Makes watched probes and ends them."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    made: list[Watched] = []

    def make(lives: str, settings: AgentSettings = KNOBS) -> Watched:
        made.append(Watched(tmp_path, lives, settings))
        return made[-1]

    yield make
    for watched in made:
        watched.supervisor.stop()

        assert not watched.supervisor.alive, "the loop did not end"


def test_a_steady_probe_is_left_alone(watch: Watch) -> None:
    """Cycle after cycle is shown, and nothing is replaced."""
    watched = watch("steady")
    watched.until(lambda: watched.shown.statistics.cycles >= 5)

    assert watched.up == [0, 1]
    assert (watched.starts, watched.shown.statistics.interruptions) == (1, {})


@pytest.mark.parametrize(
    ("life", "cause"),
    [("garbage", "garbage"), ("unordered", "garbage"), ("endless", "garbage"), ("ends", "exit"), ("silent", "hang")],
)
def test_a_bad_probe_is_replaced(watch: Watch, life: str, cause: str) -> None:
    """The cause is counted, and the next probe's cycles are shown."""
    settings = AgentSettings(interval=0.05, deadline=1.5, start_deadline=3.0, restart_min=0.05)
    watched = watch(f"{life},steady", settings)
    watched.until(lambda: watched.shown.statistics.interruptions)
    watched.until(lambda: watched.up == [0, 1])

    assert watched.shown.statistics.interruptions == {cause: 1}
    assert watched.starts == 2


def test_the_last_words_of_a_probe_are_the_cause(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """What a probe wrote before its end is in the log, and in the words on each of its GPUs."""
    watched = watch("ends,silent")
    watched.until(lambda: watched.shown.trouble)
    shown = watched.shown

    assert shown.trouble is not None
    assert shown.trouble.detail == "it ended with status 7: no more memory"
    assert {(down.cause, down.detail) for down in shown.downs} == {(DownCause.ERROR, shown.trouble.detail)}
    assert shown.verdict.activity.state is State.UNKNOWN
    assert "probe: no more memory" in caplog.text


def test_a_hung_gpu_is_skipped_and_the_others_are_served(watch: Watch) -> None:
    """One GPU's hang costs one deadline; from then on the others are read, and it is down."""
    watched = watch("hangs")
    watched.until(lambda: watched.shown.statistics.interruptions)
    first = {down.info.index: (down.cause, down.detail) for down in watched.shown.downs}
    watched.until(lambda: watched.shown.statistics.cycles >= 5)

    assert first == {1: (DownCause.HANG, "GPU 1 was not read within 1.5s")}
    assert watched.up == [0]
    assert watched.shown.statistics.interruptions == {"hang": 1}


IMPATIENT = AgentSettings(interval=0.05, deadline=1.5, restart_min=0.05, restart_max=0.2, hung_retry=0.2)


def test_a_hung_gpu_is_tried_again(watch: Watch) -> None:
    """After hung_retry a second probe reads it, too; if it answers, that probe takes over from the first."""
    watched = watch("hangs,hangs,steady", IMPATIENT)
    watched.until(lambda: watched.up == [0, 1] and watched.starts > 2)
    watched.until(lambda: watched.shown.statistics.cycles > 20)

    assert watched.shown.statistics.interruptions == {"hang": 1, "renew": 1}
    assert (watched.up, watched.starts) == ([0, 1], 3)


@pytest.mark.parametrize("life", ["ends", "deaf", *by_night("hangs", "garbage")])
def test_a_trial_that_fails_costs_the_other_gpus_nothing(watch: Watch, life: str) -> None:
    """The probe at work goes on, cycle by cycle, however often the GPU is tried, and however the trial ends."""
    watched = watch(f"hangs,hangs,{life}", IMPATIENT)
    watched.until(lambda: watched.starts == 2 and watched.shown.statistics.cycles > 1)
    seen = watched.record(lambda: watched.starts == 4)

    assert [shown.statistics.interruptions for shown in seen if shown.statistics.interruptions != {"hang": 1}] == []
    assert [shown for shown in seen if [each.info.index for each in shown.readings] != [0]] == []
    assert {down.info.index for shown in seen for down in shown.downs} == {1}


def test_a_probe_that_takes_over_loses_no_cycle(watch: Watch) -> None:
    """It has all that its first cycle cannot tell, and the GPU that never hung is shown without a break."""
    watched = watch("hangs,hangs,steady", IMPATIENT)
    watched.until(lambda: watched.starts == 2 and watched.shown.statistics.cycles > 1)
    seen = watched.record(lambda: watched.up == [0, 1])

    assert [shown for shown in seen if shown.readings[0].info.index != 0] == []
    assert [shown for shown in seen if shown.trouble is not None or shown.stale] == []


def test_a_gpu_is_tried_ever_more_rarely(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """The time for which it is left alone doubles with each hang."""
    watched = watch("hangs", IMPATIENT)
    watched.until(lambda: watched.starts == 4)
    waits = re.findall(r"GPU-1 is not read for (\S+)s", caplog.text)

    assert waits[:2] == ["0.2", "0.4"]


def test_trials_that_cannot_be_killed_leave_room_for_a_probe(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second abandoned probe is one too many for another trial: the others must not wait for it to end."""
    with monkeypatch.context() as unkillable:
        unkillable.setattr("gpuwatch.agent.probe.child.os.killpg", lambda *_: None)
        watched = watch("hangs", IMPATIENT)
        watched.until(lambda: len(watched.supervisor._ending.stuck) == 2)
        cycles = watched.shown.statistics.cycles
        watched.until(lambda: watched.shown.statistics.cycles > cycles + 20)
        starts, stuck = watched.starts, list(watched.supervisor._ending.stuck)
    for child in stuck:
        child.process.kill()
    watched.until(lambda: watched.starts > starts)

    assert (starts, watched.up) == (3, [0])
    assert watched.shown.statistics.interruptions == {"hang": 1}


@pytest.mark.parametrize("life", ["steady", *by_night("silent")])
def test_release_ends_a_trial(watch: Watch, life: str) -> None:
    """No probe is left, whether the trial was at work or about to take over; afterwards all GPUs are read."""
    watched = watch(f"hangs,hangs,{life},steady", IMPATIENT)
    watched.until(lambda: watched.starts == 3)
    trial = watched.supervisor._trial
    held = watched.supervisor.release("released by alice")
    watched.supervisor.acquire()
    watched.until(lambda: watched.up == [0, 1])

    assert held == ()
    assert trial is None or trial.child.process.poll() is not None or life == "steady"


def test_a_probe_deaf_to_sigterm_is_killed(watch: Watch) -> None:
    """SIGKILL follows, and the next probe serves the GPU that did not hang."""
    watched = watch("deaf,steady")
    watched.until(lambda: watched.starts == 2 and watched.up == [0])


def test_a_changed_driver_library_gets_a_fresh_probe_at_once(watch: Watch) -> None:
    """A probe that asks to be replaced is no failure."""
    watched = watch("renew,steady")
    watched.until(lambda: watched.up == [0, 1])

    assert watched.shown.statistics.interruptions == {"renew": 1}


@pytest.mark.parametrize("life", ["unordered", *by_night("ends")])
def test_a_probe_that_always_fails_is_replaced_ever_more_slowly(
    watch: Watch, caplog: pytest.LogCaptureFixture, life: str
) -> None:
    """The wait doubles up to restart_max and stays there, also if each probe manages a cycle before it fails."""
    watched = watch(life)
    watched.until(lambda: watched.starts > 4)
    waits = re.findall(r"replaced in (\S+)s ", caplog.text)

    assert waits[:4] == ["0.05", "0.1", "0.2", "0.2"]


def test_probes_that_cannot_be_killed_are_left_behind_but_not_without_end(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three probes that sleep in the kernel are the most; a fourth is started only when one of them ends."""
    with monkeypatch.context() as unkillable:
        unkillable.setattr("gpuwatch.agent.probe.child.os.killpg", lambda *_: None)
        watched = watch(
            "silent,silent,silent,steady", AgentSettings(start_deadline=1.0, restart_min=0.05, restart_max=0.2)
        )
        watched.until(lambda: len(watched.supervisor._ending.stuck) == 3)
        SystemClock().sleep(1.0)
        held_back = watched.starts
    stuck = list(watched.supervisor._ending.stuck)
    stuck[0].process.kill()
    watched.until(lambda: watched.up == [0, 1])
    for child in stuck:
        child.process.kill()
        child.process.wait()

    assert held_back == 3


def test_a_hang_at_a_gpu_that_is_left_out_is_a_failure_like_any_other(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    """To leave it out does not help: the next probe waits longer each time."""
    watched = watch("hangs_anyway", replace(KNOBS, late=0.2, deadline=0.5))
    watched.until(lambda: watched.starts > 4)
    waits = re.findall(r"replaced in (\S+)s ", caplog.text)

    assert waits[-2:] != ["0", "0"]
    assert float(waits[-1]) > 0


def test_a_probe_that_cannot_be_started_is_tried_again() -> None:
    """No program there is a failure like any other: the agent says so and lives."""
    clock = SystemClock()
    core = AgentCore(node_id="n", clock=clock, rules=KNOBS.activity, interval_seconds=1.0, stale_after_seconds=30.0)
    supervisor = ProbeSupervisor(core, KNOBS, clock, ("/nonexistent/probe",))
    supervisor.start()
    eventually(lambda: core.snapshot(clock.monotonic()).statistics.interruptions.get("exit", 0) > 1)
    trouble = core.snapshot(clock.monotonic()).trouble
    supervisor.stop()

    assert trouble is not None
    assert trouble.detail.startswith("it could not be started: ")


def test_release_does_not_wait_for_a_probe_that_is_to_be_replaced(watch: Watch) -> None:
    """While the supervisor waits before the next start there is nothing to let go of; acquire starts at once."""
    watched = watch("ends,steady", AgentSettings(interval=0.05, restart_min=60.0))
    watched.until(lambda: watched.shown.statistics.interruptions == {"exit": 1})
    held = watched.supervisor.release("released by alice")
    watched.until(lambda: watched.shown.trouble is not None and watched.shown.trouble.cause == "released")
    starts = watched.starts
    watched.supervisor.acquire()
    watched.until(lambda: watched.up == [0, 1])

    assert (held, starts) == ((), 1)
    assert watched.supervisor.released is None


def test_release_names_a_probe_that_does_not_let_go(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sleeps in the kernel still holds the device, and whoever is about to reset it must know."""
    with monkeypatch.context() as unkillable:
        unkillable.setattr("gpuwatch.agent.probe.child.os.killpg", lambda *_: None)
        watched = watch("steady")
        watched.until(lambda: watched.up == [0, 1])
        held = watched.supervisor.release("released by alice")
    (stuck,) = watched.supervisor._ending.stuck
    stuck.process.kill()
    stuck.process.wait()
    again = watched.supervisor.release("released by bob")

    assert (held, again) == ((stuck.process.pid,), ())
    assert watched.supervisor.released == "released by alice"
    assert {down.cause for down in watched.shown.downs} == {DownCause.RELEASED}
    assert watched.shown.verdict.activity.state is State.UNKNOWN


def test_stopping_ends_the_probe(watch: Watch) -> None:
    """No thread of the supervisor and no probe is left, whatever the probe was doing."""
    before = set(threading.enumerate())
    watched = watch("hangs", AgentSettings(deadline=60.0))
    watched.until(lambda: watched.core.awaited is not None)
    watched.supervisor.stop()

    eventually(lambda: not [thread for thread in threading.enumerate() if thread not in before], threading.enumerate)


def test_the_probe_is_started_with_the_agents_settings() -> None:
    """The command line says where readings come from, and what is to be read."""
    command = probe_command(AgentSettings(source="replay", capture="/c.jsonl", interval=2.0))

    metrics = ("--metrics", ",".join(sorted(DEFAULT_GROUPS)))
    assert command[-10:] == (
        *("--source", "replay", "--interval", "2.0", "--seed", "0"),
        *metrics,
        *("--capture", "/c.jsonl"),
    )
