"""PURE: pods that are here and have no container yet: their image is pulled, or what they need is made.

The kubelet gives a pod a sandbox (a process called `pause`) before its first container. For its first hour a pod with
nothing but that is doubt; for longer (an image that does not exist) it occupies the node. The cluster's own pods are
left out. Some runtimes make no such process (CRI-O without infra containers); there nothing is seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuwatch.agent.evidence.base import Origin, make_finding
from gpuwatch.agent.processes.kinds import OF_CLUSTER
from gpuwatch.agent.processes.process import Process, ProcessView, owner_of
from gpuwatch.model.activity import Evidence, State

SANDBOX = "pause"
_YOUNG_SECONDS = 3600.0
_DEAD = frozenset({"Z", "X"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A pod without a container, by its sandbox; `is_young` is whether that was seen first less than an hour ago."""

    sandbox: Process
    is_young: bool


class Sandboxes:
    """Remembers since when each pod has waited; times are of the monotonic clock."""

    def __init__(self) -> None:
        """No pod waits yet."""
        self._since: dict[str, float] = {}

    def judge(self, signal: Origin, rest: Evidence, view: ProcessView) -> Evidence:
        """What `rest` says, or that a pod waits, whichever keeps the node more."""
        waits = self.newest_waiting(view, view.monotonic_seconds)
        if waits is None or (rest.says is not State.IDLE and not waits.is_young):
            return rest
        says, note = State.UNKNOWN if waits.is_young else State.OCCUPIED, "a pod waits for its first container"
        return make_finding(signal, says, note, owner=owner_of(waits.sandbox, None))

    def newest_waiting(self, view: ProcessView, at: float) -> Waiting | None:
        """The pod that waits for the shortest time; None: no pod waits."""
        alone = lone_sandboxes(view.processes)
        self._since = {uid: self._since.get(uid, at) for uid in alone}
        uid = max(alone, key=lambda each: self._since[each], default=None)
        if uid is None:
            return None
        return Waiting(sandbox=alone[uid], is_young=at - self._since[uid] < _YOUNG_SECONDS)


def lone_sandboxes(processes: Mapping[int, Process]) -> dict[str, Process]:
    """The sandboxes of pods that have nothing else, by the pods' uids."""
    found, others = dict[str, Process](), set[str]()
    for each in processes.values():
        uid = each.placement.pod_uid
        if uid is None or each.state in _DEAD:
            continue
        if each.name == SANDBOX and each.rule != OF_CLUSTER:
            found[uid] = each
        else:
            others.add(uid)
    return {uid: each for uid, each in found.items() if uid not in others}
