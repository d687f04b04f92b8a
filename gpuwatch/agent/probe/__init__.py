"""The child process that asks NVML, and its supervisor. A GPU that hangs hangs the child alone."""
