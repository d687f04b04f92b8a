"""PURE: who holds a GPU, and whether its work is the machine's own.

Rules, all of them:

1. Only a list that is complete and can be believed excuses anything: no failure, no foreign PID namespace, no virtual
   GPU (its processes may be in another machine), and no MIG instance with more processes than are listed.
2. Work is the machine's own if all processes in the list of this sample, in the one before, and in any of the last
   `COVERED_SECONDS`, are the machine's own, and there was at least one in the last `WINDOW_SECONDS`. So nobody's
   process was there in the time that utilization samples, activity and energy cover: the first two are of the
   STEADY_SECONDS before they were read, and shown for as long, energy is of the COSTLY_SECONDS before. The shorter
   window bounds how long an end of such work is excused: until power and clocks have settled.
3. A process that computes explains all work, in its first hour: a health check does not last longer, and what stays
   (an MPS server) works for others. What was there at the first look has perhaps been there for days. One that only
   draws explains utilization below a tenth, and nothing else.
4. Work without any process in these lists is somebody's: a program may end before it is listed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf

from gpuwatch.agent.activity.settings import ActivityRules
from gpuwatch.model.activity import Evidence, State, WorkOwner
from gpuwatch.model.gpu import GpuProcess, GpuReading, ProcessKind
from gpuwatch.model.metric import COSTLY_SECONDS, STEADY_SECONDS

WINDOW_SECONDS = 2.0 * STEADY_SECONDS
COVERED_SECONDS = COSTLY_SECONDS + 1.0 * STEADY_SECONDS  # with the time that a late cycle adds
_CHECK_SECONDS = 3600.0
_DRAWING_RATIO = 0.1
# As the driver names them in a virtual machine: GRID T4-16Q, NVIDIA A10-24Q, NVIDIA A100-1-5C, NVIDIA vGPU-48GB.
_VIRTUAL = re.compile(r"\b(?:GRID|vGPU)\b|-\d+[ABCQ]$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A process of the machine's own on a GPU; times are of the monotonic clock."""

    first_seconds: float
    last_seconds: float
    computes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Holders:
    """Who held one GPU lately.

    `looked_seconds` is when the list before was read, None where that list was not complete; `people_seconds` when a
    process that is not the machine's own was last listed.
    """

    looked_seconds: float | None = None
    people_seconds: float | None = None
    own: Mapping[int, Own] = field(default_factory=dict)


@lru_cache(maxsize=64)
def _virtual(name: str | None) -> bool:
    return _VIRTUAL.search(name or "") is not None


def lists_all_processes(reading: GpuReading) -> bool:
    """Whether the list of processes is complete and can be believed."""
    if reading.processes is None or reading.processes_partial or _virtual(reading.info.name):
        return False
    parts = reading.mig_instances or ()
    if reading.mig_mode == 1 and reading.mig_instances is None:
        return False
    counts = [part.process_count for part in parts]
    return None not in counts and sum(count or 0 for count in counts) <= sum(
        process.kind is ProcessKind.COMPUTE for process in reading.processes
    )


def people(reading: GpuReading, own: frozenset[int]) -> tuple[GpuProcess, ...]:
    """The listed processes that are not the machine's own."""
    return tuple(process for process in reading.processes or () if process.pid not in own)


def holders_after(known: Holders, reading: GpuReading, own: frozenset[int], now: float) -> Holders:
    """Who held the GPU lately, after one more reading."""
    kept: dict[int, Own] = {}
    if known.own:
        kept = {
            pid: entry
            for pid, entry in known.own.items()
            if now - entry.last_seconds <= WINDOW_SECONDS or entry.last_seconds == known.looked_seconds
        }
    present = [process for process in reading.processes or () if process.pid in own] if own else []
    began = -inf if known.looked_seconds is None else now
    for process in present:
        pid = process.pid
        computes = process.kind is ProcessKind.COMPUTE
        before = kept.get(pid, Own(first_seconds=began, last_seconds=now, computes=computes))
        kept[pid] = replace(before, last_seconds=now, computes=computes or before.computes)
    return Holders(
        looked_seconds=now if lists_all_processes(reading) else None,
        people_seconds=now if people(reading, own) else known.people_seconds,
        own=kept,
    )


def excuse_own_work(
    evidence: tuple[Evidence, ...], before: Holders, after: Holders, rules: ActivityRules
) -> tuple[Evidence, ...]:
    """The evidence of a GPU, idle instead of busy where its work is the machine's own by rules 1 to 4."""
    busy = [entry for entry in evidence if entry.says is State.BUSY]
    workers = _workers(before, after, rules) if busy else {}
    now = after.looked_seconds
    if now is None or not workers:
        return evidence
    checks = {pid for pid, own in workers.items() if own.computes and now - own.first_seconds <= _CHECK_SECONDS}
    if not checks and any(entry.unit != "ratio" or (entry.observed or 0.0) >= _DRAWING_RATIO for entry in busy):
        return evidence
    pids = sorted(checks or workers)
    note, owner = own_work(pids), WorkOwner(pid=pids[0])
    return tuple(
        replace(entry, says=State.IDLE, note=note, owner=owner, setting=None) if entry.says is State.BUSY else entry
        for entry in evidence
    )


def _workers(before: Holders, after: Holders, rules: ActivityRules) -> Mapping[int, Own]:
    """The machine's own processes that were there lately; empty where somebody else's may have been there, too."""
    last, now = before.looked_seconds, after.looked_seconds
    if last is None or now is None or now - last > rules.max_gap:
        return {}
    since = min(last, now - COVERED_SECONDS)
    if after.people_seconds is not None and after.people_seconds >= since:
        return {}
    return after.own


def own_work(pids: list[int]) -> str:
    """The words for work or memory of the machine's own."""
    return f"the machine's own: process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"
