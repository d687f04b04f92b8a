"""A probe that misbehaves: `python -m tests.support.fakes.probe FOLDER LIFE,LIFE,... [--skip UUID]`.

Each start lives the next of these lives, the last one again and again; FOLDER counts the starts.
"""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from gpuwatch.agent.devices.messages import Cycle, Unavailable, encode
from gpuwatch.agent.probe.main import NEEDS_FRESH_PROCESS
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.gpu import a_cycle, a_down, a_gpu, a_reading

CLOCK = SystemClock()
SKIPPED = {uuid for flag, uuid in zip(sys.argv, sys.argv[1:], strict=False) if flag == "--skip"}


def say(*lines: bytes) -> None:
    """Write and flush."""
    for line in lines:
        sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def one_cycle(seq: int) -> None:
    """Two GPUs, those to be skipped down."""
    entries = [a_down(gpu) if f"GPU-{gpu}" in SKIPPED else a_reading(gpu) for gpu in (0, 1)]
    say(*map(encode, a_cycle(seq, CLOCK.monotonic(), *entries)))


def steady() -> NoReturn:
    """Does what it should."""
    seq = 0
    while True:
        one_cycle(seq)
        CLOCK.sleep(0.05)
        seq += 1


def silent() -> NoReturn:
    """Says nothing more."""
    while True:
        CLOCK.sleep(60)


def garbage() -> NoReturn:
    """Says what is no message."""
    one_cycle(0)
    say(b"Traceback (most recent call last):\n")
    silent()


def unordered() -> NoReturn:
    """Ends a cycle that it did not begin."""
    say(encode(a_cycle(0, CLOCK.monotonic(), a_reading())[-1]))
    silent()


def endless() -> NoReturn:
    """Says a line without an end."""
    while True:
        say(b"x" * 65536)


def ends() -> NoReturn:
    """Ends with some last words."""
    one_cycle(0)
    sys.stderr.write("no more memory\n")
    raise SystemExit(7)


def renew() -> NoReturn:
    """Ends as a probe does whose driver was replaced."""
    at = CLOCK.monotonic()
    say(encode(Unavailable(seq=0, monotonic_seconds=at, cause="version_mismatch", detail="replaced", remedy="none")))
    raise SystemExit(NEEDS_FRESH_PROCESS)


def hangs() -> NoReturn:
    """Hangs at GPU 1 unless it may skip it."""
    if "GPU-1" in SKIPPED:
        steady()
    one_cycle(0)
    cycle = Cycle(seq=1, monotonic_seconds=CLOCK.monotonic(), gpus=(a_gpu(0), a_gpu(1)))
    say(encode(cycle), encode(a_cycle(1, CLOCK.monotonic(), a_reading(0))[1]))
    silent()


def hangs_anyway() -> NoReturn:
    """Hangs at GPU 1, also if it is to skip it."""
    SKIPPED.clear()
    hangs()


def deaf() -> NoReturn:
    """Hangs and does not listen to SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hangs()


LIVES: dict[str, Callable[[], NoReturn]] = {
    life.__name__: life
    for life in (steady, silent, garbage, unordered, endless, ends, renew, hangs, hangs_anyway, deaf)
}


if __name__ == "__main__":
    folder, lives = Path(sys.argv[1]), sys.argv[2].split(",")
    born = len(list(folder.iterdir()))
    (folder / str(born)).touch()
    LIVES[lives[min(born, len(lives) - 1)]]()
