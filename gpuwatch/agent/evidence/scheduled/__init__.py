"""Work that people queued on this host for later: at and batch jobs, crontabs, systemd timers."""
