"""What systemd is told, on a real socket."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.runtime import systemd as service
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.systemd import Watchdog
from tests.support.real.agents import eventually

_WAITS = """
from gpuwatch.runtime.systemd import SignalWaiter
ending = SignalWaiter()
print("ready", flush=True)
while not ending.wait():
    print("again", flush=True)
print("end", flush=True)
"""


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What listens where systemd would."""
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(path))
        listening.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(path))
        yield listening


def test_a_state_reaches_systemd(systemd: socket.socket) -> None:
    """As one datagram."""
    service.notify("READY=1")

    assert systemd.recv(100) == b"READY=1"


def test_without_systemd_nothing_is_told_and_nothing_breaks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No socket is no trouble; one that nobody listens at is a line in the log."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    service.notify("READY=1")
    assert caplog.text == ""

    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    service.notify("READY=1")
    assert "systemd did not receive READY" in caplog.text


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "42"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "43"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_the_watchdog_is_the_one_that_was_asked_for(environment: dict[str, str], seconds: float | None) -> None:
    """WATCHDOG_USEC, unless WATCHDOG_PID names another process."""
    assert service.watchdog_seconds(environment, 42) == seconds


def test_signs_of_life_come_with_work_and_end_with_it(systemd: socket.socket) -> None:
    """While the number changes they come; once it stands still there is none."""
    work = [0]
    asked = [0]

    def progress() -> int:
        asked[0] += 1
        work[0] += asked[0] <= 3
        return work[0]

    watchdog = Watchdog(progress, within=0.04)
    watchdog.start()
    try:
        eventually(lambda: asked[0] >= 8, lambda: f"asked {asked[0]} times")
    finally:
        watchdog.stop()
    systemd.setblocking(False)  # noqa: FBT003  the method takes it so
    rows = []
    while True:
        try:
            rows.append(systemd.recv(100))
        except BlockingIOError:
            break

    assert rows == [b"WATCHDOG=1"] * 3


def test_a_rest_that_settings_allow_is_no_hang(systemd: socket.socket) -> None:
    """Where work may stand still for longer than the watchdog waits, systemd is told to wait for twice as long."""
    watchdog = Watchdog(os.getpid, within=10.0, rests=60.0)
    watchdog.start()
    watchdog.stop()

    assert systemd.recv(100) == b"WATCHDOG_USEC=120000000"


def test_reading_settings_again_is_told_with_its_time(systemd: socket.socket) -> None:
    """Microseconds of the monotonic clock: by them systemd knows which signal it answers. The watchdog waits anew."""
    clock = ManualClock()
    service.notify_reloading(clock)

    assert systemd.recv(100) == f"RELOADING=1\nMONOTONIC_USEC={int(clock.monotonic() * 1e6)}\nWATCHDOG=1".encode()


@pytest.mark.parametrize(
    ("heard", "told"),
    [(["TERM"], "end"), (["INT"], "end"), (["HUP"], "again end"), (["HUP", "TERM"], "end")],
    ids=str,
)
def test_a_service_hears_what_it_is_told(heard: list[str], told: str) -> None:
    """SIGTERM and SIGINT end, SIGHUP asks for new settings, and an end goes before those."""
    with subprocess.Popen(
        [sys.executable, "-c", _WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stdout is not None
        waiting.stdout.readline()
        waiting.send_signal(signal.SIGSTOP)  # so that it hears all of them at once
        for name in heard:
            waiting.send_signal(signal.Signals[f"SIG{name}"])
        waiting.send_signal(signal.SIGCONT)
        if told.startswith("again"):
            assert waiting.stdout.readline() == "again\n"
            waiting.terminate()
        assert waiting.stdout.read().split() == ["end"]


def test_a_terminal_that_goes_ends_it() -> None:
    """Who started it by hand and closes the window wants no service that reads its settings again."""
    ours, theirs = os.openpty()
    with subprocess.Popen([sys.executable, "-c", _WAITS], stdin=theirs, stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        waiting.stdout.readline()
        waiting.send_signal(signal.SIGHUP)
        assert waiting.stdout.read() == "end\n"
    os.close(ours)
    os.close(theirs)


def test_nobody_is_told_where_nobody_watches(systemd: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without WatchdogSec no thread is started."""
    monkeypatch.delenv("WATCHDOG_USEC", raising=False)
    watchdog = Watchdog(os.getpid)
    watchdog.start()
    watchdog.stop()
    systemd.setblocking(False)  # noqa: FBT003  the method takes it so

    with pytest.raises(BlockingIOError):
        systemd.recv(100)
