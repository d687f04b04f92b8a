"""What a source of GPUs gives in a cycle, for tests of the NVML source."""

from gpuwatch.agent.devices import DeviceSource
from gpuwatch.model.gpu import GpuDown, GpuReading


def cycle(source: DeviceSource) -> list[GpuReading | GpuDown]:
    """What one cycle of the probe gets."""
    return [source.read(gpu) for gpu in source.gpus()]


def reading(source: DeviceSource) -> GpuReading:
    """The reading of the only GPU."""
    (only,) = cycle(source)

    assert isinstance(only, GpuReading), f"expected a reading, got {only}"
    return only


def down(result: GpuReading | GpuDown) -> GpuDown:
    """A GPU that is down."""
    assert isinstance(result, GpuDown), f"expected a GPU that is down, got {result}"
    return result
