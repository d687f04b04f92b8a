"""agent/devices/buses.py: whose GPUs are read where the settings leave it open."""

from pathlib import Path

import pytest

from gpuwatch.agent.devices.buses import amd_bus_ids, drivers_here
from tests.support.fakes.amd import AmdHost

MI300X = ("0x1002", "0x120000", "amdgpu")
MI250 = ("0x1002", "0x038000", "amdgpu")
RADEON = ("0x1002", "0x030000", "amdgpu")
H100 = ("0x10de", "0x030200", "nvidia")
GIB = 1024**3


@pytest.mark.parametrize(
    ("cards", "drivers"),
    [
        ((), "nvml"),
        ((H100,), "nvml"),
        ((MI300X,), "amdsmi"),
        ((RADEON,), "amdsmi"),
        ((MI300X, H100), "both"),
        ((MI250, H100), "both"),
        ((RADEON, H100), "nvml"),
        ((MI300X, ("0x10de", "0x030200", None)), "both"),
        ((MI300X, ("0x10de", "0x030200", "vfio-pci")), "amdsmi"),
        ((("0x1002", "0x120000", "vfio-pci"), H100), "nvml"),
        ((("0x1002", "0x040300", "snd_hda_intel"),), "nvml"),
        ((("0x8086", "0x030000", "i915"),), "nvml"),
    ],
)
def test_by_the_cards_that_are_there(
    tmp_path: Path, cards: tuple[tuple[str, str, str | None], ...], drivers: str
) -> None:
    """NVIDIA's where there are any, AMD's where there are only those; both where AMD's are made to compute."""
    host = AmdHost(tmp_path, gpus=0)
    for slot, (vendor, kind, driver) in enumerate(cards):
        host.pci(f"0000:{slot + 1:02x}:00.0", vendor, kind, driver, vram=64 * GIB)

    assert drivers_here(host.root) == drivers


def test_a_graphics_unit_within_the_processor(tmp_path: Path) -> None:
    """Beside a GPU of NVIDIA it is not read: it has no display of its own class, and little memory."""
    host = AmdHost(tmp_path, gpus=0)
    host.pci("0000:01:00.0", *H100)
    host.pci("0000:05:00.0", *MI250, vram=GIB // 2)
    host.pci("0000:06:00.0", *MI250)

    assert drivers_here(host.root) == "nvml"
    assert amd_bus_ids(host.root) == ("00000000:05:00.0", "00000000:06:00.0")


def test_a_host_without_pci(tmp_path: Path) -> None:
    """NVML has the words for what is missing, as ever."""
    assert drivers_here(tmp_path) == "nvml"
