"""Hosts with local disks, one for each way of use: what a stop would lose there is in the tests' table."""

import shutil

from tests.support.fakes.disks import EBS, GIB, INSTANCE_STORE, DiskHost

AT = "/opt/dlami/nvme"
LVM = {"ID_FS_TYPE": "LVM2_member"}


def ebs_only(host: DiskHost) -> None:
    """No local disk at all."""
    host.disk("nvme1n1", EBS, written=9000, udev={"ID_FS_TYPE": "xfs"})


def untouched(host: DiskHost) -> None:
    """As EC2 hands it out."""
    host.disk("nvme1n1")
    host.disk("nvme2n1")


def mounted_empty(host: DiskHost, *names: str) -> None:
    """A file system on the bare disk."""
    number = host.disk("nvme1n1", written=500, udev={"ID_FS_TYPE": "ext4"})
    assert number
    host.own_number("nvme1n1")
    host.mount("/data", host.here)
    host.mounted("/data", "lost+found", *names)


def mounted_with_a_file(host: DiskHost) -> None:
    """One is enough."""
    mounted_empty(host, "checkpoint.pt")


def mounted_partition(host: DiskHost) -> None:
    """Empty, on a partition."""
    host.disk("nvme1n1", written=500, udev={"ID_PART_TABLE_TYPE": "gpt"})
    host.partition("nvme1n1", "nvme1n1p1", number=host.here)
    host.mount("/data", host.here, kind="xfs")
    host.mounted("/data")


def one_partition_of_two(host: DiskHost) -> None:
    """The other one is not mounted."""
    mounted_partition(host)
    host.partition("nvme1n1", "nvme1n1p2")


def volume(host: DiskHost, *names: str, size: int = 200 * GIB - (20 << 20)) -> None:
    """As EC2's images for deep learning do it at boot: one volume over all disks."""
    for name in ("nvme1n1", "nvme2n1"):
        host.disk(name, written=500, udev=LVM)
    host.made_of("dm-0", ["nvme1n1", "nvme2n1"], number=host.here, size=size)
    host.mount(AT, host.here)
    host.mounted(AT, "lost+found", *names)


def volume_in_use(host: DiskHost) -> None:
    """Somebody's data set."""
    volume(host, "imagenet")


def volume_beside_another(host: DiskHost) -> None:
    """A second volume in the group may be inactive, and nobody sees what is on it."""
    volume(host, size=150 * GIB)


def volume_not_mounted(host: DiskHost) -> None:
    """Active, and nowhere to be seen."""
    host.disk("nvme1n1", written=500, udev=LVM)
    host.made_of("dm-0", ["nvme1n1"])


def volume_on_a_volume(host: DiskHost) -> None:
    """A thin pool, a snapshot, a cache: what it holds is not known from its size."""
    host.disk("nvme1n1", written=500, udev=LVM)
    host.made_of("dm-0", ["nvme1n1"])
    host.made_of("dm-1", ["dm-0"], number=host.here)
    host.mount(AT, host.here)
    host.mounted(AT)


def physical_volume(host: DiskHost) -> None:
    """Its volumes, if any, are not active."""
    host.disk("nvme1n1", udev=LVM)


def raid_member(host: DiskHost) -> None:
    """Its array is not assembled."""
    host.disk("nvme1n1", udev={"ID_FS_TYPE": "linux_raid_member"})


def raid(host: DiskHost, *names: str) -> None:
    """RAID 0 over two disks, mounted."""
    for name in ("nvme1n1", "nvme2n1"):
        host.disk(name, written=500, udev={"ID_FS_TYPE": "linux_raid_member"})
    host.made_of("md0", ["nvme1n1", "nvme2n1"], uuid=None, number=host.here)
    host.mount("/scratch", host.here, kind="xfs")
    host.mounted("/scratch", *names)


def raid_in_use(host: DiskHost) -> None:
    """With something in it."""
    raid(host, "shards")


def raid_not_mounted(host: DiskHost) -> None:
    """Assembled only."""
    host.disk("nvme1n1", written=500)
    host.made_of("md0", ["nvme1n1"], uuid=None)


def encrypted_open(host: DiskHost) -> None:
    """Its file system is empty, but it took somebody with a key."""
    host.disk("nvme1n1", written=500, udev={"ID_FS_TYPE": "crypto_LUKS"})
    host.made_of("dm-0", ["nvme1n1"], uuid="CRYPT-LUKS2-x", number=host.here)
    host.mount("/secret", host.here)
    host.mounted("/secret")


def encrypted_closed(host: DiskHost) -> None:
    """Nobody knows what is in it."""
    host.disk("nvme1n1", udev={"ID_FS_TYPE": "crypto_LUKS"})


def swap(host: DiskHost) -> None:
    """Memory of running programs."""
    host.disk("nvme1n1", written=0)
    host.swap("/dev/nvme1n1")


def swap_volume(host: DiskHost) -> None:
    """In a volume."""
    host.disk("nvme1n1", written=500, udev=LVM)
    host.made_of("dm-0", ["nvme1n1"])
    host.swap("/dev/dm-0")


def formatted(host: DiskHost) -> None:
    """A file system that nobody has mounted since the boot."""
    host.disk("nvme1n1", udev={"ID_FS_TYPE": "ext4", "ID_FS_USAGE": "filesystem"})


def partition_table(host: DiskHost) -> None:
    """And nothing else yet."""
    host.disk("nvme1n1", udev={"ID_PART_TABLE_TYPE": "gpt"})


def ambiguous(host: DiskHost) -> None:
    """Two signatures: udev names neither."""
    host.disk("nvme1n1", udev={"ID_FS_AMBIVALENT": "filesystem:ext4 raid:linux_raid_member"})


def raw_database(host: DiskHost) -> None:
    """It needs no file system."""
    host.disk("nvme1n1", written=8)


def one_of_two(host: DiskHost) -> None:
    """The other one counts."""
    host.disk("nvme1n1")
    host.disk("nvme2n1", written=8)


def not_in_udevs_database(host: DiskHost) -> None:
    """A container without the host's /run/udev sees none of it."""
    host.disk("nvme1n1", udev=None)


def no_database(host: DiskHost) -> None:
    """Not even the folder."""
    host.disk("nvme1n1")
    shutil.rmtree(host.root / "run/udev")


def udev_that_looks_for_nothing(host: DiskHost) -> None:
    """Rules without blkid: the root disk has no file system either, so nothing is proved."""
    host.disk("nvme1n1")
    for path in (host.root / "run/udev/data").iterdir():
        path.write_text("I:5012345\nE:ID_MODEL=x\nV:1\n")


def in_a_container(host: DiskHost) -> None:
    """Process 1 is the container's own, and so are its mounts."""
    host.disk("nvme1n1")
    host.namespace("pid:[4026532999]")


def without_mounts(host: DiskHost) -> None:
    """They cannot be read."""
    host.disk("nvme1n1")
    (host.root / "proc/1/mountinfo").unlink()


def strange_mounts(host: DiskHost) -> None:
    """A line that no kernel writes."""
    host.disk("nvme1n1")
    host.write("proc/1/mountinfo", "what?\n")


def strange_counters(host: DiskHost) -> None:
    """The disk's own are not numbers."""
    host.disk("nvme1n1")
    host.write("sys/block/nvme1n1/stat", "1 2 3\n")


def gone_meanwhile(host: DiskHost) -> None:
    """The mount is there, its folder is not."""
    mounted_empty(host)
    shutil.rmtree(host.root / "proc/1/root/data")


def hidden_by_another_mount(host: DiskHost) -> None:
    """What one sees there is another file system."""
    host.disk("nvme1n1", written=500, udev={"ID_FS_TYPE": "ext4"})
    host.mount("/data", "259:2", source="/dev/nvme1n1")
    host.write("sys/block/nvme1n1/dev", "259:2\n")
    host.mounted("/data")
    host.mounted("/data", seen_by="self")


def part_of_it_mounted(host: DiskHost) -> None:
    """A folder of it: so it has a folder."""
    mounted_empty(host)
    host.mount("/cache", host.here, root="/cache")


def other_file_system(host: DiskHost) -> None:
    """Of many roots (btrfs, zfs), or unknown here."""
    host.disk("nvme1n1", written=500)
    host.own_number("nvme1n1")
    host.mount("/data", host.here, kind="btrfs")
    host.mounted("/data")


def mounted_and_held(host: DiskHost) -> None:
    """Two uses at once."""
    mounted_empty(host)
    host.made_of("dm-0", ["nvme1n1"])


def cached(host: DiskHost) -> None:
    """A cache of another disk (bcache) holds it."""
    host.disk("nvme1n1", written=500)
    host.made_of("bcache0", ["nvme1n1"], uuid="")


def root_on_instance_store(host: DiskHost) -> None:
    """All of the machine is lost."""
    host.write("sys/block/nvme0n1/device/model", f"{INSTANCE_STORE}\n")
    host.own_number("nvme0n1/nvme0n1p1")
    path = host.root / "proc/1/mountinfo"
    path.write_text(path.read_text().replace("259:2", host.here))
    host.mounted("/", "etc")


def root_over_local_disks(host: DiskHost) -> None:
    """The root volume reaches over two disks without a known name."""
    host.write("sys/block/nvme0n1/device/model", "QEMU HARDDISK\n")
    host.disk("sdb", "QEMU HARDDISK", written=5)
    host.made_of("dm-0", ["nvme0n1p1"], number="253:0", folder="nvme0n1/nvme0n1p1")
    (host.root / "sys/block/sdb/holders/dm-0").mkdir(parents=True)
    (host.root / "sys/block/dm-0/slaves/sdb").mkdir(parents=True)
    path = host.root / "proc/1/mountinfo"
    path.write_text(path.read_text().replace("259:2", "253:0"))


def local_disk_without_a_name(host: DiskHost) -> None:
    """Another cloud: every disk but the root disk counts."""
    host.write("sys/block/nvme0n1/device/model", "QEMU HARDDISK\n")
    host.disk("vdb", None, written=5)


def root_disk_without_a_name(host: DiskHost) -> None:
    """And nothing else: it is not local."""
    host.write("sys/block/nvme0n1/device/model", "QEMU HARDDISK\n")


def root_volume_without_a_name(host: DiskHost) -> None:
    """A volume on a partition of the only disk."""
    root_disk_without_a_name(host)
    host.made_of("dm-0", ["nvme0n1p1"], number="253:0", folder="nvme0n1/nvme0n1p1")
    path = host.root / "proc/1/mountinfo"
    path.write_text(path.read_text().replace("259:2", "253:0"))


def root_on_btrfs(host: DiskHost) -> None:
    """Its mounts have numbers of their own; the source names the partition."""
    root_disk_without_a_name(host)
    host.write("proc/1/mountinfo", "20 1 0:25 /@ / rw - btrfs /dev/nvme0n1p1 rw\n")


def root_by_number(host: DiskHost) -> None:
    """A kernel without an initial RAM disk names no device."""
    root_disk_without_a_name(host)
    host.write("proc/1/mountinfo", "20 1 259:2 / / rw - ext4 /dev/root rw\n")


def root_not_found(host: DiskHost) -> None:
    """A live system: which disk is the root disk is not known, so each counts."""
    host.write("sys/block/nvme0n1/device/model", "QEMU HARDDISK\n")
    host.write("proc/1/mountinfo", "20 1 0:25 / / rw - overlay overlay rw\n")


def drive_without_a_disk(host: DiskHost) -> None:
    """A card reader, an optical drive, and one of several ways to a disk."""
    host.disk("sdz", "Card Reader", size=0, udev=None)
    host.disk("sr0", "QEMU DVD-ROM", udev=None)
    host.disk("nvme3c3n1", None, udev=None)
    host.write("sys/block/nvme3c3n1/hidden", "1\n")


def passed_through(host: DiskHost) -> None:
    """A virtual machine, or a storage program, has the disk to itself."""
    host.write("sys/bus/pci/devices/0000:00:1f.0/class", "0x010802\n")
    (host.root / "sys/bus/pci/devices/0000:00:1f.0/driver").symlink_to("../../drivers/vfio-pci")


def nvme_of_the_kernel(host: DiskHost) -> None:
    """The usual one, and a GPU that a virtual machine has."""
    host.write("sys/bus/pci/devices/0000:00:04.0/class", "0x010802\n")
    (host.root / "sys/bus/pci/devices/0000:00:04.0/driver").symlink_to("../../drivers/nvme")
    host.write("sys/bus/pci/devices/0000:00:1e.0/class", "0x030200\n")
    (host.root / "sys/bus/pci/devices/0000:00:1e.0/driver").symlink_to("../../drivers/vfio-pci")


def no_disk(host: DiskHost) -> None:
    """An agent without the host's /sys."""
    shutil.rmtree(host.root / "sys/block")
    (host.root / "sys/block").mkdir()
