"""Where the kernel shows the GPUs of this host on the PCI bus, and which driver reads them; nothing touches a GPU."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
_NVIDIA = "0x10de"
_AMD = "0x1002"
_DISPLAY = "0x03"  # the class of each GPU of NVIDIA, with a display or without, and of AMD's before the MI300
_ACCELERATOR = "0x12"  # that of AMD's since
_NO_SCREEN = "0x0380"  # a display controller without a display, such as the MI250
_DEVICES = "sys/bus/pci/devices"
_LARGE_BYTES = 16 * 1024**3  # more than a graphics unit within a processor is lent by default
Driver = Literal["nvml", "amdsmi", "both"]


def canonical(address: str) -> str | None:
    """A PCI address in the form of NVML for every GPU, such as 00000000:8D:00.0; None: it is no address."""
    match = _ADDRESS.fullmatch(address.strip())
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    return f"{domain:08X}:{bus:02X}:{device:02X}.{function}"


def bus_ids(root: Path = Path("/")) -> tuple[str, ...]:
    """The GPUs that the driver has bound, sorted; nothing where neither /proc nor /sys shows them.

    Source: /proc/driver/nvidia/gpus, else /sys/bus/pci/devices.
    """
    found = {canonical(entry.name) for entry in _entries(root / "proc/driver/nvidia/gpus")}
    found = found or {
        canonical(entry.name)
        for entry in _entries(root / _DEVICES)
        if _is_gpu(entry, _NVIDIA) and _driver(entry) == "nvidia"
    }
    return tuple(sorted(address for address in found if address is not None))


def nvidia_is_there(root: Path = Path("/")) -> bool:
    """Whether there is a GPU of NVIDIA, with a driver or without; one that is lent to a virtual machine is not here."""
    listed = (entry for entry in _entries(root / _DEVICES) if _is_gpu(entry, _NVIDIA))
    return bool(bus_ids(root)) or any(_driver(entry) != "vfio-pci" for entry in listed)


def amd_bus_ids(root: Path = Path("/"), *, made_to_compute: bool = False) -> tuple[str, ...]:
    """The GPUs that AMD's driver has bound, sorted; with `made_to_compute` without those that draw.

    Made to compute is what is an accelerator by its class, or has no display and at least 16 GiB of its own memory.
    Source: /sys/bus/pci/devices.
    """
    devices = (entry for entry in _entries(root / _DEVICES) if _is_gpu(entry, _AMD) and _driver(entry) == "amdgpu")
    found = {canonical(entry.name) for entry in devices if not made_to_compute or _made_to_compute(entry)}
    return tuple(sorted(address for address in found if address is not None))


def busy_file(root: Path, address: str | None) -> Path | None:
    """Where amdgpu shows how busy a GPU is, in percent; None without an address.

    Source: the kernel's documentation of amdgpu, gpu_busy_percent.
    """
    if address is None:
        return None
    domain, _, rest = address.lower().partition(":")
    return root / _DEVICES / f"{int(domain, 16):04x}:{rest}" / "gpu_busy_percent"


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except OSError:
        return


def _is_gpu(device: Path, vendor: str) -> bool:
    """Whether it is a GPU of that vendor."""
    return _text(device / "vendor") == vendor and _text(device / "class").startswith((_DISPLAY, _ACCELERATOR))


def _made_to_compute(device: Path) -> bool:
    """Whether an AMD GPU is no graphics card, and not the graphics unit of a processor."""
    kind, size = _text(device / "class"), _text(device / "mem_info_vram_total")
    if kind.startswith(_ACCELERATOR):
        return True
    return kind.startswith(_NO_SCREEN) and size.isdecimal() and int(size) >= _LARGE_BYTES


def _text(file: Path) -> str:
    """What a file of sysfs says; nothing where it cannot be read."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _driver(device: Path) -> str:
    """Which driver has it; nothing where none does, or where it is lent to a virtual machine that hides it."""
    try:
        return (device / "driver").readlink().name
    except OSError:
        return ""


def drivers_here(root: Path = Path("/")) -> Driver:
    """NVIDIA's GPUs where there are any, AMD's where there are only those.

    Next to NVIDIA's, AMD's are read if they are made to compute: a graphics unit within the processor is not, and its
    screen would keep the machine busy. Nothing of AMD's library is loaded to find out.
    """
    if not amd_bus_ids(root):
        return "nvml"
    if not nvidia_is_there(root):
        return "amdsmi"
    return "both" if amd_bus_ids(root, made_to_compute=True) else "nvml"
