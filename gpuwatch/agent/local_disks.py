"""Whether a stop would lose data on local disks (EC2's instance store, local SSDs of other clouds).

Rules, all of them:

1. A real disk is local, unless its model is that of network storage, or it is the one disk under `/`. A disk with the
   model of a local disk is local even there.
2. An untouched local disk is unused: nothing stands on it, it is not mounted and no swap, udev has found nothing on it,
   and nothing was written to it since the boot.
3. So is one that holds nothing but an empty file system (ext4, ext3, ext2 or xfs; its root folder holds `lost+found` at
   most) which is mounted on the host; partitions, one logical volume over all of its disks, or a software RAID may lie
   between. Images for deep learning set their disks up like that at every boot.
4. Any other local disk is used. What cannot be seen is not known, and counts as used.

Mounts of containers are not visible from outside. A disk that is mounted in one has a file system that udev finds, or
was written to, so rule 2 does not hold for it; and an empty file system is empty for everybody.
"""

from gpuwatch.agent.block_devices import BlockDevices, Device, Mount
from gpuwatch.agent.evidence.base import Moment, Roots, UnseenError, make_finding, several
from gpuwatch.model.activity import Evidence, LocalDisks, State

# Models as EC2, Google Cloud, Azure and Alibaba Cloud name them.
NETWORK_MODELS = frozenset(
    {
        "Amazon Elastic Block Store",
        "nvme_card-pd",
        "PersistentDisk",
        "MSFT NVMe Accelerator v1.0",
        "Alibaba Cloud Elastic Block Storage",
    }
)
LOCAL_MODELS = frozenset(
    {
        "Amazon EC2 NVMe Instance Storage",
        "nvme_card",
        "EphemeralDisk",
        "Microsoft NVMe Direct Disk",
        "Microsoft NVMe Direct Disk v2",
    }
)
_FILE_SYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs"})  # one root folder each, and the number of their device
_OF_EVERY_FILE_SYSTEM = frozenset({"lost+found"})
_VOLUME_METADATA_BYTES = 64 << 20  # of a disk in a volume group; more than that may be another volume, not active
_MOST_LAYERS = 8

_IN_VERDICT = {State.IDLE: LocalDisks.UNUSED, State.BUSY: LocalDisks.USED}


def in_verdict(found: tuple[Evidence, ...]) -> LocalDisks | None:
    """What a look says, for the verdict; None: it is not known."""
    return _IN_VERDICT.get(found[0].says) if found else LocalDisks.NONE


class LocalDiskSignal:
    """Finds nothing on a host without local disks; else busy is used and idle is unused. It is no evidence of work."""

    name = "local_disks"
    source = "/sys/block, udev's database, the mounts of process 1"

    def __init__(self, roots: Roots) -> None:
        self._roots = roots

    def find_evidence(self, now: Moment) -> tuple[Evidence, ...]:
        """One finding about all local disks, if there are any."""
        del now
        devices = BlockDevices(self._roots)
        names = _local(devices)
        hidden = devices.without_driver()
        if hidden is not None:
            raise UnseenError(hidden)
        if not names:
            return ()
        look = _Look(devices)
        used, doubts = [], []
        for name in names:
            try:
                why = look.use_of_disk(devices.device(name))
            except UnseenError as error:
                doubts.append(f"{name}: {error}")
            except OSError as error:
                doubts.append(f"{name}: {error.strerror or type(error).__name__}")
            else:
                used += [] if why is None else [f"{name}: {why}"]
        if used:
            return (make_finding(self, State.BUSY, several(used, 3)),)
        if doubts:
            raise UnseenError(several(doubts, 3))
        return (make_finding(self, State.IDLE, f"nothing is on {several(names)}"),)


def _local(devices: BlockDevices) -> list[str]:
    """The names of the local disks (rule 1)."""
    models = {name: devices.model(name) for name in devices.disks()}
    unnamed = [name for name, model in models.items() if model not in NETWORK_MODELS | LOCAL_MODELS]
    root: frozenset[str] = frozenset()
    if unnamed:
        try:
            root = devices.disks_below(devices.mounts(), "/")
        except UnseenError:  # then none of them is known to be the root disk
            root = frozenset()
    return [name for name, model in models.items() if model in LOCAL_MODELS or (name in unnamed and root != {name})]


class _Look:
    """One look at the use of disks."""

    def __init__(self, devices: BlockDevices) -> None:
        self._devices = devices
        self._mounts = devices.mounts()
        self._swaps = devices.swaps()

    def use_of_disk(self, disk: Device) -> str | None:
        """How a disk is used; None: it is not.

        Raises:
            UnseenError: it cannot be known.
            OSError: something cannot be read.

        """
        if disk.parts or disk.holders or disk.number in self._mounts:
            return self._use(disk, _MOST_LAYERS)
        if disk.name in self._swaps:
            return "it is swap"
        if disk.written_sectors:
            found = None if (kind := self._signature(disk)) is None else f"it is formatted ({kind}) and not mounted"
            return found or "it was written to since the boot"
        kind = self._devices.signature(disk)
        return None if kind is None else f"it is formatted ({kind}) and not mounted"

    def _signature(self, disk: Device) -> str | None:
        """For the sentence alone."""
        try:
            return self._devices.signature(disk)
        except (OSError, UnseenError):
            return None

    def _use(self, device: Device, layers: int) -> str | None:
        """Rule 3: how a device is used that something stands on, or that is mounted."""
        if device.name in self._swaps:
            return f"{device.name} is swap"
        above = device.parts + device.holders
        mounts = self._mounts.get(device.number)
        if mounts is not None:
            return f"{device.name} is mounted and in other use, too" if above else self._use_of_mount(device, mounts)
        if not above:
            return f"{device.name} is set up and not mounted"
        if not layers:
            return f"{device.name} is part of a deep stack"
        for name in above:
            upper = self._devices.device(name)
            why = self._strange(upper) if name in device.holders else None
            why = why or self._use(upper, layers - 1)
            if why is not None:
                return why
        return None

    def _strange(self, holder: Device) -> str | None:
        """Why what holds a disk may keep data that no mount shows: what is no volume, or not the only one, does."""
        if holder.raid:
            return None
        if not holder.lvm:
            return f"{holder.name} holds it, which is neither a logical volume nor a software RAID"
        below = [self._devices.device(name) for name in holder.slaves]
        if any(each.lvm for each in below):
            return f"{holder.name} is a volume on a volume"
        total = sum(each.size_bytes for each in below)
        if holder.size_bytes + _VOLUME_METADATA_BYTES * len(below) < total:
            return f"{holder.name} does not fill its volume group: there may be other volumes"
        return None

    def _use_of_mount(self, device: Device, mounts: list[Mount]) -> str | None:
        """How a mounted file system is used; None: it is empty."""
        first = mounts[0]
        if any(mount.kind not in _FILE_SYSTEMS or mount.root != "/" for mount in mounts):
            return f"{device.name} is mounted at {first.point} ({first.kind})"
        doubt: UnseenError | None = None
        for mount in mounts:
            try:
                names = self._devices.names_in(mount)
            except UnseenError as error:
                doubt = doubt or error
                continue
            empty = names <= _OF_EVERY_FILE_SYSTEM
            return None if empty else f"{device.name} is mounted at {mount.point}, which is not empty"
        assert doubt is not None  # noqa: S101  a device in `_mounts` has a mount
        raise doubt
