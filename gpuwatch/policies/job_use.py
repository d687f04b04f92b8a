"""PURE: what Slurm's running jobs do with the GPUs that they hold, as their nodes' own agents report it.

Rules, all of them:

1. A job's GPUs on a node are those that Slurm gives it by number. The numbers are those of the driver, as with
   `AutoDetect=nvml` in gres.conf. If the agent sees work of a job on a GPU that Slurm has not given to it, or more
   or fewer GPUs than Slurm has, the numbers differ (MIG does that), and nothing of the node's jobs is known.
2. Where Slurm gives no numbers, a job's GPUs are known only if all GPUs of the node do the same: it has those that have
   done so for the shortest time.
3. A GPU that several jobs hold, one that the agent does not report, and those of a node that is unknown are unknown.
4. Idle, parked and stalled GPUs are unused once both the job and that state are an hour old. They cost their part of
   the node's price.
5. Nothing is removed, drained or cancelled for it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gpuwatch.model.activity import State
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import GpuVerdict, Node
from gpuwatch.model.slurm import SlurmJob, SlurmNode
from gpuwatch.policies.kubernetes.pod_use import TOLD_AFTER_SECONDS, WITHOUT_USE


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """A job's GPUs on one node: how many do what, and of those without use since how long at least."""

    job: SlurmJob
    node: Node
    states: Mapping[State, int]
    unused: int = 0
    held_seconds: float = 0.0
    usd_per_hour: Decimal | None = None  # of the unused ones


def uses(observation: Observation) -> Iterator[JobUse]:
    """Each job that holds GPUs on a machine of the fleet, in the order of nodes."""
    for node in observation.fleet.nodes:
        known = node.slurm
        if known is None or known.doubt is not None or not known.jobs:
            continue
        doubtful = _numbered_otherwise(node, known)
        for job in known.jobs:
            yield _use(observation, node, job, None if doubtful else _given_gpus(node, job, known.jobs))


def unused_jobs(observation: Observation) -> tuple[JobUse, ...]:
    """The jobs with GPUs that they do not use, the most expensive first."""
    found = [each for each in uses(observation) if each.unused]
    return tuple(
        sorted(found, key=lambda each: (-(each.usd_per_hour or Decimal(0)), -each.unused, each.job.id, each.node.id))
    )


def _use(observation: Observation, node: Node, job: SlurmJob, gpus: list[GpuVerdict] | None) -> JobUse:
    """Return how a job uses its GPUs (rule 4)."""
    if gpus is None:
        return JobUse(job=job, node=node, states={State.UNKNOWN: job.gpus})
    states = Counter(gpu.activity.state for gpu in gpus)
    states[State.UNKNOWN] += job.gpus - len(gpus)
    age = 0.0 if job.started_at is None else (observation.now - job.started_at).total_seconds()
    held = [min(age, gpu.activity.held_seconds) for gpu in gpus if gpu.activity.state in WITHOUT_USE]
    long = [seconds for seconds in held if seconds >= TOLD_AFTER_SECONDS]
    return JobUse(
        job=job,
        node=node,
        states={state: count for state, count in states.items() if count},
        unused=len(long),
        held_seconds=min(long, default=0.0),
        usd_per_hour=_cost(observation, node, len(long)),
    )


def _given_gpus(node: Node, job: SlurmJob, jobs: tuple[SlurmJob, ...]) -> list[GpuVerdict] | None:
    """Rules 1 to 3: its GPUs, as far as they are known; None: nothing is known about them."""
    verdict = node.verdict
    if verdict is None or node.activity.state is State.UNKNOWN:
        return None
    if job.indexes is None:
        alike = len({gpu.activity.state for gpu in verdict.gpus}) == 1
        return sorted(verdict.gpus, key=lambda gpu: gpu.activity.held_seconds)[: job.gpus] if alike else None
    holders = Counter(index for each in jobs for index in each.indexes or ())
    shown = Counter(gpu.index for gpu in verdict.gpus)
    mine = {index for index in job.indexes if holders[index] == 1 and shown[index] == 1}
    return [gpu for gpu in verdict.gpus if gpu.index in mine]


def _numbered_otherwise(node: Node, known: SlurmNode) -> bool:
    """Rule 1: whether a process of a job is on a GPU that Slurm has not given to that job, or GPUs are missing."""
    gpus = () if node.verdict is None else node.verdict.gpus
    if len(gpus) != known.gpus:
        return True
    given = {f"Slurm job {job.id}": job.indexes for job in known.jobs}
    for gpu in gpus:
        for evidence in gpu.activity.evidence:
            indexes = given.get((evidence.owner and evidence.owner.unit) or "")
            if indexes is not None and gpu.index not in indexes:
                return True
    return False


def _cost(observation: Observation, node: Node, count: int) -> Decimal | None:
    """None without a price, or where it is not known how many GPUs the node has."""
    price = observation.price(node)
    if price is None or not node.gpu_count or not count:
        return None
    return price.usd_per_hour * count / node.gpu_count
