"""The N of each GPU's /dev/nvidiaN, by which some device plugins call it and which need not be NVML's index."""

import contextlib
import re
from pathlib import Path

from gpuwatch.agent.attribution.parts import address

_MINOR = re.compile(rb"^Device Minor:\s*([0-9]{1,6})\s*$", re.MULTILINE)
_MOST_BYTES = 4096


def device_minors(proc: Path) -> dict[str, int]:
    """The minor numbers by PCI address, from driver/nvidia/gpus/ADDRESS/information; those that cannot be read lack."""
    found: dict[str, int] = {}
    for file in (proc / "driver/nvidia/gpus").glob("*/information"):
        with contextlib.suppress(OSError), file.open("rb", buffering=0) as information:
            if minor := _MINOR.search(information.read(_MOST_BYTES)):
                found[address(file.parent.name)] = int(minor[1])
    return found
