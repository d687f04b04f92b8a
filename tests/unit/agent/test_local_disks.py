"""agent/local_disks.py and block_devices.py: whether a stop would lose anything on local disks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.local_disks import LOCAL_MODELS, NETWORK_MODELS, LocalDiskSignal, in_verdict
from gpuwatch.model.activity import Evidence, LocalDisks, State
from tests.support.fakes import disk_hosts as hosts
from tests.support.fakes.disks import DiskHost


def told(host: DiskHost) -> LocalDisks | None:
    """What the agent puts into its verdict."""
    return in_verdict(host.told(LocalDiskSignal(host.roots)))


def note(host: DiskHost) -> str:
    """What it says of that."""
    return host.tells(LocalDiskSignal(host.roots)).note or ""


# The truth: each host, and what a stop would lose there.

NONE, UNUSED, USED, UNKNOWN = LocalDisks.NONE, LocalDisks.UNUSED, LocalDisks.USED, None
TRUTH: list[tuple[Callable[[DiskHost], None], LocalDisks | None]] = [
    (hosts.ebs_only, NONE),
    (hosts.root_disk_without_a_name, NONE),
    (hosts.root_volume_without_a_name, NONE),
    (hosts.root_on_btrfs, NONE),
    (hosts.root_by_number, NONE),
    (hosts.drive_without_a_disk, NONE),
    (hosts.nvme_of_the_kernel, NONE),
    (hosts.untouched, UNUSED),
    (hosts.mounted_empty, UNUSED),
    (hosts.mounted_partition, UNUSED),
    (hosts.volume, UNUSED),
    (hosts.raid, UNUSED),
    (hosts.mounted_with_a_file, USED),
    (hosts.one_partition_of_two, USED),
    (hosts.volume_in_use, USED),
    (hosts.volume_beside_another, USED),
    (hosts.volume_not_mounted, USED),
    (hosts.volume_on_a_volume, USED),
    (hosts.physical_volume, USED),
    (hosts.raid_member, USED),
    (hosts.raid_in_use, USED),
    (hosts.raid_not_mounted, USED),
    (hosts.encrypted_open, USED),
    (hosts.encrypted_closed, USED),
    (hosts.swap, USED),
    (hosts.swap_volume, USED),
    (hosts.formatted, USED),
    (hosts.partition_table, USED),
    (hosts.ambiguous, USED),
    (hosts.raw_database, USED),
    (hosts.one_of_two, USED),
    (hosts.part_of_it_mounted, USED),
    (hosts.other_file_system, USED),
    (hosts.mounted_and_held, USED),
    (hosts.cached, USED),
    (hosts.root_on_instance_store, USED),
    (hosts.root_over_local_disks, USED),
    (hosts.local_disk_without_a_name, USED),
    (hosts.root_not_found, USED),
    (hosts.not_in_udevs_database, UNKNOWN),
    (hosts.no_database, UNKNOWN),
    (hosts.udev_that_looks_for_nothing, UNKNOWN),
    (hosts.in_a_container, UNKNOWN),
    (hosts.without_mounts, UNKNOWN),
    (hosts.strange_mounts, UNKNOWN),
    (hosts.strange_counters, UNKNOWN),
    (hosts.gone_meanwhile, UNKNOWN),
    (hosts.hidden_by_another_mount, UNKNOWN),
    (hosts.passed_through, UNKNOWN),
    (hosts.no_disk, UNKNOWN),
]


@pytest.mark.parametrize(("make", "truth"), TRUTH, ids=lambda each: getattr(each, "__name__", str(each)))
def test_the_truth(tmp_path: Path, make: Callable[[DiskHost], None], truth: LocalDisks | None) -> None:
    """What nobody has touched, and what is mounted and empty, is unused; what cannot be seen is not known."""
    host = DiskHost(tmp_path)
    make(host)

    assert told(host) is truth


def test_known_use_is_worth_more_than_doubt(tmp_path: Path) -> None:
    """One disk that is in use is enough, whatever is not known of the others."""
    host = DiskHost(tmp_path)
    host.disk("nvme1n1", udev=None)
    host.disk("nvme2n1", written=8)

    assert told(host) is USED
    assert note(host) == "nvme2n1: it was written to since the boot"


def test_it_says_which_disk_and_why(tmp_path: Path) -> None:
    """By device and mount point: what a person would look at."""
    host = DiskHost(tmp_path)
    hosts.volume_in_use(host)

    assert note(host).startswith(f"nvme1n1: dm-0 is mounted at {hosts.AT}, which is not empty")


def test_a_mount_point_with_a_blank(tmp_path: Path) -> None:
    """The kernel writes it as an octal number."""
    host = DiskHost(tmp_path)
    host.disk("nvme1n1", written=500)
    host.own_number("nvme1n1")
    host.mount("/my data", host.here)
    host.mounted("/my data")

    assert told(host) is UNUSED


def test_an_agent_without_rights_goes_by_its_own_mounts(tmp_path: Path) -> None:
    """Only root may go by process 1; the number of the file system proves that it is the same."""
    host = DiskHost(tmp_path)
    host.disk("nvme1n1", written=500)
    host.own_number("nvme1n1")
    host.mount("/data", host.here)
    host.mounted("/data", "lost+found", seen_by="self")

    assert told(host) is UNUSED


@pytest.mark.parametrize("model", sorted(LOCAL_MODELS | NETWORK_MODELS))
def test_every_model_known(tmp_path: Path, model: str) -> None:
    """By its name alone: data on network storage outlives a stop."""
    host = DiskHost(tmp_path)
    host.disk("nvme1n1", model, written=8)

    assert told(host) is (USED if model in LOCAL_MODELS else NONE)


@given(
    written=st.integers(0, 3),
    udev=st.sampled_from([None, {}, {"ID_FS_TYPE": "ext4"}, {"ID_PART_TABLE_TYPE": "dos"}]),
    held=st.booleans(),
    swapped=st.booleans(),
)
def test_a_bare_disk_is_unused_only_if_nothing_speaks_against_it(
    tmp_path_factory: pytest.TempPathFactory,
    written: int,
    udev: dict[str, str] | None,
    held: bool,
    swapped: bool,
) -> None:
    """Any one sign of use, or doubt, is enough, in any combination with the others."""
    host = DiskHost(tmp_path_factory.mktemp("host"))
    host.disk("nvme1n1", written=written, udev=udev)
    if held:
        host.made_of("dm-0", ["nvme1n1"])
    if swapped:
        host.swap("/dev/nvme1n1")

    assert (told(host) is UNUSED) == (written == 0 and udev == {} and not held and not swapped)


def test_what_a_look_means() -> None:
    """A signal that is not known, late or never looked at is not `none`."""
    assert in_verdict(()) is NONE
    for says in (State.UNKNOWN, State.PARKED, State.STALLED, State.OCCUPIED):
        assert in_verdict((said(says),)) is None


def said(says: State) -> Evidence:
    """A finding."""
    return Evidence(name="local_disks", says=says, observed=None, limit=None, unit="", source="")
