"""agent/devices/buses.py: where GPUs are, without touching one."""

from pathlib import Path

import pytest

from gpuwatch.agent.devices.buses import bus_ids, canonical


def device(root: Path, address: str, vendor: str, kind: str, driver: str | None) -> None:
    """One PCI device as sysfs shows it."""
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n", encoding="ascii")
    (folder / "class").write_text(f"{kind}\n", encoding="ascii")
    if driver is not None:
        (folder / "driver").symlink_to(Path("../../../bus/pci/drivers") / driver)


def test_the_driver_tells(tmp_path: Path) -> None:
    """In the form of NVML, sorted."""
    for name in ("0001:8d:00.0", "0000:c1:00.0", "not-an-address"):
        (tmp_path / "proc/driver/nvidia/gpus" / name).mkdir(parents=True)

    assert bus_ids(tmp_path) == ("00000000:C1:00.0", "00000001:8D:00.0")


def test_sysfs_tells_where_the_driver_does_not(tmp_path: Path) -> None:
    """GPUs of NVIDIA that its driver has; no switch, no sound, no card of others, none lent to a virtual machine."""
    device(tmp_path, "0000:01:00.0", "0x10de", "0x030200", "nvidia")
    device(tmp_path, "0000:02:00.0", "0x10de", "0x030000", "nvidia")
    device(tmp_path, "0000:02:00.1", "0x10de", "0x040300", "snd_hda_intel")
    device(tmp_path, "0000:03:00.0", "0x10de", "0x030200", "vfio-pci")
    device(tmp_path, "0000:04:00.0", "0x1002", "0x030000", "amdgpu")
    device(tmp_path, "0000:05:00.0", "0x10de", "0x068000", "nvidia-nvswitch")
    device(tmp_path, "0000:06:00.0", "0x10de", "0x030200", None)

    assert bus_ids(tmp_path) == ("00000000:01:00.0", "00000000:02:00.0")


def test_nothing_tells(tmp_path: Path) -> None:
    """No folder, no GPU."""
    assert bus_ids(tmp_path) == ()


@pytest.mark.parametrize("address", ["", "0000", "0000:01:00", "0000:01:00.8", "zz00:01:00.0", "0000:01:00.0/x"])
def test_what_is_no_address(address: str) -> None:
    """Nothing is made of it."""
    assert canonical(address) is None
