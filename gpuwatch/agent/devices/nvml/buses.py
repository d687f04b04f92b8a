"""Where the GPUs of this host sit on the PCI bus, as the kernel shows it: nothing here touches a GPU."""

import re
from collections.abc import Iterator
from pathlib import Path

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.IGNORECASE)
_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # the class of each GPU, with a display or without


def canonical(address: str) -> str | None:
    """A PCI address in the form of NVML, such as 00000000:8D:00.0; None: it is no address."""
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
    found = found or {canonical(entry.name) for entry in _entries(root / "sys/bus/pci/devices") if _is_gpu(entry)}
    return tuple(sorted(address for address in found if address is not None))


def _entries(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except OSError:
        return


def _is_gpu(device: Path) -> bool:
    """Whether it is a GPU of NVIDIA's driver, and not lent to a virtual machine."""
    try:
        if (device / "vendor").read_text(encoding="ascii").strip() != _NVIDIA:
            return False
        return (device / "class").read_text(encoding="ascii").startswith(_DISPLAY) and _driver(device) == "nvidia"
    except (OSError, ValueError):
        return False


def _driver(device: Path) -> str:
    """Which driver has it."""
    return (device / "driver").readlink().name
