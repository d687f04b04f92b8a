"""PURE: the pending jobs of Slurm that could start on this node, as `squeue` lists them.

A node without a job is not free for that: a job array may be throttled between two of its tasks, a job may wait for a
time, another job, a licence, or for more nodes than are idle now. Rules, all of them:

1. A job counts if one of its partitions is one of the node's.
2. It does not where it waits for a person (held) or can never start as it is (a limit of the partition, a mistake).
3. Nor where Slurm plans it for other nodes, or it asks for others, excludes this one, or wants a feature or a kind of
   GPU that this one has not.
4. Nor where it waits for resources and wants one node: Slurm has looked at this one.
5. Nor where it starts later than `HORIZON_SECONDS` from now.

What cannot be read counts.
"""

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

HORIZON_SECONDS = 93600.0  # as that of crontabs: a job each night
# Its features come last: they are joined by `|`.
FORMAT = "%i|%P|%r|%S|%D|%Y|%n|%x|%b|%f"
NODE_FORMAT = "%T|%R|%f|%G"
_FIELDS = 10
# squeue(1), JOB REASON CODES: it waits for a person, or never starts.
_NEVER = frozenset(
    "JobHeldAdmin JobHeldUser BadConstraints DependencyNeverSatisfied InvalidAccount InvalidQOS "  # noqa: SIM905  a table
    "AccountNotAllowed QOSNotAllowed PartitionDown PartitionInactive PartitionNodeLimit PartitionTimeLimit "
    "AssocMaxWallDurationPerJobLimit QOSMaxWallDurationPerJobLimit JobLaunchFailure SystemFailure "
    "JobHoldMaxRequeue launch_failed_requeued_held".split()
)
_RESOURCES = ("Resources", "Nodes required for job are")
_ID = re.compile(r"\d+(?:[_+]\S+)?", re.ASCII)
_NOTHING = frozenset({"", "(null)", "N/A", "n/a", "Unknown"})
_WORD = re.compile(r"([^\[\],]*)(?:\[([0-9,-]+)\])?([^\[\],]*)(?:,|$)")  # gpu-[01-04,7].x
_PLAIN = re.compile(r"[\w.:+-]+", re.ASCII)
_GRES = re.compile(r"(?:gres[:/])?gpu:([A-Za-z][\w.-]*)", re.ASCII)  # gres/gpu:h100:2


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmNode:
    """This node in Slurm; None is not known."""

    name: str
    partitions: Collection[str] | None = None
    features: Collection[str] | None = None
    gpus: Collection[str] | None = None  # kinds, such as h100


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingJob:
    """A job that waits, and why."""

    job: str
    reason: str


def node_in_slurm(name: str, lines: Collection[str]) -> SlurmNode:
    """The node by the lines of sinfo, one for each partition."""
    rows = [line.split("|") for line in lines if line.count("|") == NODE_FORMAT.count("|")]
    if not rows:
        return SlurmNode(name=name)
    gpus = {kind.lower() for row in rows for kind in _GRES.findall(row[3])}
    return SlurmNode(
        name=name,
        partitions={row[1] for row in rows},
        features={word for row in rows for word in row[2].split(",")},
        gpus=gpus or None,
    )


def jobs_for(node: SlurmNode, output: str, now: datetime) -> Iterator[PendingJob]:
    """Those of squeue's lines that could start here; `now` is in the zone of Slurm's times.

    Raises:
        ValueError: it is no list of jobs.

    """
    for line in output.splitlines():
        job, *fields = (part.strip() for part in line.split("|", _FIELDS - 1))
        if not _ID.fullmatch(job) or len(fields) != _FIELDS - 1:
            raise ValueError("squeue's output is not a list of pending jobs")
        if _could_start(node, fields, now):
            yield PendingJob(job=job, reason=fields[1])


def _could_start(node: SlurmNode, fields: list[str], now: datetime) -> bool:
    partitions, reason, start, count, planned, wanted, excluded, gpus, features = fields
    if node.partitions is not None and not set(node.partitions) & set(partitions.split(",")):
        return False
    if reason in _NEVER or (reason.startswith(_RESOURCES) and count == "1") or _is_far(start, now):
        return False
    if any(names not in _NOTHING and not _has(names, node.name) for names in (planned, wanted)):
        return False
    if excluded not in _NOTHING and _has(excluded, node.name):
        return False
    if node.features is not None and features not in _NOTHING and _PLAIN.fullmatch(features):
        return features in node.features
    kinds = {kind.lower() for kind in _GRES.findall(gpus)}
    return not kinds or node.gpus is None or bool(kinds & set(node.gpus))


def _is_far(start: str, now: datetime) -> bool:
    with suppress(ValueError):
        return (datetime.fromisoformat(start).replace(tzinfo=now.tzinfo) - now).total_seconds() > HORIZON_SECONDS
    return False


def _has(names: str, node: str) -> bool:
    """Whether a list such as gpu-[01-04,7] has the node."""
    for found in _WORD.finditer(names):
        first, ranges, last = found.groups()
        if ranges is None:
            if found[0].rstrip(",") == node:
                return True
        elif node.startswith(first) and node.endswith(last):
            number = node[len(first) : len(node) - len(last)]
            if number.isdecimal() and any(_is_within(number, part) for part in ranges.split(",")):
                return True
    return False


def _is_within(number: str, part: str) -> bool:
    begin, _, end = part.partition("-")
    return len(number) >= len(begin) and begin.isdecimal() and int(begin) <= int(number) <= int(end or begin)
