"""Drivers that come with gpuwatch (docs/clouds/drivers.md): each is a process of its own; gpuwatch imports none."""
