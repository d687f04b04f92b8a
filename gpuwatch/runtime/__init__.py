"""What both daemons stand on: time, logs, signals, systemd, files that change, secrets, TLS, HTTP, metrics."""
