"""agent/local_disks.py on a real disk, as far as a loop device is one: formatted, mounted, filled and emptied."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.local_disks import LocalDiskSignal, in_verdict
from gpuwatch.model.activity import LocalDisks
from tests.support.fakes.disks import DiskHost

TOOLS = ("losetup", "mkfs.ext4", "mount", "umount", "blkid")


def run(*argv: str) -> str:
    """A program's output; blkid has status 2 where it finds nothing."""
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode and argv[0] != "blkid":
        pytest.skip(f"{argv[0]} cannot be used here: {done.stderr.strip()}")
    return done.stdout.strip()


class LoopDisk:
    """A loop device that a host of folders shows as its instance store; its numbers and mounts are the kernel's."""

    def __init__(self, root: Path, device: str) -> None:
        self.device, self.point = device, root / "mnt"
        self.point.mkdir()
        self._sys = Path("/sys/block") / Path(device).name
        self._before = self._written()  # by those who had the device earlier
        self.host = DiskHost(root / "host")
        self.host.disk("nvme1n1")
        shutil.rmtree(self.host.root / "proc/1")
        (self.host.root / "proc/1").mkdir()
        (self.host.root / "proc/1/root").symlink_to("/")
        self.number = (self._sys / "dev").read_text().strip()
        self.host.write("sys/block/nvme1n1/dev", self.number)

    def told(self) -> LocalDisks | None:
        """What the agent says, with udev's database as blkid would have it."""
        run("sync", "-f", str(self.point))
        found = run("blkid", "-p", "-o", "udev", self.device)
        self.host.write(f"run/udev/data/b{self.number}", "".join(f"E:{line}\n" for line in found.splitlines()))
        self.host.write("proc/1/mountinfo", Path("/proc/self/mountinfo").read_bytes())
        written = self._written() - self._before
        self.host.write("sys/block/nvme1n1/stat", f"0 0 0 0 0 0 {written} 0 0 0 0\n")
        return in_verdict(self.host.told(LocalDiskSignal(self.host.roots)))

    def _written(self) -> int:
        return int((self._sys / "stat").read_text().split()[6])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    """One of 16 MiB."""
    if os.geteuid() or any(shutil.which(tool) is None for tool in TOOLS):
        pytest.skip(f"this takes root and {', '.join(TOOLS)}")
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(16 << 20)
    device = run("losetup", "--find", "--show", str(image))
    made = LoopDisk(tmp_path, device)
    try:
        yield made
    finally:
        subprocess.run(["umount", "--lazy", str(made.point)], check=False, capture_output=True)
        subprocess.run(["losetup", "--detach", device], check=False, capture_output=True)


def test_the_life_of_a_disk(disk: LoopDisk) -> None:
    """Formatted, mounted, filled, emptied, unmounted: only what is untouched, or mounted and empty, is unused."""
    said = {"untouched": disk.told()}
    run("mkfs.ext4", "-q", disk.device)
    said["formatted"] = disk.told()
    run("mount", disk.device, str(disk.point))
    said["mounted"] = disk.told()
    (disk.point / "checkpoint.pt").write_bytes(b"x")
    said["filled"] = disk.told()
    (disk.point / "checkpoint.pt").unlink()
    said["emptied"] = disk.told()
    run("umount", str(disk.point))
    said["unmounted"] = disk.told()

    assert said == {
        "untouched": LocalDisks.UNUSED,
        "formatted": LocalDisks.USED,
        "mounted": LocalDisks.UNUSED,
        "filled": LocalDisks.USED,
        "emptied": LocalDisks.UNUSED,
        "unmounted": LocalDisks.USED,
    }


def test_another_mount_on_top_hides_what_is_there(disk: LoopDisk) -> None:
    """An empty tmpfs over the disk's files says nothing about the disk."""
    run("mkfs.ext4", "-q", disk.device)
    run("mount", disk.device, str(disk.point))
    (disk.point / "checkpoint.pt").write_bytes(b"x")
    run("mount", "-t", "tmpfs", "tmpfs", str(disk.point))
    hidden = disk.told()
    run("umount", str(disk.point))

    assert hidden is None
    assert disk.told() is LocalDisks.USED
