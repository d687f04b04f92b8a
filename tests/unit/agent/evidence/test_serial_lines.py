"""Instruments on serial lines: whose program reads one, somebody would miss, however little it uses."""

import os
from pathlib import Path

import pytest

from gpuwatch.model.activity import State
from tests.support.fakes.life import LOOK_SECONDS, Life
from tests.support.fakes.proc_files import put_process


class Laboratory(Life):
    """A host with an adapter for a serial line, as udev lists it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        dev = self.host.roots.dev
        (dev / "serial/by-id").mkdir(parents=True)
        (dev / "ttyUSB0").write_bytes(b"")
        (dev / "serial/by-id/usb-FTDI_cable-if00-port0").symlink_to("../../ttyUSB0")
        self.transfer(seconds_ago=7200)

    def transfer(self, seconds_ago: float = 0.0) -> None:
        """Something is read from the line."""
        at = self.host.clock.now().timestamp() - seconds_ago
        os.utime(self.host.roots.dev / "ttyUSB0", (at, at))

    def says_with_a_transfer_at_each_look(self, looks: int) -> list[State]:
        """The states while the line is read all the time."""
        found = []
        for _ in range(looks):
            self.transfer()
            found.append(self.play(LOOK_SECONDS)[-1].says)
        return found


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    """A host that can read an instrument."""
    return Laboratory(tmp_path)


def test_a_program_at_rest_is_busy_while_a_serial_line_moves(laboratory: Laboratory) -> None:
    """Twelve bytes a second from a fridge's thermometers are the work of weeks."""
    laboratory.put(2001, "python3", parent=1, started_seconds=100.0)
    assert set(laboratory.says_with_a_transfer_at_each_look(20)) == {State.BUSY}
    assert "a serial line (ttyUSB0)" in (laboratory.look().note or "")


def test_a_line_that_is_silent_for_ten_minutes_keeps_nothing_busy(laboratory: Laboratory) -> None:
    """The cable is there, and nobody reads it."""
    laboratory.put(2001, "python3", parent=1, started_seconds=100.0)
    assert laboratory.play(60)[-1].says is State.OCCUPIED
    laboratory.says_with_a_transfer_at_each_look(2)
    assert laboratory.play(500)[-1].says is State.BUSY
    assert laboratory.play(200)[-1].says is State.OCCUPIED


def test_a_line_without_anybodys_program_keeps_nothing(laboratory: Laboratory) -> None:
    """A service of the machine's own may read a clock or a power supply."""
    assert set(laboratory.says_with_a_transfer_at_each_look(5)) == {State.IDLE}


@pytest.mark.parametrize("name", ["gpsd", "upsd", "apcupsd", "conmand"])
def test_a_line_that_the_machines_own_program_reads_is_nobodys(laboratory: Laboratory, name: str) -> None:
    """Nothing tells which of two programs reads; these exist to read one."""
    laboratory.put(2001, "python3", parent=1, started_seconds=100.0)
    units = laboratory.host.roots.usr / "lib/systemd/system"
    units.mkdir(parents=True, exist_ok=True)
    (units / f"{name}.service").write_text(f"[Service]\nExecStart=/usr/sbin/{name}\n")
    put_process(
        laboratory.host.roots.proc, 700, name, uid=0, parent=1, cgroup=f"/system.slice/{name}.service",
        executable=f"/usr/sbin/{name}", started_seconds=5.0,
    )  # fmt: skip
    assert set(laboratory.says_with_a_transfer_at_each_look(5)) == {State.OCCUPIED}


def test_a_host_without_such_adapters_is_asked_for_one_folder_only(tmp_path: Path) -> None:
    """The folder is not there on most."""
    life = Life(tmp_path)
    life.put(2001, "python3", parent=1, started_seconds=100.0)
    assert life.play(60)[-1].says is State.OCCUPIED
