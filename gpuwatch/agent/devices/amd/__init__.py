"""The GPUs of AMD's driver, through amdsmi, ROCm's own Python binding.

Loaded only where it is chosen: the binding maps the driver's library when it is imported.
"""

from gpuwatch.agent.devices.amd.source import AmdSource

__all__ = ["AmdSource"]
