"""agent/health/kernel_log.py: what is read out of the kernel log, from real lines, and what never is."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.health.kernel_log import DriverLoaded, KernelEvent, KernelLog, KernelXid, parse, pci_address
from gpuwatch.model.health import XidSource
from gpuwatch.runtime.clock import ManualClock, SystemClock
from tests.support.real.agents import PATIENCE_SECONDS, eventually

GPU = (0, 0x05, 0)


def record(words: str, seconds: float = 12.5, priority: int = 4) -> bytes:
    """A record of /dev/kmsg as read(2) gives it, by the kernel unless the priority says another facility."""
    return f"{priority},1234,{round(seconds * 1e6)},-;{words}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:05:00.0\n".encode()


def said(words: str) -> KernelEvent | None:
    """What those words of the kernel say."""
    parsed = parse(record(words))
    return None if parsed is None else parsed[1]


# Lines


@pytest.mark.parametrize(
    ("words", "event"),
    [
        (
            "NVRM: Xid (PCI:0000:05:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
            KernelXid(address=GPU, xid=79),
        ),
        (
            "NVRM: Xid (PCI:0000:05:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception",
            KernelXid(address=GPU, xid=13),
        ),
        ("NVRM: Xid (0000:05:00): 31, Ch 0000000b, engmask 00000120", KernelXid(address=GPU, xid=31)),
        ("NVRM: Xid (PCI:0000:05:00 GPU-I:05): 43, pid=7, name=job", KernelXid(address=GPU, xid=43)),
        ("NVRM: Xid (PCI:0000:05:00.0): 119, Timeout after 6s", KernelXid(address=GPU, xid=119)),
        ("NVRM: Xid (PCI:000a:c1:00): 48", KernelXid(address=(0xA, 0xC1, 0), xid=48)),
    ],
)
def test_a_numbered_line_is_an_xid_of_the_gpu_at_its_address(words: str, event: KernelXid) -> None:
    """The forms of R4xx to R5xx drivers, with and without process, function and MIG instance."""
    assert said(words) == event


@pytest.mark.parametrize(
    "words",
    [
        "NVRM: GPU 0000:05:00.0: GPU has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus and is",
        "NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:2330)\\x0aNVRM: installed has\\x0aNVRM: fallen off the bus",
    ],
)
def test_a_gpu_off_the_bus_is_xid_79_also_without_a_number(words: str) -> None:
    """Both lines that the driver prints without a number, whole or broken into lines."""
    assert said(words) == KernelXid(address=GPU, xid=79, witness=XidSource.BUS)


@pytest.mark.parametrize(
    ("words", "fatal"),
    [
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000)", True),
        ("145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x00000004 0x00000000)", False),
        ("149, pid=12, name=Fatal", None),
        ("13, NETIR_LINK_EVT Fatal XC0 i0 Link 08", None),
    ],
)
def test_the_extended_form_of_nvlink_5_says_whether_it_is_fatal(words: str, fatal: bool | None) -> None:
    """XIDs 144 to 150 carry unit and severity; no other number does, whatever its words."""
    event = said(f"NVRM: Xid (PCI:0000:05:00): {words}")

    assert isinstance(event, KernelXid)
    assert event.fatal is fatal


def test_xid_154_tells_the_recovery_action() -> None:
    """The number that the driver changed its recovery action to."""
    event = said(
        "NVRM: Xid (PCI:0000:05:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    )

    assert event == KernelXid(address=GPU, xid=154, recovery_action=2)


def test_a_driver_that_is_loaded_is_told() -> None:
    """What happened before it is past."""
    assert said("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27") == DriverLoaded()


@pytest.mark.parametrize(
    "words",
    [
        "NVRM: Xid (PCI:0000:05:00): abc, pid=2280636",
        "NVRM: Xid (PCI:somewhere): 79, GPU has fallen off the bus.",
        "NVRM: Xid error: 79",
        "NVRM: GPU at PCI:0000:05:00: GPU-bc0fa0b9-cac2-f507-b715-9bebdb69c71e",
        "NVRM: GPU 0000:05:00.0: RmInitAdapter failed! (0x22:0x40:894)",
        "python3[12]: NVRM: Xid (PCI:0000:05:00): 79, a line that only quotes one",
        "nvidia-nvlink: Nvlink Core is being initialized",
    ],
)
def test_everything_else_is_dropped(words: str) -> None:
    """A line that is none of these forms says nothing."""
    assert said(words) is None


def test_only_the_kernel_is_believed() -> None:
    """A program with write access to /dev/kmsg cannot make a GPU look broken."""
    words = "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."
    user_facility = 1 << 3

    assert parse(record(words, priority=3)) is not None
    assert parse(record(words, priority=user_facility | 3)) is None


def test_no_word_of_a_line_is_kept() -> None:
    """Names of processes and all other text stay in the kernel log."""
    event = said("NVRM: Xid (PCI:0000:05:00): 31, pid=4711, name=secret-model, MMU Fault: ENGINE GRAPHICS hunter2")

    assert "secret" not in repr(event)
    assert "4711" not in repr(event)


@given(st.binary(max_size=300))
def test_no_record_breaks_the_reader(noise: bytes) -> None:
    """Whatever comes out of the log, a record is an event or nothing."""
    for line in (noise, b"4,1,1,-;NVRM: " + noise, b"4,1,1,-;NVRM: Xid (PCI:0000:05:00): " + noise):
        parsed = parse(line)
        assert parsed is None or isinstance(parsed[1], KernelXid | DriverLoaded)


@pytest.mark.parametrize(
    ("text", "address"),
    [("00000000:05:00.0", GPU), ("0000:05:00", GPU), ("05:00.0", GPU), ("0001:05:1f.0", (1, 5, 31)), ("GPU-0", None)],
)
def test_addresses_of_driver_and_kernel_are_the_same(text: str, address: tuple[int, int, int] | None) -> None:
    """NVML writes the domain with eight digits, the kernel with four or none."""
    assert pci_address(text) == address


# The log itself


class Heard:
    """A reader over a pipe that stands in for /dev/kmsg, and what it heard."""

    def __init__(self, path: Path) -> None:
        """Nothing was written yet."""
        os.mkfifo(path)
        self.pipe = os.open(path, os.O_RDWR)
        self.clock = ManualClock(elapsed_seconds=1000.0)
        self.events: list[tuple[KernelEvent, float]] = []
        self.log = KernelLog(str(path), self.clock, lambda event, at: self.events.append((event, at)))

    def write(self, *records: bytes) -> None:
        """The kernel says these."""
        os.write(self.pipe, b"".join(records))


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[Heard]:
    """A reader that has not begun."""
    heard = Heard(tmp_path / "kmsg")
    yield heard
    heard.log.stop()
    os.close(heard.pipe)


def test_the_past_has_its_own_time_and_the_present_the_clocks(heard: Heard) -> None:
    """What was in the log before the start counts with the record's time; later records with the host's clock."""
    heard.write(record("NVRM: Xid (PCI:0000:05:00): 48, pid=1", seconds=300.0))
    assert heard.log.start()
    eventually(lambda: heard.events, lambda: heard.events)
    assert heard.log.caught_up.wait(PATIENCE_SECONDS)
    heard.clock.advance(5.0)
    heard.write(record("NVRM: Xid (PCI:0000:05:00): 79, pid=1", seconds=301.0))
    eventually(lambda: len(heard.events) > 1, lambda: heard.events)

    assert heard.events == [
        (KernelXid(address=GPU, xid=48), 300.0),
        (KernelXid(address=GPU, xid=79), 1005.0),
    ]


def test_a_log_that_cannot_be_read_is_told_with_its_remedy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The agent goes on without it."""
    log = KernelLog(str(tmp_path / "nowhere"), ManualClock(), lambda *_: None)

    assert not log.start()
    assert "cannot be read (No such file or directory)" in caplog.text
    log.stop()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="no kernel log can be read here")
def test_the_real_kernel_log_can_be_followed() -> None:
    """/dev/kmsg itself is read to its end and waited on, and the reader ends when it is told to."""
    log = KernelLog("/dev/kmsg", SystemClock(), lambda *_: None)

    assert log.start()
    assert log.caught_up.wait(PATIENCE_SECONDS)
    assert log._thread.is_alive()
    log.stop()
    assert not log._thread.is_alive()
