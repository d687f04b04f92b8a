"""Whether process ids are the host's. The driver lists only processes that have an id in the caller's PID namespace."""

from pathlib import Path

_HOST_PIDS = "pid:[4026531836]"  # PROC_PID_INIT_INO: the first PID namespace of every kernel


def in_host_pids(proc: Path = Path("/proc")) -> bool:
    """Whether this process is in the host's PID namespace; False if that is unknown."""
    try:
        return str((proc / "self/ns/pid").readlink()) == _HOST_PIDS
    except OSError:
        return False
