"""Idle time held to what this process itself has heard: a machine that worked then has not been idle since before.

Each answer of an agent may be possible by itself. But two agents may answer for one machine by turns (two hosts with
one address, a load balancer before agents), and an agent may be put back to a snapshot. Where a machine claims that it
has been idle since before it was last seen at work, its use is unknown for a day from then (P2, P9). The same holds of
each GPU and each pod by itself, for pods are ended also on machines that are busy.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import NodeReport, NodeVerdict
from gpuwatch.model.verdict import GpuVerdict, PodVerdict

_DAY_SECONDS = 86400.0
_SLACK_SECONDS = 120.0  # work may end, and be dated back, between two samples
_MANY = 2  # times as many as there are
_MOST_PARTS = 512  # of one machine: pods come and go
_ALL_GPUS = ""  # instead of the name of each
_BUSY, _UNKNOWN = State.BUSY, State.UNKNOWN  # to look a member up takes longer than to compare it


@dataclass(frozen=True, slots=True)
class SeenAtWork:
    """When each machine's agent last said that it was busy: by machine, in seconds since boot."""

    _seen: dict[str, float] = field(default_factory=dict, init=False)
    _parts: dict[str, dict[str, float]] = field(default_factory=dict, init=False)  # GPUs and pods of each
    _rested: dict[str, float] = field(default_factory=dict, init=False)  # when a window last had no work in it

    @property
    def remembered(self) -> int:
        """How many machines it knows."""
        return len(self._seen.keys() | self._parts.keys() | self._rested.keys())

    def forget_others(self, ids: Collection[str]) -> None:
        """Forget all machines but these, once there are many others: a region may be missing from one list."""
        for memory in (self._seen, self._parts, self._rested):
            if len(memory) > _MANY * len(ids):
                for node_id in memory.keys() - set(ids):
                    del memory[node_id]

    def hold(self, node_id: str, report: NodeReport, uptime: float, window_seconds: float = 0.0) -> NodeReport:
        """Return the report. Of what claims an idle time that begins before its last work the use is unknown.

        `window_seconds` is how far back a verdict of a window looks: a machine that it calls busy may have worked then.
        """
        verdict = report.verdict
        if verdict is None:
            return report
        activity = verdict.activity
        if activity.state is _BUSY:
            heard = uptime - verdict.age_seconds - verdict.interval_seconds  # with all that it may be late
            if report.windowed:  # what an earlier window without work covers was none: the work came after it
                heard = max(heard - window_seconds, self._rested.get(node_id, -math.inf))
            self._seen[node_id] = max(self._seen.get(node_id, -math.inf), heard)
            return self._hold_parts(node_id, report, verdict, uptime)
        if report.windowed and activity.state is not _UNKNOWN:
            self._rested[node_id] = uptime - verdict.age_seconds
        left = verdict.without_lost
        # Of a machine that has lost a GPU only what is left of it claims anything.
        claim = left if activity.state is _UNKNOWN else activity
        unknown = None if claim is None else _contradict_claim(claim, self._seen.get(node_id), uptime)
        if unknown is None:
            return self._hold_parts(node_id, report, verdict, uptime)
        pods = tuple(replace(pod, activity=unknown) for pod in verdict.pods)
        others = verdict.other_pods and tuple(replace(pod, activity=unknown) for pod in verdict.other_pods)
        held = replace(verdict, activity=unknown, without_lost=left and unknown, pods=pods, other_pods=others)
        return replace(report, verdict=held)

    def _hold_parts(self, node_id: str, report: NodeReport, verdict: NodeVerdict, uptime: float) -> NodeReport:
        """The same of each GPU and each pod, whatever the machine is."""
        pods = (*verdict.pods, *(verdict.other_pods or ()))
        at_work = [gpu.uuid for gpu in verdict.gpus if gpu.activity.state is _BUSY]
        if len(at_work) == len(verdict.gpus) > 0:  # most that work
            at_work = [_ALL_GPUS]
        at_work += [pod.uid for pod in pods if pod.activity.state is _BUSY]
        if at_work and not report.windowed:
            heard = uptime - verdict.age_seconds - verdict.interval_seconds
            self._remember_parts(node_id, at_work, heard)
        known = self._parts.get(node_id)
        if known is None or (at_work == [_ALL_GPUS] and not pods):
            return report
        all_gpus = known.get(_ALL_GPUS, -math.inf)
        doubts = _doubts(((gpu.uuid, gpu.activity) for gpu in verdict.gpus), known, all_gpus, uptime)
        doubts |= _doubts(((pod.uid, pod.activity) for pod in pods), known, -math.inf, uptime)
        if not doubts:
            return report
        held = replace(
            verdict,
            gpus=tuple(_of_gpu(gpu, doubts) for gpu in verdict.gpus),
            pods=tuple(_of_pod(pod, doubts) for pod in verdict.pods),
            other_pods=verdict.other_pods and tuple(_of_pod(pod, doubts) for pod in verdict.other_pods),
        )
        return replace(report, verdict=held)

    def _remember_parts(self, node_id: str, names: Iterable[str], heard: float) -> None:
        """These were at work then; of very many the oldest are forgotten."""
        parts = self._parts.setdefault(node_id, {})
        parts.update(dict.fromkeys(names, heard))
        if len(parts) > _MOST_PARTS:
            for name in sorted(parts, key=lambda each: parts[each])[: len(parts) - _MOST_PARTS]:
                del parts[name]


def _doubts(
    claims: Iterable[tuple[str, Activity]], known: Mapping[str, float], at_least: float, uptime: float
) -> dict[str, Activity]:
    """What is unknown instead, by name."""
    found: dict[str, Activity] = {}
    for name, activity in claims:
        if activity.state is not _BUSY:
            unknown = _contradict_claim(activity, max(known.get(name, -math.inf), at_least), uptime)
            if unknown is not None:
                found[name] = unknown
    return found


def _of_gpu(gpu: GpuVerdict, doubts: Mapping[str, Activity]) -> GpuVerdict:
    return replace(gpu, activity=doubts[gpu.uuid]) if gpu.uuid in doubts else gpu


def _of_pod(pod: PodVerdict, doubts: Mapping[str, Activity]) -> PodVerdict:
    return replace(pod, activity=doubts[pod.uid]) if pod.uid in doubts else pod


def _contradict_claim(claim: Activity, worked: float | None, uptime: float) -> Activity | None:
    """What is known of it instead, where a claim begins before the last work; None: nothing speaks against it."""
    if worked is None or claim.state is _UNKNOWN:
        return None
    ago = uptime - worked
    if ago > _DAY_SECONDS or ago + _SLACK_SECONDS >= claim.held_seconds:
        return None
    return Activity(
        state=State.UNKNOWN,
        since=None,
        held_seconds=0.0,
        doubt=f"it claims to have been {claim.state.value} for {format_duration(claim.held_seconds)}, but it "
        f"was seen at work {format_duration(ago)} ago: two agents may answer for it",
    )
