"""Idle time held to what this process itself has heard: a machine that worked then has not been idle since before.

Each answer of an agent may be possible by itself. But two agents may answer for one machine by turns (two hosts with
one address, a load balancer before agents), and an agent may be put back to a snapshot. Where a machine claims that it
has been idle since before it was last seen at work, its use is unknown for a day from then (P2, P9).
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import NodeReport

_DAY_SECONDS = 86400.0
_SLACK_SECONDS = 120.0  # work may end, and be dated back, between two samples
_MANY = 2  # times as many as there are
_BUSY, _UNKNOWN = State.BUSY, State.UNKNOWN  # to look a member up takes longer than to compare it


@dataclass(frozen=True, slots=True)
class SeenAtWork:
    """When each machine's agent last said that it was busy: by machine, in seconds since boot."""

    _seen: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def remembered(self) -> int:
        """How many machines it knows."""
        return len(self._seen)

    def forget_others(self, ids: Collection[str]) -> None:
        """Forget all machines but these, once there are many others: a region may be missing from one list."""
        if len(self._seen) > _MANY * len(ids):
            for node_id in self._seen.keys() - set(ids):
                del self._seen[node_id]

    def hold(self, node_id: str, report: NodeReport, uptime: float) -> NodeReport:
        """Return the report. Its use is unknown if it claims an idle time that begins before its last work."""
        verdict = report.verdict
        if verdict is None:
            return report
        activity = verdict.activity
        if activity.state is _BUSY:
            # With all that it may be late.
            self._seen[node_id] = uptime - verdict.age_seconds - verdict.interval_seconds
            return report
        worked, left = self._seen.get(node_id), verdict.without_lost
        # Of a machine that has lost a GPU only what is left of it claims anything.
        claim = left if activity.state is _UNKNOWN else activity
        if worked is None or claim is None or claim.state is _UNKNOWN:
            return report
        ago = uptime - worked
        if ago > _DAY_SECONDS or ago + _SLACK_SECONDS >= claim.held_seconds:
            return report
        unknown = Activity(
            state=State.UNKNOWN,
            since=None,
            held_seconds=0.0,
            doubt=f"it claims to have been {claim.state.value} for {format_duration(claim.held_seconds)}, but it "
            f"was seen at work {format_duration(ago)} ago: two agents may answer for it",
        )
        pods = tuple(replace(pod, activity=unknown) for pod in verdict.pods)
        others = verdict.other_pods and tuple(replace(pod, activity=unknown) for pod in verdict.other_pods)
        held = replace(verdict, activity=unknown, without_lost=left and unknown, pods=pods, other_pods=others)
        return replace(report, verdict=held)
