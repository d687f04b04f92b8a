"""Whose the processes on the GPUs are: user, container, pod, Slurm job, systemd unit. No command lines, no secrets."""
