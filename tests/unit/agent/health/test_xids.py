"""XIDs: from the driver's event sets and the kernel log to counts, each error once."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import Cycle, Event, Reading, decode, encode
from gpuwatch.agent.devices.replay import CaptureError, ReplaySource
from gpuwatch.agent.health.kernel_log import DriverLoaded, KernelXid
from gpuwatch.agent.health.xids import XidLog
from gpuwatch.agent.published import OutOfOrderError
from gpuwatch.agent.state import AgentCore, Interruption
from gpuwatch.model.health import Health, XidSource
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import START, a_cycle, a_gpu, a_reading
from tests.support.fakes.nvml import GPU_IS_LOST, NO_PERMISSION, UNKNOWN, StubDriver, build
from tests.support.real.agents import RunningAgent, eventually
from tests.support.real.probe import lines, streaming, until

ADDRESS = (0, 1, 0)  # of the builders' GPU 0
OFF_THE_BUS = KernelXid(address=ADDRESS, xid=79, witness=XidSource.BUS)


# Counting


class Log(XidLog):
    """A log that knows one GPU, an hour after boot."""

    def __init__(self) -> None:
        """Nothing was told yet."""
        self.clock = ManualClock(elapsed_seconds=3600.0)
        super().__init__(self.clock)
        self.know([a_gpu(0)])

    def kernel(self, xid: int = 79) -> None:
        """A line with a number, now."""
        self.hear(KernelXid(address=ADDRESS, xid=xid), self.clock.monotonic())

    def bus(self) -> None:
        """A line without a number, now."""
        self.hear(OFF_THE_BUS, self.clock.monotonic())

    @property
    def totals(self) -> dict[int, int]:
        """How often each XID of the GPU counts."""
        return {xid: count.total for (_, xid), count in self.counts.items()}


@pytest.fixture
def log() -> Log:
    """A fresh one."""
    return Log()


def test_one_error_told_by_all_witnesses_counts_once(log: Log) -> None:
    """NVML, the numbered line and the line without a number, seconds apart and in any order."""
    log.bus()
    log.clock.advance(1.0)
    log.kernel()
    log.clock.advance(2.0)
    log.from_nvml("GPU-0", 79)

    assert log.totals == {79: 1}


def test_two_errors_of_one_witness_count_twice(log: Log) -> None:
    """Two lines are two errors, however close; the other witness adds none to them."""
    log.kernel(31)
    log.kernel(31)
    log.from_nvml("GPU-0", 31)
    log.from_nvml("GPU-0", 31)

    assert log.totals == {31: 2}


def test_errors_far_apart_are_different_ones(log: Log) -> None:
    """What the second witness tells a minute later is news."""
    log.kernel(31)
    log.clock.advance(60.0)
    log.from_nvml("GPU-0", 31)

    assert log.totals == {31: 2}
    assert log.counts["GPU-0", 31].last_at == START + timedelta(seconds=60)


def test_the_line_without_a_number_is_one_error_while_it_is_repeated(log: Log) -> None:
    """The driver prints it again at every attempt to reach the GPU."""
    for _ in range(1000):
        log.bus()
        log.clock.advance(0.5)

    assert log.totals == {79: 1}


@given(st.lists(st.sampled_from(["nvml", "kernel"]), max_size=30))
def test_a_count_is_what_the_better_witness_told(told: list[str]) -> None:
    """Whatever the order, as many errors as the witness that told of more of them."""
    log = Log()
    for witness in told:
        log.kernel(13) if witness == "kernel" else log.from_nvml("GPU-0", 13)

    assert log.totals.get(13, 0) == max(told.count("nvml"), told.count("kernel"))


def test_a_gpu_that_is_listed_later_gets_what_was_said_of_its_address(log: Log) -> None:
    """The kernel log is read before the driver lists its GPUs; the time is that of the record."""
    log.hear(KernelXid(address=(0, 2, 0), xid=48), 600.0)
    before = log.totals
    log.know([a_gpu(0), a_gpu(1)])

    assert before == {}
    assert log.counts["GPU-1", 48].last_at == START - timedelta(seconds=3000)


def test_a_driver_that_was_loaded_since_makes_an_error_history(log: Log) -> None:
    """It is counted and not judged; what came after is both."""
    log.hear(KernelXid(address=(0, 2, 0), xid=79), 100.0)  # of a GPU that is listed later
    log.hear(KernelXid(address=ADDRESS, xid=48), 100.0)
    log.hear(DriverLoaded(), 200.0)
    log.hear(KernelXid(address=ADDRESS, xid=62), 300.0)
    log.know([a_gpu(1)])
    news = log.news()

    assert log.totals == {48: 1, 62: 1, 79: 1}
    assert [event.xid for events in news.events.values() for event in events] == [62]
    assert news.reloaded
    assert not log.news().events


def test_series_are_bounded(log: Log) -> None:
    """A driver gone mad makes 64 series per GPU and no more."""
    for xid in range(1000):
        log.from_nvml("GPU-0", xid)

    assert len(log.counts) == 64


# The probe's messages


def a_core(clock: ManualClock) -> AgentCore:
    """An agent's core."""
    return AgentCore(node_id="n", clock=clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0)


def tell(core: AgentCore, clock: ManualClock, *xids: int, seq: int = 1) -> None:
    """A cycle of GPU 0 in which these errors were reported."""
    clock.advance(1.0)
    cycle, *rest = a_cycle(seq, clock.monotonic(), a_reading())
    core.ingest_messages([cycle, *(Event(seq=seq, uuid="GPU-0", xid=xid) for xid in xids), *rest])


def test_counts_survive_the_probe() -> None:
    """A probe that is replaced resets nothing, and while nothing can be read the history stays."""
    clock = ManualClock()
    core = a_core(clock)
    tell(core, clock, 31, 31)
    core.interrupt(Interruption.EXIT, "killed")
    tell(core, clock, 31, 43)
    clock.advance(3600.0)

    counts = core.snapshot(clock.monotonic()).xids
    assert {key: count.total for key, count in counts.items()} == {("GPU-0", 31): 3, ("GPU-0", 43): 1}


def test_an_error_of_a_gpu_outside_of_the_cycle_is_garbage() -> None:
    """As with readings."""
    core = a_core(ManualClock())

    with pytest.raises(OutOfOrderError, match="GPU-0"):
        core.ingest(Event(seq=1, uuid="GPU-0", xid=79))
    core.ingest(Cycle(seq=1, monotonic_seconds=0.0, gpus=(a_gpu(0),)))
    with pytest.raises(OutOfOrderError, match="GPU-7"):
        core.ingest(Event(seq=1, uuid="GPU-7", xid=79))


def test_a_capture_replays_its_errors(tmp_path: Path) -> None:
    """Errors come out in the cycle in which they were recorded; a capture without any plays as before."""
    cycle, *rest = a_cycle(0, 1.0, a_reading())
    event = Event(seq=0, uuid="GPU-0", xid=63)
    capture = tmp_path / "capture.jsonl"
    capture.write_bytes(b"".join(map(encode, [cycle, event, *rest, *a_cycle(1, 2.0, a_reading())])))
    source = ReplaySource(capture)
    played = []
    for _ in range(2):
        source.gpus()
        played.append(source.events())

    assert played == [(("GPU-0", 63),), ()]
    assert decode(encode(event)) == event
    capture.write_bytes(b"".join(map(encode, [cycle, Event(seq=0, uuid="GPU-7", xid=63), *rest])))
    with pytest.raises(CaptureError, match=r"capture.jsonl:2: GPU GPU-7 is not among"):
        ReplaySource(capture)


# The real binding over the stub's event sets


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub driver's library."""
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(tmp_path: Path, library: Path) -> StubDriver:
    """A host with two GPUs."""
    return StubDriver(tmp_path, library, gpus=2)


def test_the_probe_tells_errors_of_the_gpu_that_had_them(driver: StubDriver) -> None:
    """One event for each, in the next cycle; what happened before the probe began is not told."""
    driver.gpu(0).xid(13, count=5)
    with streaming(driver) as process:
        messages = lines(process)
        before = until(messages, lambda message: isinstance(message, Reading) and message.seq >= 3)
        driver.gpu(1).xid(79, count=2)
        after = until(messages, lambda message: isinstance(message, Event))
        after += until(messages, lambda message: isinstance(message, Reading) and message.seq > before[-1].seq + 5)

    events = [message for message in after if isinstance(message, Event)]
    assert not any(isinstance(message, Event) for message in before)
    assert [(event.uuid[-1], event.xid) for event in events] == [("1", 79), ("1", 79)]


def test_events_follow_a_driver_that_was_reloaded(driver: StubDriver) -> None:
    """The set is made anew with the driver."""
    with streaming(driver) as process:
        messages = lines(process)
        until(messages, lambda message: isinstance(message, Reading) and message.seq >= 2)
        driver.load()
        until(messages, lambda message: isinstance(message, Reading) and message.seq >= 6)
        driver.gpu(0).xid(31)
        last = until(messages, lambda message: isinstance(message, Event))[-1]

    assert isinstance(last, Event)
    assert last.xid == 31


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("nvmlEventSetCreate", NO_PERMISSION),
        ("nvmlDeviceRegisterEvents", NO_PERMISSION),
        ("nvmlEventSetWait_v2", GPU_IS_LOST),
    ],
)
def test_an_event_set_that_fails_is_told_once_and_costs_no_reading(
    driver: StubDriver, function: str, code: int
) -> None:
    """Readings go on, the reason is on standard error a single time."""
    driver.gpu(0).error(function, code)
    with streaming(driver) as process:
        read = until(lines(process), lambda message: isinstance(message, Reading) and message.seq >= 20)
        process.terminate()
        assert process.stderr is not None
        words = process.stderr.read().decode()

    assert sum(isinstance(message, Reading) for message in read) >= 40
    assert words.count("may be missed") == 1


def test_a_gpu_that_cannot_be_registered_leaves_the_others_alone(driver: StubDriver) -> None:
    """Its own errors are missed, the others' are told."""
    driver.gpu(0).error("nvmlDeviceRegisterEvents", UNKNOWN)
    with streaming(driver) as process:
        messages = lines(process)
        until(messages, lambda message: isinstance(message, Reading) and message.seq >= 3)
        driver.gpu(1).xid(31)
        cycle = until(messages, lambda message: isinstance(message, Event))[-1]

    assert isinstance(cycle, Event)
    assert (cycle.uuid[-1], cycle.xid) == ("1", 31)


def test_a_gpu_without_events_is_read_in_silence(driver: StubDriver) -> None:
    """Not supported is a fact, not a failure."""
    driver.every_gpu().unsupported("nvmlDeviceRegisterEvents")
    with streaming(driver) as process:
        until(lines(process), lambda message: isinstance(message, Reading) and message.seq >= 3)
        process.terminate()
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_an_agent_shows_what_driver_and_kernel_log_tell(driver: StubDriver, tmp_path: Path) -> None:
    """Both witnesses of one error make one count and one failing GPU; the other GPU stays healthy."""
    kernel_log = tmp_path / "kmsg"
    kernel_log.touch()
    with RunningAgent(driver.environment, kernel_log=kernel_log) as agent:
        eventually(lambda: 'gpuwatch_gpu_health{gpu="0",state="healthy"' in agent.get("/metrics"))
        driver.gpu(0).xid(48)
        with kernel_log.open("a", encoding="ascii") as file:
            file.write("3,99,1000000,-;NVRM: Xid (PCI:0000:01:00): 48, pid=4711, name=secret-job, DBE\n")
        eventually(lambda: "gpuwatch_gpu_xid_errors_total{" in agent.get("/metrics"), lambda: agent.log)
        eventually(lambda: agent.verdict().gpus[0].health.state is Health.FAILING)  # type: ignore[union-attr]
        page, verdict = agent.get("/metrics"), agent.get("/v1/verdict")
        health = agent.verdict().gpus[1].health

    (count,) = [line for line in page.splitlines() if line.startswith("gpuwatch_gpu_xid_errors_total{")]
    assert count.endswith(" 1.0")
    assert 'xid="48"' in count
    assert "gpuwatch_agent_kernel_log_up 1.0" in page
    assert 'code="xid_48"' in page
    assert "secret" not in page + verdict
    assert health is not None
    assert health.state is Health.HEALTHY
