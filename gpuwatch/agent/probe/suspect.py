"""PURE: which GPU a probe was about to open when it fell silent."""

from collections.abc import Mapping

from gpuwatch.agent.devices.messages import Step
from gpuwatch.model.gpu import GpuInfo
from gpuwatch.model.gpu_identity import STAND_IN


def suspect(step: Step, expected: Mapping[str, GpuInfo]) -> GpuInfo | None:
    """The GPU of a step: one that was seen before, or a stand-in by its place; None for a step that is about none."""
    if step.what != "gpu":
        return None
    for info in expected.values():
        if step.uuid == info.uuid or (step.pci_bus_id is not None and step.pci_bus_id == info.pci_bus_id):
            return info
    if step.uuid is None and step.pci_bus_id is None:
        for info in expected.values():
            if info.index == step.index:
                return info
    place = step.index if step.pci_bus_id is None else step.pci_bus_id
    return GpuInfo(uuid=step.uuid or f"{STAND_IN}{place}", index=step.index, pci_bus_id=step.pci_bus_id)
