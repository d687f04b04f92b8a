"""A capture is played as it was recorded, and a broken one is refused by line."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.agent.devices.messages import Cycle, Down, End, Message, Reading, Unavailable, decode, encode
from gpuwatch.agent.devices.replay import CaptureError, ReplaySource
from gpuwatch.agent.probe.main import sample
from gpuwatch.runtime.clock import ManualClock
from tests.support.paths import CAPTURES

CAPTURE = CAPTURES / "stub_two_gpus.jsonl"
LINES = CAPTURE.read_bytes().splitlines(keepends=True)


def play(capture: Path) -> list[list[Message]]:
    """All cycles up to the end of the capture, which is the last."""
    source, clock = ReplaySource(capture), ManualClock()
    cycles: list[list[Message]] = []
    while True:
        cycles.append(list(sample(source, len(cycles), clock)))
        last = cycles[-1][-1]
        if isinstance(last, Unavailable) and last.cause == "capture_ended":
            return cycles


def write(folder: Path, *lines: bytes) -> Path:
    """A capture of those lines."""
    capture = folder / "capture.jsonl"
    capture.write_bytes(b"".join(lines))
    return capture


def test_played_as_recorded() -> None:
    """`gpuwatch probe --source replay` says what was recorded of each GPU, time stamps included, and ends well."""
    command = [sys.executable, "-m", "gpuwatch", "probe", "--source", "replay", "--interval", "0.001"]
    done = subprocess.run([*command, "--capture", str(CAPTURE)], capture_output=True, timeout=20, check=False)
    *played, last = map(decode, done.stdout.splitlines())
    recorded = [decode(line) for line in LINES]

    def of_gpus(messages: list[Message]) -> list[Message]:
        return [message for message in messages if isinstance(message, Reading | Down)]

    assert (done.returncode, done.stderr) == (0, b"")
    assert of_gpus(played) == of_gpus(recorded)
    assert [type(message) for message in played] == [type(message) for message in recorded]
    assert isinstance(last, Unavailable)
    assert last.cause == "capture_ended"


def test_cycles_are_the_players_own() -> None:
    """Cycles are numbered and timed by who plays them, because another host's monotonic clock means nothing here."""
    played = play(CAPTURE)

    assert [cycle[0].seq for cycle in played] == list(range(len(played)))
    assert {cycle[0].monotonic_seconds for cycle in played if isinstance(cycle[0], Cycle)} == {0.0}


def test_a_recorded_fault_is_played() -> None:
    """What was unavailable when recorded is unavailable when played, with the same words."""
    recorded = [message for line in LINES if isinstance(message := decode(line), Unavailable)]
    played = [cycle[0] for cycle in play(CAPTURE)[:-1] if isinstance(cycle[0], Unavailable)]

    assert [(entry.cause, entry.detail, entry.remedy) for entry in played] == [
        (entry.cause, entry.detail, entry.remedy) for entry in recorded
    ]
    assert len(recorded) == 1


def test_driver_lost_in_the_midst(tmp_path: Path) -> None:
    """A cycle that broke off because the driver went is played as unavailable."""
    gone = Unavailable(seq=0, monotonic_seconds=1.0, cause="driver_not_loaded", detail="gone", remedy="load it")
    played = play(write(tmp_path, *LINES[:2], encode(gone), *LINES[4:8]))

    assert isinstance(played[0][0], Unavailable)
    assert isinstance(played[1][-1], End)


def test_cut_short(tmp_path: Path) -> None:
    """A cycle that the end of the recording cuts short is left out, not played in part."""
    played = play(write(tmp_path, *LINES[:6]))

    assert [len(cycle) for cycle in played] == [4, 1]


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        ([*LINES[:2], b'{"kind":"reading"\n'], ":3: not a line of a probe: "),
        ([LINES[0], b'{"kind":"telemetry","seq":0}\n'], ":2: not a line of a probe: Invalid value 'telemetry'"),
        ([LINES[0], LINES[1].replace(b'"power_watts":', b'"power_watts":"much","x":')], "`$.reading.power_watts`"),
        ([LINES[1]], ":1: `reading` of cycle 0 is out of place: no cycle has begun"),
        ([LINES[0], LINES[0]], ":2: `cycle` of cycle 0 is out of place: cycle 0 has not ended"),
        ([*LINES[:2], LINES[5]], ":3: `reading` of cycle 1 is out of place: cycle 0 has not ended"),
        ([*LINES[:2], LINES[3]], ":3: cycle 0 ends before each of its GPUs was read"),
        ([LINES[0], LINES[1].replace(b"GPU-0", b"GPU-9")], ":2: GPU GPU-90000000-0000-4000-8000-000000000000 is not"),
        ([], ": holds no whole cycle; record one with `gpuwatch probe > "),
    ],
)
def test_broken_capture(tmp_path: Path, lines: list[bytes], complaint: str) -> None:
    """A broken capture is refused before anything is played, with file, line and reason."""
    capture = write(tmp_path, *lines)
    with pytest.raises(CaptureError) as caught:
        ReplaySource(capture)

    assert str(caught.value).startswith(str(capture))
    assert complaint in str(caught.value)
