"""gpuwatch: see every GPU, stop paying for the idle ones, never touch a busy one."""

__version__ = "1.0.0rc1"
