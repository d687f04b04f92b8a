"""What was billed, for people and for scripts: `gpuwatch cost`."""
