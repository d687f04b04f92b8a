"""gpuwatch: see every GPU, stop paying for the idle ones, never touch a busy one."""

__version__ = "0.1.0"
