"""Which cloud this is, read off the board: no service is asked over the network that may not exist."""

import re
from importlib import import_module
from pathlib import Path

from gpuwatch.agent.metadata.base import MetadataService

DMI = Path("/sys/class/dmi/id")

# Each is a module here; an agent loads its own alone.
PROVIDERS = ("aws", "azure", "gcp", "alibaba", "tencent")

# File of /sys/class/dmi/id, what it says there in full; all are readable by everybody.
_BOARDS: tuple[tuple[str, str, str], ...] = (
    ("aws", "sys_vendor", r"Amazon EC2"),
    ("aws", "board_asset_tag", r"i-[0-9a-f]{8,17}"),
    ("aws", "bios_version", r".*\.amazon"),  # older types on Xen, such as p3
    ("azure", "chassis_asset_tag", r"7783-7084-3265-9085-8269-3286-77"),  # a vendor Microsoft alone is any Hyper-V
    ("gcp", "product_name", r"Google Compute Engine"),
    ("alibaba", "product_name", r"Alibaba Cloud ECS"),
    ("alibaba", "sys_vendor", r"Alibaba Cloud"),
    ("tencent", "sys_vendor", r"Tencent Cloud"),
)


def service_of(provider: str, dmi: Path = DMI) -> MetadataService | None:
    """The metadata service of a provider, or with `auto` of the board's; None without one."""
    name = _on_board(dmi) if provider == "auto" else provider
    if name not in PROVIDERS:
        return None
    service: MetadataService = getattr(import_module(f"gpuwatch.agent.metadata.{name}"), name.upper())
    return service


def _on_board(dmi: Path) -> str:
    """The provider that the board names; empty on a machine outside of clouds."""
    said: dict[str, str] = {}
    for provider, file, pattern in _BOARDS:
        if file not in said:
            try:
                said[file] = (dmi / file).read_text(encoding="utf-8", errors="replace").strip()
            except OSError:
                said[file] = ""
        if re.fullmatch(pattern, said[file], re.IGNORECASE):
            return provider
    return ""
