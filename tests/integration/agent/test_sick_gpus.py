"""One sick GPU, or two, and the others stay fresh: the supervisor with real probes on the stand-in driver.

Faults by when they begin (at the start, later, again after recovery) and by what is left of earlier ones.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gpuwatch.agent.settings import AgentSettings
from gpuwatch.model.activity import State
from gpuwatch.model.gpu import DownCause
from tests.support.fakes.nvml import DRIVER_NOT_LOADED, StubDriver
from tests.support.nightly import by_night
from tests.support.real.sick_host import QUICK, SickHost

Open = Callable[..., SickHost]


@pytest.fixture
def host(driver: StubDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Makes hosts, and ends them."""
    made: list[SickHost] = []
    driver.gpus(4)

    def make(settings: AgentSettings = QUICK) -> SickHost:
        made.append(SickHost(driver, monkeypatch, settings))
        return made[-1]

    yield make
    for each in made:
        each.end()


SICK: dict[str, Callable[[StubDriver, int], object]] = {
    "every call blocks": lambda driver, slot: driver.gpu(slot).block(),
    "every call blocks, SIGTERM or not": lambda driver, slot: driver.deafen().gpu(slot).block(),
    "it blocks who attaches it, too": lambda driver, slot: driver.gpu(slot).block().set(attach_blocks=1),
    "measurements block": lambda driver, slot: driver.hang(slot),
    "each call takes 3 s": lambda driver, slot: driver.gpu(slot).slow(3.0),
}


@pytest.mark.parametrize(
    "fault",
    [
        *("every call blocks, SIGTERM or not", "measurements block", "each call takes 3 s"),
        *by_night("every call blocks", "it blocks who attaches it, too"),
    ],
)
def test_a_gpu_that_hangs_later(host: Open, driver: StubDriver, fault: str) -> None:
    """The others lose nothing to speak of, and it is down with what was known of it; the node is unknown, not idle."""
    agent = host()
    agent.until_served(0, 1, 2, 3)
    before = {reading.info.uuid: reading.info for reading in agent.shown.readings}
    SICK[fault](driver, 1)
    seen = agent.record(lambda: agent.up == [0, 2, 3])
    agent.until_served(0, 2, 3)

    assert [len(shown.readings) for shown in seen if len(shown.readings) < 3] == [], "no cycle without the others"
    assert agent.down == {1: "hang"}
    assert {down.info.uuid: down.info for down in agent.shown.downs}.items() <= before.items()
    assert agent.state is State.UNKNOWN
    assert agent.shown.statistics.interruptions == {"hang": 1}
    assert "gpuwatch_probe_up 1" in agent.page


@pytest.mark.parametrize(
    "fault",
    [
        *("every call blocks", "it blocks who attaches it, too"),
        *by_night("every call blocks, SIGTERM or not", "measurements block", "each call takes 3 s"),
    ],
)
def test_a_gpu_that_hangs_from_the_start(host: Open, driver: StubDriver, fault: str) -> None:
    """It is down under its number, the others are served; once it is well it is there under its name alone."""
    SICK[fault](driver, 1)
    agent = host(replace(QUICK, start_deadline=3.0, hung_retry=0.5))
    agent.until_served(0, 2, 3)

    assert agent.down == {1: "hang"}
    assert agent.state is State.UNKNOWN

    driver.find(1)
    agent.until_served(0, 1, 2, 3)

    assert agent.down == {}
    assert agent.state is not State.UNKNOWN


@pytest.mark.parametrize(
    "fault",
    ["it blocks who attaches it, too", *by_night("every call blocks, SIGTERM or not")],
)
def test_a_gpu_that_hangs_again(host: Open, driver: StubDriver, fault: str) -> None:
    """After its recovery the second hang is as cheap for the others as the first; trials in between cost nothing."""
    agent = host(replace(QUICK, hung_retry=0.3, start_deadline=3.0))
    agent.until_served(0, 1, 2, 3)
    for _ in range(2):
        SICK[fault](driver, 1)
        seen = agent.record(lambda: agent.up == [0, 2, 3])
        trials = agent.supervisor._hung._trying["GPU-00000000-0000-4000-8000-000000000001"]
        seen += agent.record(lambda trials=trials: trials.failures > 1)  # type: ignore[misc]
        driver.find(1)
        seen += agent.record(lambda: agent.up == [0, 1, 2, 3])

        assert [len(shown.readings) for shown in seen if len(shown.readings) < 3] == []

    assert set(agent.shown.statistics.interruptions) == {"hang", "renew"}


def test_a_gpu_that_is_late_once(host: Open, driver: StubDriver) -> None:
    """It answers within the deadline after all: it is tried again at once, and not after `hung_retry`."""
    agent = host(replace(QUICK, deadline=20.0, hung_retry=3600.0))
    agent.until_served(0, 1, 2, 3)
    driver.gpu(1).delay("nvmlDeviceGetMemoryInfo_v2", 4.0)
    agent.until(lambda: agent.up == [0, 2, 3])
    driver.gpu(1).delay("nvmlDeviceGetMemoryInfo_v2", 0.0)
    agent.until_served(0, 1, 2, 3)

    assert agent.shown.statistics.interruptions == {"hang": 1, "renew": 1}


def test_a_gpu_that_is_always_late(host: Open, driver: StubDriver) -> None:
    """It is tried again at once only one time: it does not come and go for ever."""
    agent = host(replace(QUICK, deadline=20.0, hung_retry=3600.0))
    agent.until_served(0, 1, 2, 3)
    driver.gpu(1).delay("nvmlDeviceGetMemoryInfo_v2", 2.0)
    agent.until(lambda: agent.shown.statistics.interruptions == {"hang": 2, "renew": 1})
    agent.until(lambda: agent.supervisor._late_probe.child is None)
    agent.until_served(0, 2, 3)

    assert agent.shown.statistics.interruptions == {"hang": 2, "renew": 1}


@pytest.mark.parametrize("start", [False, *by_night((True,))])
def test_two_sick_gpus(host: Open, driver: StubDriver, start: bool) -> None:
    """Each is found by itself, whether they hang at once or from the start; the rest is served."""
    agent = None if start else host()
    if agent is not None:
        agent.until_served(0, 1, 2, 3)
    driver.gpu(0).block()
    driver.gpu(2).block()
    agent = agent or host()
    agent.until_served(1, 3)

    assert agent.down == {0: "hang", 2: "hang"}
    assert agent.state is State.UNKNOWN


@pytest.mark.parametrize("stuck", [1, *by_night(0, 2, 3)])
def test_a_hang_beside_abandoned_probes(
    host: Open, driver: StubDriver, monkeypatch: pytest.MonkeyPatch, stuck: int
) -> None:
    """However many probes sleep in the kernel: a GPU that hangs has a probe that serves the others; it is counted."""
    monkeypatch.setattr("gpuwatch.agent.probe.child.os.killpg", lambda *_: None)
    agent = host()
    well = [0, 1, 2, 3]
    agent.until_served(*well)
    for slot in range(stuck):
        driver.gpu(slot).block()
        well.remove(slot)
        agent.until_served(*well)
        agent.until(lambda slot=slot: agent.stuck == slot + 1)  # type: ignore[misc]
    driver.gpu(3).block()
    well.remove(3)
    agent.until(lambda: agent.up == well and agent.down.get(3) == "hang")
    agent.until(lambda: f"gpuwatch_probe_abandoned {stuck + 1}" in agent.page)

    assert agent.down == {slot: "hang" for slot in range(4) if slot not in well}


def test_trials_stop_while_probes_are_abandoned(
    host: Open, driver: StubDriver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two that sleep in the kernel are enough: no more is risked for the sick GPU, and the log says so once."""
    monkeypatch.setattr("gpuwatch.agent.probe.child.os.killpg", lambda *_: None)
    agent = host(replace(QUICK, hung_retry=0.1, deadline=0.5, start_deadline=1.0))
    agent.until_served(0, 1, 2, 3)
    driver.gpu(1).block()
    agent.until(lambda: agent.stuck == 2)
    cycles = agent.shown.statistics.cycles
    agent.until(lambda: agent.shown.statistics.cycles > cycles + 30)

    assert (agent.stuck, agent.up) == (2, [0, 2, 3])
    assert caplog.text.count("is not tried again before") == 1


# The driver as a whole.


@pytest.mark.parametrize("deaf", [True, *by_night((False,))])
def test_an_init_that_blocks(host: Open, driver: StubDriver, caplog: pytest.LogCaptureFixture, deaf: bool) -> None:
    """All is down for want of the driver, with the cause; it is tried again, one probe at a time, and told once."""
    caplog.set_level(logging.INFO)
    driver.init_takes(None)
    if deaf:
        driver.deafen()
    agent = host(replace(QUICK, deadline=0.3, start_deadline=1.0))
    agent.until(lambda: agent.shown.statistics.interruptions.get("hang", 0) > 2)
    trouble, alive = agent.shown.trouble, len(agent.supervisor._ending.alive)

    assert trouble is not None
    assert (trouble.cause, agent.state) == ("init_hang", State.UNKNOWN)
    assert "nvmlInit" in trouble.detail
    assert 'gpuwatch_probe_down_info{cause="init_hang"} 1' in agent.page
    assert alive <= 1
    assert agent.stuck == 0

    driver.init_takes(0)
    agent.until_served(0, 1, 2, 3)

    assert caplog.text.count("no GPU can be read") == 1
    assert caplog.text.count("GPUs are read again") == 1


def test_an_init_that_blocks_later(host: Open, driver: StubDriver) -> None:
    """GPUs that were read are down with the driver, not with a hang of their own; all come back."""
    agent = host(replace(QUICK, deadline=0.3, start_deadline=1.0))
    agent.until_served(0, 1, 2, 3)
    driver.init_takes(None)
    driver.load()  # whoever uses it must open it anew
    agent.until(lambda: agent.shown.trouble is not None and agent.shown.trouble.cause == "init_hang")

    assert {down.cause for down in agent.shown.downs} == {DownCause.DRIVER}

    driver.init_takes(0)
    agent.until_served(0, 1, 2, 3)


def test_a_missing_driver_is_told_once(host: Open, driver: StubDriver, caplog: pytest.LogCaptureFixture) -> None:
    """One warning with the remedy, however long it lasts; one line when it is over."""
    caplog.set_level(logging.INFO)
    driver.remove(DRIVER_NOT_LOADED)
    agent = host()
    agent.until(lambda: agent.shown.version > 10)
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    assert len(lines) == 1
    assert "driver_not_loaded" in lines[0]
    assert "modprobe nvidia" in lines[0]

    driver.load()
    agent.until_served(0, 1, 2, 3)
    driver.remove(DRIVER_NOT_LOADED)
    agent.until(lambda: caplog.text.count("no GPU can be read") == 2)

    assert caplog.text.count("GPUs are read again") == 1
