"""Is this GPU healthy: counters, the kernel log and Xids, judged by rules."""
