"""`gpuwatch probe --record`: a capture that names nobody. And what each capture shows when it is played to an agent."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.capture import Mask
from gpuwatch.agent.devices.messages import Cycle, Down, Reading, Unavailable, decode, encode
from gpuwatch.agent.devices.replay import CAPTURE_ENDED, ReplaySource
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.probe.main import sample
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.gpu import DownCause, GpuDown, GpuInfo
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import START, a_gpu, a_process, a_reading
from tests.support.fakes.nvml import StubDriver
from tests.support.golden_pages import without_versions
from tests.support.paths import TESTS

CAPTURES = sorted((TESTS / "captures").glob("*.jsonl"))
SHOWN = [path for path in CAPTURES if path.stem in {"stub_two_gpus", "nvidia_h200_work"}]
PLAIN = "text/plain; version=0.0.4"
UUID = "GPU-9f8e7d6c-5b4a-4321-8765-0123456789ab"
OTHER = "GPU-9f8e7d6c-5b4a-4321-8765-0123456789ac"
MASKED = [f"GPU-00000000-0000-4000-8000-{place:012d}" for place in range(10)]


def probe(*options: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """A probe that ends by itself."""
    command = [sys.executable, "-m", "gpuwatch", "probe", *options]
    return subprocess.run(command, env=environment, capture_output=True, timeout=20, check=False)


def of_gpus(lines: bytes) -> list[bytes]:
    """What is said of single GPUs."""
    return [line for line in lines.splitlines() if line.startswith((b'{"kind":"reading"', b'{"kind":"down"'))]


def a_real_gpu(uuid: str = UUID, serial: str | None = "1650922012345") -> GpuInfo:
    """A GPU that somebody could recognise."""
    return replace(a_gpu(), uuid=uuid, serial=serial)


# What is masked.


def test_uuids_and_serial_numbers_are_masked() -> None:
    """Each by the place at which it was first seen; nothing else changes."""
    gpus = (a_real_gpu(), a_real_gpu(OTHER, serial=None))
    mask = Mask()
    line = decode(mask.apply(Cycle(seq=3, monotonic_seconds=1.5, gpus=gpus)))
    again = decode(mask.apply(Reading(seq=3, reading=replace(a_reading(), info=gpus[1]))))

    assert line == Cycle(
        seq=3,
        monotonic_seconds=1.5,
        gpus=(replace(gpus[0], uuid=MASKED[0], serial="0000000000001"), replace(gpus[1], uuid=MASKED[2])),
    )
    assert again == Reading(seq=3, reading=replace(a_reading(), info=line.gpus[1]))


def test_names_in_the_drivers_words_are_masked() -> None:
    """Known ones, serial numbers included, and whatever looks like a UUID."""
    words = f"GPU {UUID} (serial 1650922012345) fell off the bus; MIG-{OTHER[4:]} went with it at 00000000:01:00.0"
    down = GpuDown(info=a_real_gpu(), at=START, cause=DownCause.LOST, detail=words)
    line = decode(Mask().apply(Down(seq=0, down=down)))

    assert isinstance(line, Down)
    assert line.down.detail == (
        f"GPU {MASKED[0]} (serial 0000000000001) fell off the bus; MIG{MASKED[2][3:]} went with it at 00000000:01:00.0"
    )


def test_where_a_process_runs_is_kept() -> None:
    """The MIG instances of a process are no secret; a line recorded before they were told says nothing of them."""
    reading = a_reading(processes=(replace(a_process(7), gpu_instance=1, compute_instance=0), a_process(8)))
    line = Mask().apply(Reading(seq=0, reading=reading))
    before = re.sub(rb',"(gpu|compute)_instance":(null|[0-9]+)', b"", line)
    processes = [decoded.reading.processes for text in (line, before) if isinstance(decoded := decode(text), Reading)]

    assert before != line
    assert processes == [reading.processes, (a_process(7), a_process(8))]


def test_a_serial_number_that_says_nothing_breaks_no_words() -> None:
    """Some boards have the number 0: it is masked where it stands, and not in each sentence with a 0."""
    down = GpuDown(info=a_real_gpu(serial="0"), at=START, cause=DownCause.LOST, detail="GPU 0 is lost")
    line = decode(Mask().apply(Down(seq=0, down=down)))

    assert isinstance(line, Down)
    assert line.down.detail == "GPU 0 is lost"


@given(
    st.lists(st.uuids(), min_size=1, max_size=5, unique=True),
    st.lists(st.integers(0, 4), min_size=1, max_size=20),
    st.text(max_size=30),
)
def test_no_name_is_ever_left(uuids: list[object], order: list[int], words: str) -> None:
    """Whatever comes in whatever order; the same GPU has the same mask, and two have two."""
    mask = Mask()
    seen: dict[str, set[str]] = {}
    for place in order:
        name = f"GPU-{uuids[place % len(uuids)]}"
        down = GpuDown(info=a_real_gpu(name), at=START, cause=DownCause.ERROR, detail=f"{words} {name} {words}")
        line = mask.apply(Down(seq=0, down=down))
        message = decode(line)
        assert isinstance(message, Down)
        seen.setdefault(name, set()).add(message.down.info.uuid)
        assert name.encode() not in line
        assert b"1650922012345" not in line

    masks = [mask for each in seen.values() for mask in each]
    assert len(masks) == len(set(masks)) == len(seen)


# The command.


def test_a_recording_is_a_capture(driver: StubDriver, tmp_path: Path) -> None:
    """Nothing is printed, no real name is in it, and it is played byte for byte as it was recorded."""
    driver.gpus(2)
    real = probe("--once", environment=driver.environment).stdout
    capture = tmp_path / "capture.jsonl"
    options = ("--record", str(capture), "--cycles", "3", "--interval", "0.05")
    done = probe(*options, environment=driver.environment)
    recorded = capture.read_bytes()
    played = probe("--source", "replay", "--capture", str(capture), "--interval", "0.001").stdout

    assert (done.returncode, done.stdout) == (0, b"")
    assert b"records into" in done.stderr
    assert [decode(line).seq for line in recorded.splitlines()] == [0] * 4 + [1] * 4 + [2] * 4
    for line in real.splitlines():
        message = decode(line)
        assert isinstance(message, Reading)
        if message.reading.info.uuid not in MASKED:  # a stand-in driver may have such names of its own
            assert message.reading.info.uuid.encode() not in recorded
        if message.reading.info.serial is not None:
            assert f'"{message.reading.info.serial}"'.encode() not in recorded
    assert of_gpus(played) == of_gpus(recorded)


def test_a_capture_can_be_recorded_again(tmp_path: Path) -> None:
    """Which masks one that was made without, and leaves one that has its masks as it is."""
    once, twice = tmp_path / "once.jsonl", tmp_path / "twice.jsonl"
    play = ("--source", "replay", "--interval", "0.001", "--capture")
    probe(*play, str(SHOWN[-1]), "--record", str(once))
    probe(*play, str(once), "--record", str(twice))

    assert of_gpus(once.read_bytes()) == of_gpus(twice.read_bytes()) != []
    assert CAPTURE_ENDED.encode() not in twice.read_bytes()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--record", "/nowhere/capture.jsonl"), b"--record /nowhere/capture.jsonl: No such file or directory; name a"),
        (("--record", __file__), b"test_record.py: File exists; name a new file in a folder that can be written"),
        (("--record", "/tmp/x", "--once"), b"--once prints readings and no cycle"),  # noqa: S108  never made
        (("--cycles", "0"), b"'0' is not a whole number above 0, such as 60"),
        (("--cycles", "1.5"), b"'1.5' is not a whole number above 0, such as 60"),
    ],
)
def test_what_cannot_be_recorded_is_told(options: tuple[str, ...], words: bytes) -> None:
    """Status 2, and a capture that is there is never written over."""
    done = probe("--source", "simulated", *options)

    assert done.returncode == 2
    assert words in done.stderr


# What captures show.


def exposition(capture: Path) -> str:
    """The agent's page after each of the last cycles of a capture."""
    clock = ManualClock()
    core = AgentCore(
        node_id="captured", clock=clock, rules=ActivityRules(), interval_seconds=1.0, stale_after_seconds=8.0
    )
    exporter = Exporter(core, clock, node_id="captured", top_processes=4, own_process=False)
    source, pages = ReplaySource(capture), list[str]()
    for seq in count():
        clock.advance(1.0)
        messages = list(sample(source, seq, clock))
        if isinstance(messages[-1], Unavailable) and messages[-1].cause == CAPTURE_ENDED:
            break
        core.ingest_messages(messages)
        pages.append(f"# after cycle {seq}\n{exporter.page(PLAIN).body.decode()}")
    return without_versions("".join(pages[-5:]))


@pytest.mark.parametrize("capture", SHOWN, ids=lambda path: path.stem)
def test_a_capture_shows_what_it_always_showed(capture: Path) -> None:
    """Byte for byte the recorded exposition; GPUWATCH_UPDATE_GOLDEN=1 writes it anew, and the diff is the review."""
    page = exposition(capture)
    golden = TESTS / "golden" / f"capture_{capture.stem}.prom"
    if os.environ.get("GPUWATCH_UPDATE_GOLDEN") == "1":
        golden.write_text(page, encoding="utf-8")

    assert page == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_a_capture_in_the_repository_names_nobody(capture: Path) -> None:
    """Every one was masked before it came here."""
    text = capture.read_text(encoding="utf-8")
    names = set(re.findall(r"\b[A-Z]{3}-[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}", text))
    serials = set(re.findall(r'"serial":"(\w+)"', text))

    assert all(name[4:].startswith("00000000-0000-4000-8000-") for name in names), names
    assert all(int(serial) < 1000 for serial in serials), serials


def test_every_line_of_a_capture_is_written_as_the_probe_writes_it() -> None:
    """Masking changes names and not the form: a masked line, read and written again, is the same line."""
    reading = Reading(seq=0, reading=replace(a_reading(power_watts=70.125), info=a_real_gpu()))
    masked = Mask().apply(reading)

    assert encode(decode(masked)) == masked
