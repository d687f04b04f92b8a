"""The probe as its supervisor sees it: a process, its lines, its exit status."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.devices.messages import Cycle, Down, End, Reading, Unavailable, decode
from gpuwatch.agent.probe.main import Requests, ticks
from gpuwatch.model.gpu import DownCause
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.fakes.nvml import VERSION_MISMATCH, StubDriver, build
from tests.support.real.probe import DEADLINE_SECONDS, PROBE, lines, streaming, until


def run(driver: StubDriver, *options: str) -> subprocess.CompletedProcess[str]:
    """A probe that ends by itself."""
    command = [*PROBE, *options]
    return subprocess.run(
        command, env=driver.environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )


# Once.


def test_once(driver: StubDriver) -> None:
    """--once prints one JSON document for each GPU and ends well."""
    driver.gpus(2)
    driver.gpu(1).utilization(0.37)
    done = run(driver, "--once")
    documents = [json.loads(line) for line in done.stdout.splitlines()]

    assert (done.returncode, done.stderr) == (0, "")
    assert [document["kind"] for document in documents] == ["reading", "reading"]
    assert documents[1]["reading"]["utilization_ratio"] == 0.37


def test_once_with_a_lost_gpu(driver: StubDriver) -> None:
    """A lost GPU has its own document and the others are read."""
    driver.gpus(2)
    driver.lose(0)
    done = run(driver, "--once")
    first, second = map(decode, done.stdout.encode().splitlines())

    assert done.returncode == 0
    assert isinstance(first, Down)
    assert first.down.cause is DownCause.LOST
    assert isinstance(second, Reading)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (lambda driver: driver.remove(), "Driver Not Loaded (load it: `modprobe nvidia`"),
        (lambda driver: driver.gpus(0), "there is no GPU on this host (`nvidia-smi -L`"),
        (lambda driver: driver.lose(0), "no GPU could be read"),
    ],
    ids=["no driver", "no GPU", "the only GPU lost"],
)
def test_once_without_a_reading(driver: StubDriver, fault: Callable[[StubDriver], None], sentence: str) -> None:
    """When nothing can be read, standard error has one sentence with a remedy and the status is 1."""
    fault(driver)
    done = run(driver, "--once")

    assert done.returncode == 1
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_without_the_library(driver: StubDriver, tmp_path: Path) -> None:
    """A host without the driver's library is told to install the driver."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    driver.library = tmp_path
    done = run(driver, "--once")

    assert done.returncode == 1
    assert "NVML Shared Library Not Found (install the NVIDIA driver" in done.stderr


def test_an_old_driver(driver: StubDriver, tmp_path: Path) -> None:
    """A driver that lacks the newer functions is read through the older ones."""
    driver.library = build(tmp_path / "old", old=True)
    driver.gpu(0).set(temperature=61, clock_events=4).processes({10: 5})
    message = decode(run(driver, "--once").stdout.encode())

    assert isinstance(message, Reading)
    assert (message.reading.temperature_celsius, message.reading.clock_events) == (61.0, ("sw_power_cap",))
    assert [process.pid for process in message.reading.processes or ()] == [10]
    assert (message.reading.sram_threshold_exceeded, message.reading.fabric_state) == (None, None)


def test_calls_of_one_cycle(driver: StubDriver) -> None:
    """The first cycle, which reads the slow rows too, makes no measuring call twice beyond what a table names."""
    driver.gpus(4)
    run(driver, "--once")
    calls = driver.calls()
    more = {
        "nvmlDeviceGetSamples": 2,  # their number first
        "nvmlDeviceGetFieldValues": 5,  # the number of NVLinks, and one batch of each kind
        "nvmlDeviceGetClockInfo": 4,  # clocks
        "nvmlDeviceGetMaxClockInfo": 4,
    }
    measuring = {name: count for name, count in calls.items() if name.startswith("nvmlDeviceGet")}
    del measuring["nvmlDeviceGetCount_v2"]

    assert measuring == {name: 4 * more.get(name, 1) for name in measuring}


# As a stream.


def test_a_cycle(driver: StubDriver) -> None:
    """A cycle is its GPUs, one line for each as it is read, and an end; the next has the next number."""
    driver.gpus(2)
    with streaming(driver) as process:
        seen = list(islice(lines(process), 5))

    assert [type(message) for message in seen] == [Cycle, Reading, Reading, End, Cycle]
    assert [message.seq for message in seen] == [0, 0, 0, 0, 1]
    assert isinstance(seen[0], Cycle)
    assert [gpu.index for gpu in seen[0].gpus] == [0, 1]


def test_samples_between_cycles(driver: StubDriver) -> None:
    """Load that rises while the probe runs shows in a later cycle."""
    with streaming(driver) as process:
        messages = lines(process)
        until(messages, lambda message: isinstance(message, End))
        driver.gpu(0).utilization(0.9)
        until(messages, lambda message: isinstance(message, Reading) and message.reading.utilization_ratio == 0.9)


def test_the_driver_appears(driver: StubDriver, nvml_library: Path, tmp_path: Path) -> None:
    """Without a driver each cycle says so; when the driver is installed, readings begin in the same process."""
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_bytes(b"")
    driver.library = tmp_path
    driver.remove()
    with streaming(driver) as process:
        messages = lines(process)
        missing = until(messages, lambda message: message.seq == 2)
        library.unlink()
        library.symlink_to(nvml_library / library.name)
        until(messages, lambda message: isinstance(message, Unavailable) and message.cause == "driver_not_loaded")
        driver.load()
        until(messages, lambda message: isinstance(message, Reading))

    assert {message.cause for message in missing if isinstance(message, Unavailable)} == {"library_not_found"}
    assert len(missing) == 3


def test_the_driver_leaves_in_the_midst(driver: StubDriver) -> None:
    """A driver that goes during a cycle ends it with `unavailable`, and cycles resume when it is back."""
    driver.latency(2000)
    with streaming(driver) as process:
        messages = lines(process)
        until(messages, lambda message: isinstance(message, Cycle))
        driver.remove()
        until(messages, lambda message: isinstance(message, Unavailable))
        driver.load()
        until(messages, lambda message: isinstance(message, End))


def test_a_driver_upgrade(driver: StubDriver) -> None:
    """When library and kernel module differ, the probe says so and ends with status 3, to be started afresh."""
    with streaming(driver) as process:
        messages = lines(process)
        until(messages, lambda message: isinstance(message, End))
        driver.remove(VERSION_MISMATCH)
        *_, last = messages
        status = process.wait()

    assert isinstance(last, Unavailable)
    assert (last.cause, status) == ("version_mismatch", 3)


def test_a_mismatch_from_the_start(driver: StubDriver) -> None:
    """A probe that starts on mismatched parts goes on trying, since another one would fare no better at once."""
    driver.remove(VERSION_MISMATCH)
    with streaming(driver) as process:
        messages = lines(process)
        until(messages, lambda message: message.seq == 3)
        driver.load()
        until(messages, lambda message: isinstance(message, Reading))


def test_a_hanging_gpu(driver: StubDriver) -> None:
    """A hang stops the stream at the hanging GPU; a fresh probe that skips it reads the others."""
    driver.gpus(3)
    driver.hang(1)
    with streaming(driver) as process:
        before = list(islice(lines(process), 2))
        process.terminate()
        status = process.wait()
    cycle = before[0]
    assert isinstance(cycle, Cycle)
    hanging = cycle.gpus[1].uuid
    with streaming(driver, "--skip", hanging) as process:
        after = list(islice(lines(process), 4))

    assert status == -signal.SIGTERM, "a probe that hangs in the driver must still obey SIGTERM"
    assert [type(message) for message in after] == [Cycle, Reading, Down, Reading]
    assert [message.down.cause for message in after if isinstance(message, Down)] == [DownCause.HANG]


def test_nobody_listens(driver: StubDriver) -> None:
    """When the supervisor is gone the probe lets go of the driver and ends quietly."""
    with streaming(driver) as process:
        until(lines(process), lambda message: isinstance(message, End))
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        status, words = process.wait(), process.stderr.read()

    assert (status, words) == (0, b"")
    assert driver.calls()["nvmlShutdown"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals(driver: StubDriver, number: signal.Signals) -> None:
    """A signal ends the probe at once and without a word."""
    with streaming(driver, interval=60.0) as process:
        until(lines(process), lambda message: isinstance(message, End))
        process.send_signal(number)
        assert process.stderr is not None
        status, words = process.wait(), process.stderr.read()

    assert (status, words) == (-number, b"")


# Arguments and weight.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--interval", "soon"), "'soon' is not a number of seconds above 0"),
        (("--interval", "0"), "'0' is not a number of seconds above 0"),
        (("--interval", "nan"), "'nan' is not a number of seconds above 0"),
        (("--source", "amd"), "invalid choice: 'amd'"),
        (("--source", "replay"), "--source replay needs --capture FILE"),
        (("--source", "replay", "--capture", "/nowhere"), "/nowhere: cannot be read: No such file or directory"),
    ],
)
def test_wrong_arguments(driver: StubDriver, options: tuple[str, ...], words: str) -> None:
    """A wrong argument is named with what would be right, and the status is 2."""
    done = run(driver, *options)

    assert done.returncode == 2
    assert words in done.stderr


def test_the_probe_is_small() -> None:
    """The probe loads no web server, no validator, no exporter and no source that was not chosen."""
    modules = "gpuwatch.agent.probe.main, gpuwatch.agent.devices.nvml.source, sys"
    program = f"import {modules}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.splitlines()}
    heavy = {"aiohttp", "asyncio", "boto3", "click", "http", "prometheus_client", "pydantic", "yaml"}

    assert loaded & heavy == set()
    assert "gpuwatch.agent.devices.replay" not in done.stdout.splitlines()


# Ticks.


@given(
    interval=st.floats(0.05, 60.0),
    costs=st.lists(st.floats(0.0, 200.0), min_size=1, max_size=30),
)
def test_ticks_keep_time(interval: float, costs: list[float]) -> None:
    """Each cycle begins on a whole interval, however long the one before took, and never in one that has passed."""
    clock = ManualClock(elapsed_seconds=1000.0)
    beginnings = []
    for cost, _ in zip(costs, ticks(interval, clock), strict=False):
        beginnings.append((clock.monotonic() - 1000.0) / interval)
        clock.advance(cost)

    for before, after, cost in zip(beginnings, beginnings[1:], costs, strict=False):
        assert math.isclose(after, round(after), abs_tol=1e-6), f"{after} intervals after the start is no tick"
        assert round(after) > round(before)
        assert round(after) - before <= cost / interval + 1 + 1e-6, "a tick that could be kept was skipped"


@given(
    interval=st.sampled_from([0.05, 0.1, 1.0, 30.0]),
    waits=st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.floats(0, 2)), min_size=1, max_size=30),
)
def test_a_requested_cycle_comes_in_between(interval: float, waits: list[tuple[float, bool, float]]) -> None:
    """At once, but never too soon for GPM; and the regular cycles go on."""
    clock = ManualClock(elapsed_seconds=1000.0)
    script = iter(waits)

    def asked(seconds: float) -> bool:
        share, wanted, _ = next(script, (0.0, False, 0.0))
        if wanted and seconds > 0:
            clock.advance(share * seconds)
        return wanted and seconds > 0

    spacing = min(0.15, interval)
    last: float | None = None
    cost = 0.0
    for number, _ in zip(range(40), ticks(interval, clock, asked), strict=False):
        now = clock.monotonic()
        if last is not None:
            assert now - last >= min(spacing, interval) - 1e-6
            assert now - last <= 2 * interval + cost + spacing + 1e-6
        last = now
        cost = waits[number % len(waits)][2] * interval
        clock.advance(cost)


def test_requests_end_with_who_asks() -> None:
    """Bytes that came together are one request; a pipe that was closed asks for nothing, and is not read again."""
    read, write = os.pipe()
    requests = Requests(SystemClock(), read)
    try:
        none = requests.wait(0.0)
        os.write(write, b"\n\n")
        both = [requests.wait(60.0), requests.wait(0.0)]
    finally:
        os.close(write)
    closed = requests.wait(60.0)
    os.close(read)

    assert (none, both, closed, requests.wait(60.0)) == (False, [True, False], False, False)


def test_a_cycle_on_request(driver: StubDriver) -> None:
    """With --on-request a byte on standard input begins a cycle, however far away the next one is."""
    command = [*PROBE, "--interval", "3600", "--on-request"]
    with subprocess.Popen(command, env=driver.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        watchdog = threading.Timer(DEADLINE_SECONDS, process.kill)
        watchdog.start()
        assert process.stdin is not None
        try:
            messages = lines(process)
            until(messages, lambda message: isinstance(message, End))
            driver.gpu(0).utilization(0.5)
            process.stdin.write(b"\n")
            process.stdin.flush()
            seen = until(messages, lambda message: isinstance(message, End))
        finally:
            watchdog.cancel()
            process.kill()

    assert [each.reading.utilization_ratio for each in seen if isinstance(each, Reading)] == [0.5]
