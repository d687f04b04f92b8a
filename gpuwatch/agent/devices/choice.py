"""Which driver's GPUs are read where the settings say `auto`: that of the GPUs that the kernel shows."""

from pathlib import Path
from typing import Literal

from gpuwatch.agent.devices.buses import amd_bus_ids, nvidia_is_there

Driver = Literal["nvml", "amdsmi", "both"]


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
