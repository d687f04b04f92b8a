"""One process in /proc: its start and its owner. Of its environment, at most the number of its Slurm job is read."""

import pwd
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuwatch.agent.attribution.cgroup import Placement, parse_cgroup
from gpuwatch.agent.devices.pid_namespace import in_host_pids
from gpuwatch.model.readable import legible

_MOST_BYTES = 64 * 1024
_LONGEST_NAME = 64
_MOST_ENVIRONMENT_BYTES = 2 * 1024 * 1024

_STATUS_UID = re.compile(rb"^Uid:\t[0-9]+\t([0-9]{1,10})\t", re.MULTILINE)  # the effective one, as ps shows it
_STATUS_NAME = re.compile(rb"Name:\t([^\n]+)\n")
_JOB_ID = re.compile(rb"(?:\A|\0)SLURM_JOB_ID=([0-9]{1,10})(?=\0|\Z)")
_SLURMD = re.compile(r"(?:[^/]*_)?slurm(?:d|stepd)\.(?:service|scope)")
_START_TIME = 19  # stat's field 22, counted behind the name

GONE = (FileNotFoundError, ProcessLookupError)  # not there, or ended while it was read


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who owns a process; None is not known. `name` is the short name of the program that it was when it was read."""

    user: str | None = None
    placement: Placement = field(default_factory=Placement)
    name: str | None = field(default=None, compare=False)


def sees_host_pids(proc: Path) -> bool:
    """Whether the driver's pids are those of this /proc: we are in the host's PID namespace, with no hidepid on us."""
    return in_host_pids(proc) and (proc / "1").exists()


def start_time(proc: Path, pid: int) -> int | None:
    """Clock ticks from boot to the start of the process, different for two of the same pid; None: unreadable.

    Raises:
        FileNotFoundError, ProcessLookupError: there is no such process.

    """
    try:
        behind_name = _read_bytes(proc / str(pid) / "stat").rpartition(b")")[2].split()
        return int(behind_name[_START_TIME])
    except GONE:
        raise
    except (OSError, ValueError, IndexError):
        return None


def read_owner(proc: Path, pid: int, *, users: bool, environment: bool) -> Owner:
    """The owner, as far as permissions allow; with `environment`, it is searched for a job that no cgroup names."""
    folder = proc / str(pid)
    placement = parse_cgroup(_try_read(folder / "cgroup").decode("utf-8", "replace"))
    if environment and placement.slurm_job is None and _may_be_slurms(placement):
        # Last, because it is the one file that waits for a lock of the process's memory.
        job = job_in_environment(_try_read(folder / "environ", _MOST_ENVIRONMENT_BYTES))
        placement = replace(placement, slurm_job=job)
    contained = placement.container_id is not None or placement.pod_uid is not None
    status = _try_read(folder / "status")
    user = _user(status, named=not contained) if users else None
    return Owner(user=user, placement=placement, name=_name(status))


def _may_be_slurms(placement: Placement) -> bool:
    """Whether a job number in the environment can be Slurm's own: any user can set the variable.

    Without control groups of its own, Slurm's jobs run in the service of slurmd; without systemd it is unknown.
    """
    contained = placement.container_id is not None or placement.pod_uid is not None
    if contained or placement.own_names:
        return False
    return placement.systemd_unit is None or _SLURMD.fullmatch(placement.systemd_unit) is not None


def job_in_environment(environment: bytes) -> str | None:
    """The digits of SLURM_JOB_ID, and no other character."""
    found = _JOB_ID.search(environment)
    return found[1].decode("ascii") if found else None


def _name(status: bytes) -> str | None:
    found = _STATUS_NAME.match(status)
    return None if found is None else legible(found[1].decode("utf-8", "replace"), _LONGEST_NAME)


def _user(status: bytes, *, named: bool) -> str | None:
    """The owner's name; the number if no user has it, and in a container, which has users of its own."""
    found = _STATUS_UID.search(status)
    if found is None:
        return None
    return user_name(int(found[1])) if named else str(int(found[1]))


def user_name(uid: int) -> str:
    """A user's name; the number where the host does not know the user."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


def _try_read(path: Path, most_bytes: int = _MOST_BYTES) -> bytes:
    """The beginning of the file; empty if it may not be read."""
    try:
        return _read_bytes(path, most_bytes)
    except OSError:
        return b""


def _read_bytes(path: Path, most_bytes: int = _MOST_BYTES) -> bytes:
    """Unbuffered, because /proc makes up a file as it is read."""
    with path.open("rb", buffering=0) as file:
        data = b""
        while len(data) < most_bytes and (more := file.read(min(most_bytes - len(data), 64 * 1024))):
            data += more
    return data
