"""agent/probe/command.py: the GPU that a probe was about to open when it fell silent."""

import pytest

from gpuwatch.agent.devices.messages import Step
from gpuwatch.agent.probe.command import suspect
from gpuwatch.model.gpu import GpuInfo
from tests.support.builders.gpu import a_gpu

EXPECTED = {f"GPU-{index}": a_gpu(index) for index in range(3)}


@pytest.mark.parametrize(
    "step",
    [
        Step(what="gpu", index=2),
        Step(what="gpu", uuid="GPU-2", index=1),
        Step(what="gpu", pci_bus_id="00000000:03:00.0"),
        Step(what="gpu", pci_bus_id="00000000:03:00.0", index=0),
    ],
)
def test_a_gpu_that_was_seen_before(step: Step) -> None:
    """Its uuid tells it, else its place on the bus, else its number."""
    assert suspect(step, EXPECTED) == a_gpu(2)


@pytest.mark.parametrize(
    ("step", "uuid"),
    [
        (Step(what="gpu", index=7), "unidentified-7"),
        (Step(what="gpu", pci_bus_id="00000000:09:00.0"), "unidentified-00000000:09:00.0"),
    ],
)
def test_a_gpu_that_nobody_has_seen(step: Step, uuid: str) -> None:
    """A stand-in, by its place."""
    assert suspect(step, EXPECTED) == GpuInfo(uuid=uuid, index=step.index, pci_bus_id=step.pci_bus_id)


def test_the_driver_itself_is_no_gpu() -> None:
    """No GPU can be blamed while the driver is opened."""
    assert suspect(Step(what="init"), EXPECTED) is None
