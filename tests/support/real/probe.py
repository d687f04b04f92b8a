"""A real probe as a process, and the lines that it writes."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gpuwatch.agent.devices.messages import Message, decode
from tests.support.fakes.nvml import StubDriver

PROBE = [sys.executable, "-m", "gpuwatch", "probe"]
DEADLINE_SECONDS = 20.0


@contextmanager
def streaming(driver: StubDriver, *options: str, interval: float = 0.02) -> Iterator[subprocess.Popen[bytes]]:
    """A probe that streams until it is told otherwise; killed at the deadline, so that no read blocks for ever."""
    command = [*PROBE, "--interval", str(interval), *options]
    environment = {**driver.environment, "PYTHONUNBUFFERED": ""}  # it would hide a line that is not flushed
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        watchdog = threading.Timer(DEADLINE_SECONDS, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def lines(process: subprocess.Popen[bytes]) -> Iterator[Message]:
    """The messages as they come."""
    assert process.stdout is not None
    yield from map(decode, process.stdout)


def until(messages: Iterator[Message], wanted: Callable[[Message], bool]) -> list[Message]:
    """The messages up to the first that is wanted."""
    seen: list[Message] = []
    for message in messages:
        seen.append(message)
        if wanted(message):
            return seen
    pytest.fail(f"the probe ended without the message that was waited for; its last words: {seen[-3:]}")
