"""The host's block devices: what sysfs, udev's database, the mounts and the swaps say of each. Only reading."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.agent.closed_paths import FOLDER
from gpuwatch.agent.devices.pid_namespace import in_host_pids
from gpuwatch.agent.evidence.base import Roots, UnseenError
from gpuwatch.agent.evidence.files import list_paths, open_by_reader, read_small

SECTOR_BYTES = 512  # of sysfs, whatever the disk's own
_NO_DISK = re.compile(r"(sr|fd)\d+", re.ASCII)  # optical and floppy drives
_ESCAPED = re.compile(r"\\([0-7]{3})", re.ASCII)
_NVME_CLASS = "0x0108"  # of PCI devices: storage, non-volatile memory
_KNOWN = ("E:ID_FS_TYPE=", "E:ID_PART_TABLE_TYPE=")
_SIGNATURE = re.compile(r"E:(ID_FS_|ID_PART_TABLE_)[A-Z_]+=(.*)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A disk, a partition, or a device made of others. `number` is its major and minor, as in `259:1`.

    `parts` and `holders` stand on it, `slaves` are below it. `lvm` and `raid`: a logical volume, a software RAID.
    """

    name: str
    number: str
    size_bytes: int
    written_sectors: int  # since the boot
    parts: tuple[str, ...] = ()
    holders: tuple[str, ...] = ()
    slaves: tuple[str, ...] = ()
    lvm: bool = False
    raid: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A line of mountinfo: what part of which device's file system is where."""

    number: str
    root: str
    point: str
    kind: str
    source: str


class BlockDevices:
    """The block devices of one host at one look; make a new one for each look."""

    def __init__(self, roots: Roots) -> None:
        """Nothing is read yet."""
        self._roots = roots
        self._folder = roots.sys / "block"
        self._paths: dict[str, Path] | None = None

    def disks(self) -> list[str]:
        """The names of the real disks that have a size: no loops, RAM disks, device mappers and drives without a disk.

        Raises:
            OSError: they cannot be listed or read.
            UnseenError: not one is visible.

        """
        real = [
            path.name
            for path in list_paths(self._folder)
            if os.path.lexists(path / "device") and not _NO_DISK.fullmatch(path.name) and not _is_hidden_path(path)
        ]
        if not real:
            raise UnseenError(f"no disk is visible in {self._folder}")
        return [name for name in real if _number(self._folder / name / "size")]

    def model(self, disk: str) -> str:
        """What it calls itself; empty where it has no name."""
        try:
            return read_small(self._folder / disk / "device/model").text.strip()
        except FileNotFoundError:
            return ""

    def device(self, name: str) -> Device:
        """One device.

        Raises:
            OSError: it cannot be read; it may just have gone.
            UnseenError: it is not what the kernel's documentation says, or not there.

        """
        path = self._device_folders().get(name)
        if path is None:
            raise UnseenError(f"{name} is not in {self._folder}")
        stat = read_small(path / "stat").text.split()
        try:
            written = int(stat[6])
        except (IndexError, ValueError):
            raise UnseenError(f"{path / 'stat'} is not what the kernel's documentation says") from None
        return Device(
            name=name,
            number=read_small(path / "dev").text.strip(),
            size_bytes=_number(path / "size") * SECTOR_BYTES,
            written_sectors=written,
            parts=tuple(each.name for each in _partitions(path)),
            holders=_names(path / "holders"),
            slaves=_names(path / "slaves"),
            lvm=_text(path / "dm/uuid").startswith("LVM-"),
            raid=(path / "md").is_dir(),
        )

    def disks_below(self, mounts: Mapping[str, list[Mount]], point: str) -> frozenset[str]:
        """The disks that hold what is mounted there; empty if that is not known."""
        numbers = {_text(path / "dev"): name for name, path in self._device_folders().items()}
        there = [each for many in mounts.values() for each in many if each.point == point]
        names = [numbers.get(mount.number) or mount.source.removeprefix("/dev/") for mount in there]
        return frozenset(disk for name in names if name in self._device_folders() for disk in self._below(name, 0))

    def _below(self, name: str, depth: int) -> Iterator[str]:
        """The whole disks on which a device stands."""
        path = self._device_folders().get(name)
        if path is None or depth > len(self._device_folders()):
            raise UnseenError(f"what is below {name} is not known")
        if path.parent != self._folder:
            yield path.parent.name
            return
        slaves = _names(path / "slaves")
        for slave in slaves:
            yield from self._below(slave, depth + 1)
        if not slaves:
            yield name

    def _device_folders(self) -> dict[str, Path]:
        """The folder of each device, partitions included."""
        if self._paths is None:
            whole = list_paths(self._folder)
            self._paths = {path.name: path for path in whole}
            self._paths |= {part.name: part for path in whole for part in _partitions(path)}
        return self._paths

    def signature(self, device: Device) -> str | None:
        """What udev found on it: a file system, a partition table, a volume or RAID member; None: nothing.

        Raises:
            UnseenError: udev's database does not have it, or knows nothing of any device of this host.
            OSError: it cannot be read.

        """
        data = self._roots.run / "udev/data"
        try:
            lines = read_small(data / f"b{device.number}").text.splitlines()
        except FileNotFoundError:
            raise UnseenError(f"udev's database ({data}) does not have {device.name}") from None
        found = [match.group(2) for line in lines if (match := _SIGNATURE.fullmatch(line))]
        if found:
            words = [line.partition("=")[2] for line in lines if line.startswith(_KNOWN)]
            return " ".join(words or found)
        if not any(_finds_anything(path) for path in list_paths(data, re.compile(r"b\d+:\d+", re.ASCII))):
            raise UnseenError(f"udev's database ({data}) has no file system of any disk: it does not look for them")
        return None

    def without_driver(self) -> str | None:
        """An NVMe controller that the kernel does not drive: a virtual machine or a program has its disk to itself."""
        try:
            devices = list_paths(self._roots.sys / "bus/pci/devices")
        except FileNotFoundError:
            return None
        for path in devices:
            if not _text(path / "class").startswith(_NVME_CLASS):
                continue
            try:
                driver = (path / "driver").readlink().name
            except FileNotFoundError:
                driver = "none"
            if driver != "nvme":
                return (
                    f"the driver of the NVMe controller {path.name} is {driver}, not the kernel's: its disk is hidden"
                )
        return None

    def swaps(self) -> frozenset[str]:
        """The names of the devices in use as swap."""
        try:
            lines = read_small(self._roots.proc / "swaps").text.splitlines()[1:]
        except FileNotFoundError:  # a kernel without swap
            return frozenset()
        return frozenset(Path(line.split()[0]).name for line in lines if line.split())

    def mounts(self) -> dict[str, list[Mount]]:
        """The host's mounts by the number of their device.

        Raises:
            UnseenError: these would be a container's, or the file is not what proc(5) says.
            OSError: they cannot be read.

        """
        if not in_host_pids(self._roots.proc):
            raise UnseenError(
                "the host's mounts are not visible from this PID namespace; run the agent with --pid=host"
            )
        path = self._roots.proc / "1/mountinfo"
        found: dict[str, list[Mount]] = {}
        for line in read_small(path, 1 << 24).text.splitlines():
            before, dash, after = line.partition(" - ")
            left, right = before.split(" "), after.split(" ")
            if not dash or len(left) < 5 or len(right) < 2:  # noqa: PLR2004  proc_pid_mountinfo(5)
                raise UnseenError(f"{path} has an unexpected line")
            mount = Mount(
                number=left[2], root=_plain(left[3]), point=_plain(left[4]), kind=right[0], source=_plain(right[1])
            )
            found.setdefault(mount.number, []).append(mount)
        return found

    def names_in(self, mount: Mount) -> frozenset[str]:
        """Names in the root folder of a mounted file system, enough of them to know whether it is empty.

        Raises:
            OSError: it cannot be opened or listed.
            UnseenError: something else is mounted on top.

        """
        error: OSError | None = None
        for process in ("1", "self"):  # an agent without rights may not go by process 1
            path = self._roots.proc / process / "root" / mount.point.lstrip("/")
            try:
                opened = self._open_root(process, path, mount)
            except OSError as raised:
                error = error or raised
                continue
            try:
                if _number_of(os.fstat(opened).st_dev) == mount.number:
                    with os.scandir(opened) as entries:
                        return frozenset(entry.name for entry, _ in zip(entries, range(8), strict=False))
            finally:
                os.close(opened)
        if error is not None:
            raise error
        raise UnseenError(f"what is mounted at {mount.point} is not what the agent sees there")

    def _open_root(self, process: str, path: Path, mount: Mount) -> int:
        try:
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            if process != "self" or self._roots.proc != Path("/proc"):
                raise
            return open_by_reader(Path(mount.point), FOLDER)


def _number_of(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def _is_hidden_path(path: Path) -> bool:
    """Whether it is one of several ways to a disk (NVMe multipath), which is listed by itself."""
    return _text(path / "hidden") == "1"


def _partitions(path: Path) -> list[Path]:
    return [each for each in list_paths(path) if each.name.startswith(path.name) and (each / "partition").exists()]


def _names(path: Path) -> tuple[str, ...]:
    try:
        return tuple(each.name for each in list_paths(path))
    except FileNotFoundError:  # a partition has no slaves
        return ()


def _number(path: Path) -> int:
    try:
        return int(read_small(path).text)
    except ValueError:
        raise UnseenError(f"{path} is not a number") from None


def _text(path: Path) -> str:
    """A file that not every device has."""
    try:
        return read_small(path).text.strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _finds_anything(path: Path) -> bool:
    """Whether udev has found a file system or a partition table on that device."""
    return any(line.startswith(_KNOWN) for line in _text(path).splitlines())


def _plain(text: str) -> str:
    """A path without the escapes of mountinfo."""
    return _ESCAPED.sub(lambda match: chr(int(match.group(1), 8)), text)
