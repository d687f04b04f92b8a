"""PURE: programs that look as if a stranger runs them: a miner that came through a hole, not a person who logged in.

Two marks, each of a program outside of all logins, jobs and terminals:

- its file lies in a folder that everybody may write to, or only in memory; in a container that says nothing
- it is no thread of the kernel, and is called like one, by its own name or by its first argument

This never makes a machine idle or busy: what it computes keeps the machine as any program does. It is for an alert.
"""

import re
from enum import StrEnum
from functools import lru_cache

from gpuwatch.agent.processes.process import Kind, Process, ProcessView

_OPEN_FOLDERS = ("/tmp/", "/var/tmp/", "/dev/shm/", "/run/shm/", "/memfd:")  # noqa: S108  looked for, not used
_KERNELS = re.compile(
    r"\[?(kworker|kthreadd|ksoftirqd|kswapd|kdevtmpfs|khugepaged|kcompactd|kblockd|kauditd|kintegrityd|kthrotld|migration"
    r"|rcu_\w+|watchdogd|oom_reaper|writeback|cpuhp|netns|jbd2|scsi_eh)(?![\w.-]).*|\[[^\]]+\]",
    re.ASCII,
)


class Mark(StrEnum):
    """What is strange about a program."""

    FOLDER = "writable_folder"
    NAME = "kernel_name"


@lru_cache(maxsize=512)  # most of 5,000 processes are like others
def mark_of(path: str | None, *names: str) -> Mark | None:
    """What is strange about a program with this file (None: not known), short name and first word; None: nothing."""
    if any(_KERNELS.fullmatch(name) for name in names):
        return Mark.NAME
    return Mark.FOLDER if path is not None and path.startswith(_OPEN_FOLDERS) else None


def cores_of_strangers(view: ProcessView) -> dict[Mark, float]:
    """The CPU cores of the last minute by mark, of those that used any."""
    found: dict[Mark, float] = {}
    for pid, cores in view.cores.items():
        process = view.processes.get(pid)
        if process is not None and process.strange is not None and _is_nobodys(process):
            mark = Mark(process.strange)
            found[mark] = found.get(mark, 0.0) + cores
    return found


def _is_nobodys(process: Process) -> bool:
    """Whether no login, job or terminal accounts for it, and no container for the folder of its file."""
    place = process.placement
    if process.kind is Kind.KERNEL or process.tty or place.own_names or place.slurm_job is not None:
        return False
    contained = place.container_id is not None or place.pod_uid is not None
    return not (contained and process.strange == Mark.FOLDER)
