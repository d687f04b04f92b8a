"""PURE: what set a node's idle time to zero last, signal by signal, and the setting that would change each signal.

Rules, all of them:

1. Only what decided the node's verdict counts: the busy evidence of a busy node, the evidence of a parked or occupied
   one. Busy evidence that was overruled (a deadlock's, a signal that was judged not to count) is in no verdict.
2. Doubt counts once it has lasted longer than `forget_after`, for then it has reset the idle time.
3. Of each signal and what it said the newest is kept; of GPUs, of each kind the one furthest above its limit.
4. At most `MOST`, the newest first, none older than a week. A new agent begins with an empty list.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from gpuwatch.agent.activity import ActivityRules, Memory
from gpuwatch.model.activity import Activity, Evidence, LastBusy, State, WorkOwner
from gpuwatch.model.duration import format_duration
from gpuwatch.model.verdict import GpuVerdict, PodVerdict

MOST = 16
KEPT_SECONDS = 7 * 86400.0
DOUBT = "doubt"
STALLED = "stalled"

_GPU = re.compile(r"gpu[^.]*\.(?:mig[^.]*\.)?(.+)")
# Signals of a GPU by what they measure: a machine with 16 GPUs has no more kinds than one with one.
_GPU_KINDS = {
    "utilization_max": "utilization",
    "engines": "utilization",
    "sm_activity": "kernels",
    "graphics_activity": "utilization",
    "dram_activity": "utilization",
    "power": "power",
    "pcie": "traffic",
    "nvlink": "traffic",
    "memory_used": "memory",
    "compute_processes": "processes",
    "processes": "processes",
}
# The setting that changes a signal. Signals that are not here have none: a lock, a snooze or a job of Slurm is what
# somebody wants, and the limits of the links are fixed.
SETTINGS = {
    "people": "agent.evidence.people.silent_after",
    "gpu_process_cpu": "agent.evidence.gpu_process_cpu.busy_cores",
    "cpu": "agent.evidence.cpu.busy_cores",
    "disk": "agent.evidence.disk.busy_bytes_per_second",
    "network": "agent.evidence.network.busy_bytes_per_second",
    "jupyter": "agent.evidence.jupyter.silent_after",
    "command": "agent.evidence.command.argv",
    "gpu.utilization": "agent.activity.busy_utilization_ratio",
    "gpu.power": "agent.activity.busy_power_ratio",
    "gpu.memory": "agent.activity.held_memory_bytes",
    STALLED: "agent.activity.stalled_timeout",
    DOUBT: "agent.activity.forget_after",
}
_HOLDS = frozenset({State.BUSY, State.PARKED, State.STALLED, State.OCCUPIED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Evidence that set the idle time to zero, and when it was seen last on both clocks."""

    evidence: Evidence
    at: datetime
    monotonic_seconds: float

    @property
    def key(self) -> tuple[str, State]:
        """What it is the newest of."""
        return signal_of(self.evidence.name), self.evidence.says


@cache  # the names are those of this machine's signals and GPUs
def signal_of(name: str) -> str:
    """The signal of evidence: of the host its name, of GPUs the kind, such as `gpu.utilization`."""
    found = _GPU.fullmatch(name)
    return name if found is None else f"gpu.{_GPU_KINDS.get(found[1], 'other')}"


def with_setting(evidence: Evidence) -> Evidence:
    """The evidence with the setting that would change it; what is idle or unknown needs none."""
    if evidence.says not in _HOLDS or evidence.setting is not None:
        return evidence
    setting = SETTINGS.get(signal_of(evidence.name))
    return evidence if setting is None else replace(evidence, setting=setting)


def with_settings(activity: Activity) -> Activity:
    """The activity with the setting of each evidence in it."""
    if activity.state not in _HOLDS:
        return activity
    return replace(activity, evidence=tuple(map(with_setting, activity.evidence)))


def with_owners(activity: Activity, owner: Callable[[int], WorkOwner | None]) -> Activity:
    """The activity with the names of processes of which the driver gave the pid alone."""

    def found(entry: Evidence) -> Evidence:
        known = entry.owner
        if known is None or known.pid is None or known.process is not None:
            return entry
        process = owner(known.pid) or known
        return replace(entry, owner=replace(process, user=known.user or process.user))

    if activity.state not in _HOLDS:
        return activity
    return replace(activity, evidence=tuple(map(found, activity.evidence)))


def name_holders(gpu: GpuVerdict) -> GpuVerdict:
    """The same for a GPU."""
    activity = with_settings(gpu.activity)
    return gpu if activity is gpu.activity else replace(gpu, activity=activity)


def named_pods(
    pods: Iterable[PodVerdict], instead: Activity | None, others: Collection[str] | None
) -> tuple[tuple[PodVerdict, ...], tuple[PodVerdict, ...] | None]:
    """The same for pods, those of the uids `others` apart; `instead` counts where nothing can be believed."""
    found = [replace(pod, activity=instead or with_settings(pod.activity)) for pod in pods]
    its = tuple(pod for pod in found if pod.uid not in (others or ()))
    return its, None if others is None else tuple(pod for pod in found if pod.uid in others)


def remember(known: tuple[Kept, ...], before: Memory, after: Memory, rules: ActivityRules) -> tuple[Kept, ...]:
    """What is known after one more sample, newest first. `before` and `after` are the folds around it."""
    if after.at is None or after.monotonic_seconds is None:
        return known
    seen = [
        Kept(evidence=evidence, at=after.at, monotonic_seconds=after.monotonic_seconds)
        for evidence in (*_worst(_holding_evidence(after.activity)), *_doubt(before, after, rules))
    ]
    oldest = after.monotonic_seconds - KEPT_SECONDS
    if not seen and all(each.monotonic_seconds >= oldest for each in known):
        return known
    newest = {each.key: each for each in (*known, *seen)}
    young = (each for each in newest.values() if each.monotonic_seconds >= oldest)
    ordered = sorted(young, key=lambda each: (-each.monotonic_seconds, each.key))
    return tuple(ordered[:MOST])


def as_of_verdict(known: Iterable[Kept], now_monotonic: float, current_seconds: float | None) -> tuple[LastBusy, ...]:
    """As a verdict has it. What the sample of `current_seconds` showed is so now; None: there is no current sample."""
    return tuple(
        LastBusy(
            evidence=each.evidence,
            at=each.at,
            ago_seconds=0.0
            if each.monotonic_seconds == current_seconds
            else max(0.0, now_monotonic - each.monotonic_seconds),
        )
        for each in known
        if now_monotonic - each.monotonic_seconds <= KEPT_SECONDS
    )


def _holding_evidence(activity: Activity) -> Iterator[Evidence]:
    """The evidence that made a node what it is; none of an idle or unknown one."""
    if activity.state not in _HOLDS:
        return
    found = [with_setting(each) for each in activity.evidence if each.says is activity.state]
    yield from found
    if not found and activity.state is State.STALLED:
        yield with_setting(
            Evidence(name=STALLED, says=State.STALLED, observed=None, limit=None, unit="", source="the agent's verdict")
        )


def _worst(found: Iterable[Evidence]) -> Iterable[Evidence]:
    """Of each signal the evidence furthest above its limit."""
    worst: dict[str, Evidence] = {}
    for each in found:
        signal = signal_of(each.name)
        if signal not in worst or _excess(each) > _excess(worst[signal]):
            worst[signal] = each
    return worst.values()


def _excess(evidence: Evidence) -> float:
    """How many times its limit it is; -1 where that is not known."""
    if evidence.observed is None or not evidence.limit:
        return -1.0
    return evidence.observed / evidence.limit


def _doubt(before: Memory, after: Memory, rules: ActivityRules) -> Iterator[Evidence]:
    """Doubt, or a time without a reading, that has lasted so long that the idle time begins again."""
    if after.monotonic_seconds is None or after.activity.state in _HOLDS:
        return
    lasted, words = after.node.doubt_seconds, after.activity.doubt
    if after.activity.state is not State.UNKNOWN:
        last = after.monotonic_seconds if before.monotonic_seconds is None else before.monotonic_seconds
        gap = after.monotonic_seconds - last
        if gap <= rules.max_gap:
            return  # the end of a doubt that was kept while it lasted
        lasted = before.node.doubt_seconds + gap
        words = before.activity.doubt if before.activity.state is State.UNKNOWN else None
        words = words or f"there was no reading for {format_duration(gap)}"
    if lasted > rules.forget_after:
        yield Evidence(
            name=DOUBT,
            says=State.UNKNOWN,
            observed=lasted,
            limit=rules.forget_after,
            unit="seconds",
            source="the agent's verdict",
            note=words,
            setting=SETTINGS[DOUBT],
        )
