"""Disks of a host of folders: what sysfs, udev's database and the mounts say of them."""

import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path

from tests.support.fakes.host import FolderHost

INSTANCE_STORE = "Amazon EC2 NVMe Instance Storage"
EBS = "Amazon Elastic Block Store"
GIB = 1 << 30


class DiskHost(FolderHost):
    """A host as EC2 gives it: one EBS disk with a partition under `/`; other disks are added by the test."""

    def __init__(self, root: Path, *, root_model: str | None = EBS) -> None:
        """With the root disk `nvme0n1` and its partition, as udev knows them."""
        super().__init__(root)
        self._numbers = count(1)
        self._mounts: list[str] = []
        self.write("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n")
        self.disk("nvme0n1", root_model, written=80_000, udev={"ID_PART_TABLE_TYPE": "gpt"})
        number = self.partition("nvme0n1", "nvme0n1p1", udev={"ID_FS_TYPE": "ext4"})
        self.mount("/", number, source="/dev/nvme0n1p1")

    def disk(
        self,
        name: str,
        model: str | None = INSTANCE_STORE,
        *,
        written: int = 0,
        size: int = 100 * GIB,
        udev: dict[str, str] | None = {},  # noqa: B006  never changed; None: the database does not have it
    ) -> str:
        """A real disk; returns its number."""
        (self.root / "sys/block" / name / "device").mkdir(parents=True)
        if model is not None:
            self.write(f"sys/block/{name}/device/model", f"{model:<40}\n")
        return self._device(f"sys/block/{name}", written, size, udev)

    def partition(self, disk: str, name: str, *, udev: dict[str, str] | None = None, number: str | None = None) -> str:
        """A partition of a disk."""
        self.write(f"sys/block/{disk}/{name}/partition", "1\n")
        return self._device(f"sys/block/{disk}/{name}", 0, 99 * GIB, udev, number)

    def made_of(
        self,
        name: str,
        below: Iterable[str],
        *,
        uuid: str | None = "LVM-x",
        size: int = 100 * GIB,
        number: str | None = None,
        folder: str | None = None,
    ) -> str:
        """A device mapper's device, or an md's (`uuid` None), on disks or on other such devices."""
        if uuid is None:
            self.write(f"sys/block/{name}/md/level", "raid0\n")
        else:
            self.write(f"sys/block/{name}/dm/uuid", f"{uuid}\n")
        made = self._device(f"sys/block/{name}", 5000, size, {}, number)
        for each in below:
            where = folder or each
            (self.root / "sys/block" / where / "holders" / name).mkdir(parents=True)
            (self.root / "sys/block" / name / "slaves" / each).mkdir(parents=True)
        return made

    def mount(self, point: str, number: str, *, kind: str = "ext4", root: str = "/", source: str = "/dev/x") -> None:
        """A mount on the host."""
        plain = point.replace(" ", "\\040")
        self._mounts.append(
            f"{len(self._mounts) + 20} 1 {number} {root} {plain} rw,relatime shared:1 - {kind} {source} rw"
        )
        self.write("proc/1/mountinfo", "".join(f"{line}\n" for line in self._mounts))

    def mounted(self, point: str, *names: str, seen_by: str = "1") -> Path:
        """What is mounted there as a process sees it, with these files."""
        folder = self.root / "proc" / seen_by / "root" / point.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).mkdir()
        return folder

    @property
    def here(self) -> str:
        """The number of the file system that the folders of this host are on: one that can be mounted here."""
        device = self.root.stat().st_dev
        return f"{os.major(device)}:{os.minor(device)}"

    def own_number(self, path: str) -> None:
        """Give a device the number of what can be mounted here."""
        self.write(f"sys/block/{path}/dev", f"{self.here}\n")

    def swap(self, path: str) -> None:
        """Use it as swap."""
        swaps = self.root / "proc/swaps"
        swaps.write_text(f"{swaps.read_text()}{path}  partition\t8388604\t0\t-2\n")

    def _device(
        self, path: str, written: int, size: int, udev: dict[str, str] | None, number: str | None = None
    ) -> str:
        """What each block device has."""
        number = number or f"259:{next(self._numbers)}"
        self.write(f"{path}/dev", f"{number}\n")
        self.write(f"{path}/size", f"{size // 512}\n")
        self.write(f"{path}/stat", f" 82 0 1068 37 14 37 {written} 14 0 48 65 2 0 32770 0 5 13\n")
        (self.root / path / "holders").mkdir(exist_ok=True)
        if udev is not None:
            lines = "".join(f"E:{key}={value}\n" for key, value in {"ID_MODEL": "x", **udev}.items())
            self.write(f"run/udev/data/b{number}", f"S:disk/by-id/x\nI:5012345\n{lines}G:systemd\nV:1\n")
        return number
