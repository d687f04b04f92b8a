"""What each Slurm job used of this host: one line in the agent's log when the job is over. No command lines."""
