"""Processes for made hosts: the files of /proc/<pid> as the kernel writes them."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
USER_SESSION = "/user.slice/user-1000.slice/session-3.scope"
CONTAINER = "/system.slice/docker-" + "ab" * 32 + ".scope"


def put_process(  # noqa: PLR0913  a process has many sides
    proc: Path,
    pid: int,
    name: str,
    *,
    cgroup: str = USER_SESSION,
    uid: int = 1000,
    executable: str | None = None,
    arguments: tuple[str, ...] = (),
    parent: int = 2000,
    tty: int = 0,
    state: str = "S",
    started_seconds: float = 100.0,
    cpu_seconds: float = 0.0,
    reaped_seconds: float = 0.0,
    faults: int = 0,
    moved_bytes: int | None = 0,
    flags: int = 0x400000,
) -> None:
    """Write one process; its CPU time is half user, half system. Without `moved_bytes` its io may not be read."""
    folder = proc / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    half, reaped = round(cpu_seconds * TICKS / 2), round(reaped_seconds * TICKS / 2)
    fields = [state, parent, pid, pid, tty, -1, flags, faults, 0, 0, 0, half, half, reaped, reaped, 20, 0, 1, 0]
    tail = " ".join(map(str, [*fields, round(started_seconds * TICKS), 0, 0]))
    (folder / "stat").write_text(f"{pid} ({name[:15]}) {tail}\n")
    (folder / "status").write_text(f"Name:\t{name[:15]}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "comm").write_text(f"{name[:15]}\n")
    (folder / "cgroup").write_text(f"0::{cgroup}\n")
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in (arguments or (name,))))
    if moved_bytes is not None:
        (folder / "io").write_text(f"rchar: {moved_bytes}\nwchar: 0\nsyscr: 0\n")
    link = folder / "exe"
    link.unlink(missing_ok=True)
    if executable != "":
        link.symlink_to(executable or f"/usr/bin/{name}")
