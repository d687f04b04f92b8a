"""PURE: what the path of a control group shows about a process. A path of unknown form shows nothing.

Every fact has a closed alphabet (hexadecimal ids, digits, unit names), so nothing else of the text can get out. Below
user.slice the names are the user's own choice (`systemd-run --user`): no pod, container or job is believed there.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

# A container's own group: docker-ID.scope, cri-containerd-ID.scope, crio-ID.scope, libpod-ID.scope, ID by itself, and
# kubepods-…-podUID.slice:cri-containerd:ID. Those with conmon in front are the container's monitor.
_CONTAINER = re.compile(r"(?P<runtime>[^/]*[:-])?(?P<id>[0-9a-f]{64})(?:\.scope)?")
_CONTAINER_ID_LENGTH = 12  # as `docker ps` and `crictl ps` show it

# A pod's group under kubepods; the systemd driver writes the uid with _ for -. Static pods have 32 digits as their uid.
_POD = re.compile(
    r"(?:[a-z0-9_-]+-)?pod([0-9a-f]{8}(?:([-_])[0-9a-f]{4}(?:\2[0-9a-f]{4}){2}\2[0-9a-f]{12}|[0-9a-f]{24}))"
    r"(?:\.slice)?(?::.*)?"
)

# cgroup v1: /slurm/uid_1000/job_7/step_0 (slurm_NODE with several slurmd); v2: …/slurmstepd.scope/job_7/step_0.
_JOB = re.compile(r"/(?:slurm[^/]*/uid_[0-9]+|(?:[^/]*_)?slurmstepd\.scope)/job_([0-9]{1,10})(?:/|$)", re.ASCII)

_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,248}\.(?:service|scope)")  # systemd.unit(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a process runs; None is not there or not known. `own_names`: below user.slice, in some hierarchy."""

    container_id: str | None = None
    pod_uid: str | None = None
    slurm_job: str | None = None
    systemd_unit: str | None = None
    own_names: bool = field(default=False, compare=False)


@lru_cache(maxsize=512)  # all processes of a container or a unit have the same text, and then the same value
def parse_cgroup(text: str) -> Placement:
    """The innermost container and pod, the job and the unit of /proc/PID/cgroup, of either version."""
    container = pod = job = unit = None
    own_names = False
    for line in text.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if not path.startswith("/"):
            continue
        parts = path.split("/")
        if _is_the_users(parts):
            own_names = True
        else:
            container = container or _container(parts)
            pod = pod or _pod(parts)
            found = _JOB.search(path)
            job = job or (found and found[1])
        if controllers in {"", "name=systemd"}:
            unit = unit or _unit(parts)
    return Placement(container_id=container, pod_uid=pod, slurm_job=job, systemd_unit=unit, own_names=own_names)


@lru_cache(maxsize=512)
def slice_of(text: str) -> str:
    """The first part of the path of /proc/PID/cgroup."""
    for line in text.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers in {"", "name=systemd"}:
            return next((part for part in path.split("/") if part not in {"", ".."}), "")
    return ""


def job_groups(text: str, job: str) -> Iterator[tuple[str, str]]:
    """The controllers and the path of each group `job_N` of that job in /proc/PID/cgroup, of either version."""
    for line in text.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        found = _JOB.search(path)
        if found is None or found[1] != job or _is_the_users(path.split("/")):
            continue
        parts = path[: found.end(1)].split("/")
        while parts[1:2] == [".."]:  # another cgroup namespace is the process's home
            del parts[1]
        if ".." not in parts:
            yield controllers, "/".join(parts)


def _is_the_users(parts: list[str]) -> bool:
    """Whether the path leads below user.slice; seen from another cgroup namespace it begins with steps up."""
    return next((part for part in parts[1:] if part != ".."), "") == "user.slice"


def _container(parts: list[str]) -> str | None:
    matches = [match for match in map(_CONTAINER.fullmatch, parts) if match]
    running = [match["id"] for match in matches if "conmon" not in (match["runtime"] or "")]
    return running[-1][:_CONTAINER_ID_LENGTH] if running else None


def _pod(parts: list[str]) -> str | None:
    uids = [match[1].replace("_", "-") for match in map(_POD.fullmatch, parts) if match]
    return uids[-1] if uids else None


def _unit(parts: list[str]) -> str | None:
    """The innermost unit of the host's systemd: what lies within a container belongs to that one's own."""
    unit = None
    for part in parts:
        if _CONTAINER.fullmatch(part):
            break
        unit = part if _UNIT.fullmatch(part) else unit
    return unit
