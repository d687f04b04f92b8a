"""Who owns the processes on the GPUs: user, container, pod, Slurm job, systemd unit. No command lines, no secrets."""
