"""PURE: hosts of one's own that are started for work that waits: jobs of Slurm, and pods of Kubernetes.

Rules, all of them:

1. Only hosts that `policies.starts` names are started: a host that its owner switched off is none of them.
   `model.slurm_wake` says which jobs would begin on one, and `policies.scaling.pending` which pods.
2. It is started by its name, besides what policies want. The pool's ceiling holds, and all limits of the guard.
3. Slurm that powers its nodes itself is left to that. Pods wake nothing here in a pool that scales by them already.
4. A host that was started for a job, had no work and was switched off again while the job still waits was started in
   vain. It rests, and so does the job on all hosts: an hour, doubled each time in a row, a day at most. A host that is
   on, and still has no work after `lasting.SILENT`, is followed by another once; from the second on it counts as well.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Protocol

from gpuwatch.model.decision import Observation, Reason, Step, Verb
from gpuwatch.model.duration import backoff_seconds, format_time
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.life import WOKEN_FOR, End, Life
from gpuwatch.policies import machines
from gpuwatch.policies.kubernetes import pending_pods
from gpuwatch.policies.lasting import SILENT
from gpuwatch.policies.scaling import ScalingRules, pending
from gpuwatch.policies.scaling.settings import PENDING
from gpuwatch.policies.sizes import Sizes
from gpuwatch.policies.starts import Startable

CODE = "wake"  # of the reason of such a start
_FIRST, _LONGEST = 3600.0, 86400.0
_CHANGE = "Once that work runs, or waits no more."


class Rules(Protocol):
    """What of a pool's rules matters here."""

    @property
    def start(self) -> Startable:
        """Which stopped nodes may be started for it."""
        ...

    @property
    def scaling(self) -> ScalingRules:
        """Whether it follows pods that wait."""
        ...

    @property
    def warm_up(self) -> float:
        """For how long a node may be on its way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rests:
    """Until when hosts, by their ids, and work, by its name, wake nothing (rule 4)."""

    hosts: Mapping[str, datetime] = field(default_factory=dict)
    work: Mapping[str, datetime] = field(default_factory=dict)

    def sentence(self, node_id: str, work: str) -> str | None:
        """Why a host is not started for that work; None: neither rests."""
        until = max(filter(None, (self.hosts.get(node_id), self.work.get(work))), default=None)
        what = "It was started in vain before" if node_id in self.hosts else "A host was started for it in vain"
        return None if until is None else f"{what}, so the next start may come at {format_time(until)}."


def rests_of(observation: Observation, waiting: Collection[str]) -> Rests:
    """What rests now; `waiting` is the work that waits."""
    hosts, work = defaultdict[str, list[Life]](list), defaultdict[str, list[Life]](list)
    for life in sorted(observation.lives, key=lambda each: (each.at, each.key), reverse=True):
        if WOKEN_FOR in life.asked:
            hosts[life.node_id or ""].append(life)
            work[life.asked[WOKEN_FOR]].append(life)
    return Rests(
        hosts=_rests_by_name(hosts, waiting, observation.now), work=_rests_by_name(work, waiting, observation.now)
    )


def _rests_by_name(found: Mapping[str, Sequence[Life]], waiting: Collection[str], now: datetime) -> dict[str, datetime]:
    rests: dict[str, datetime] = {}
    for name, lives in found.items():
        ended = list(_vain_lives(lives, waiting, now))
        times = _times(ended)
        if not times or (times == 1 and not any(over for _, _, over in ended)):
            continue
        rest = backoff_seconds(times, first=_FIRST, longest=_LONGEST)
        until = max(end for _, end, _ in ended) + timedelta(seconds=rest)
        if until > now:
            rests[name] = until
    return rests


def _times(ended: Iterable[tuple[datetime, datetime, bool]]) -> int:
    """How often, the newest first: hosts that ran together, as those of one job, count once."""
    count, begun = 0, datetime.max.replace(tzinfo=UTC)
    for at, end, _ in ended:
        count += end <= begun
        begun = at
    return count


def _vain_lives(
    lives: Sequence[Life], waiting: Collection[str], now: datetime
) -> Iterator[tuple[datetime, datetime, bool]]:
    """The newest starts in vain, in a row: begin, end, and whether it is over; what did not last says nothing."""
    for life in lives:
        if life.worked or life.asked[WOKEN_FOR] not in waiting:
            return
        if life.end is End.REMOVED and life.ended_at is not None:
            yield life.at, life.ended_at, True
        elif life.end is None and now - life.at >= SILENT:
            yield life.at, life.at + SILENT, False


def woken(
    observation: Observation, pool: str, rules: Rules, added: Sequence[Step], sizes: Sizes, most: int | None
) -> tuple[list[Step], list[str]]:
    """The starts of the pool that are not among those `added` already, and what the ceiling holds back, in words."""
    named = {step.node_id for step in added}
    steps = [step for step in _starts(observation, pool, rules) if step.node_id not in named]
    if most is None or not steps:
        return steps, []
    size = machines.now(observation, pool, sizes) + sizes.total(observation.fleet, added)
    found: list[Step] = []
    for step in steps:
        size += sizes.size_of_step(observation.fleet, step) or 0
        found += [step] if size <= most else []
    left = len(steps) - len(found)
    return found, [f"Work that waits wants {left} more started, the ceiling is {most}."] if left else []


def _starts(observation: Observation, pool: str, rules: Rules) -> Iterator[Step]:
    """Yield a start of each host that work waits for."""
    off = [node for node in observation.fleet.roster(pool).nodes if node.state is NodeState.STOPPED and node.owned]
    for node in off:
        known = node.slurm
        if known is not None and known.wanted_for is not None:
            yield _start(node, known.wanted_for, known.wanted_by or "")
    if (
        not off
        or observation.fleet.cluster is None
        or any(each.signal == PENDING for each in rules.scaling.metrics.values())
    ):
        return
    rests = rests_of(observation, {str(pod) for pod in pending_pods.waiting(observation.fleet, pool)})
    for node, pods in pending.woken(observation, pool, rules.warm_up, rules.start, rests):
        told = f"The pod {pods[0]}{f' and {len(pods) - 1} more' if len(pods) > 1 else ''}"
        waits = f"{told} wait{'s' * (len(pods) == 1)} for GPUs, and could run on it."
        yield _start(node, str(pods[0]), waits)


def _start(node: Node, work: str, waits: str) -> Step:
    reason = Reason(code=CODE, sentence=f"{waits} It is started for that.")
    return Step(node_id=node.id, verb=Verb.START, reason=reason, change=_CHANGE, arguments={WOKEN_FOR: work})
