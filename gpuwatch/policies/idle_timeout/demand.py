"""PURE: whether work waits for a pool, and other numbers that tell how soon its nodes are needed.

Rules, all of them:

1. Work waits where a number of the pool's `idle.demand` is above zero, or a total that the pool scales by (`per_node`)
   is above what its nodes should have.
2. Work waits where a pod that wants GPUs is pending and fits a node of the pool (`policies.kubernetes.pending_pods`).
3. Work does not wait where every one of them is known and none says so. What could not be measured says neither.
4. GPUs are free for the next work on nodes that have some already, by what Kubernetes' pods request or Slurm's jobs
   hold.
"""

import math

from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.measurement import MetricQuery, MetricValue
from gpuwatch.policies import machines
from gpuwatch.policies.idle_settings import IdleRules
from gpuwatch.policies.idle_timeout import facts
from gpuwatch.policies.idle_timeout.hazard import HINT
from gpuwatch.policies.kubernetes import pending_pods
from gpuwatch.policies.scaling import ScalingRules
from gpuwatch.policies.sizes import NODES, Sizes

DEMAND, _HINT = "idle.demand.", "idle.hints."


def queries(pool: str, rules: IdleRules) -> tuple[MetricQuery, ...]:
    """What has to be measured for a pool besides what it scales by."""
    return tuple(
        MetricQuery(pool=pool, name=prefix + name, expression=expression)
        for prefix, asked in ((DEMAND, rules.demand), (_HINT, rules.hints))
        for name, expression in sorted(asked.items())
    )


def demand_of(
    observation: Observation, pool: str, rules: IdleRules, scaling: ScalingRules, sizes: Sizes = NODES
) -> bool | None:
    """Whether work waits for the pool in this round; None: not known, or the pool has no such number."""
    limits = [(DEMAND + name, 0.0) for name in rules.demand]
    totals = [
        (name, each.target) for name, each in scaling.metrics.items() if each.per_node and each.target is not None
    ]
    if totals:
        count = machines.now(observation, pool, sizes)
        limits += [(name, target * count) for name, target in totals]
    above = {_above(observation.measure(pool, name), limit) for name, limit in limits}
    if pending_pods.is_demand_known(observation.fleet, pool):
        above.add(bool(pending_pods.waiting(observation.fleet, pool)))
    return True if True in above else None if None in above or not above else False


def hints_of(observation: Observation, pool: str, rules: IdleRules) -> dict[str, float]:
    """The pool's numbers of work that waits, its hints, and the scheduler's own; what is not known is left out."""
    names = {DEMAND + name: name for name in rules.demand} | {_HINT + name: name for name in rules.hints}
    found = {name: observation.measure(pool, key) for key, name in names.items()}
    hints = {
        f"{HINT}{name}": facts.count(each.value)
        for name, each in found.items()
        if each is not None and each.doubt is None and each.value is not None and math.isfinite(each.value)
    }
    if pending_pods.is_demand_known(observation.fleet, pool):
        gpus = sum(pod.gpus for pod in pending_pods.waiting(observation.fleet, pool))
        hints.setdefault(facts.PENDING_GPUS, facts.count(gpus))
    free = free_gpus(observation.fleet, pool)
    return hints if free is None else {facts.FREE_GPUS: facts.count(free)} | hints


def free_gpus(fleet: Fleet, pool: str) -> float | None:
    """How many GPUs rule 4 counts; None: no scheduler shows them."""
    nodes = fleet.roster(pool).nodes
    found: list[tuple[float, float]] = []  # of each node: all, and held
    if pending_pods.is_demand_known(fleet, pool):
        kube = [node.kubernetes for node in nodes if node.kubernetes is not None]
        found += [(each.gpus, each.requested_gpus) for each in kube if each.gpus is not None]
    elif fleet.slurm is not None and fleet.slurm.sees_jobs and pool in fleet.slurm.pools:
        slurm = [node.slurm for node in nodes if node.slurm is not None and node.slurm.doubt is None]
        found += [(each.gpus, sum(job.gpus for job in each.jobs)) for each in slurm if each.gpus is not None]
    return sum(max(0.0, gpus - held) for gpus, held in found if held > 0) if found else None


def _above(measure: MetricValue | None, limit: float) -> bool | None:
    """Whether a number is above its limit; one that is not, and of which a part is missing, is not known."""
    if measure is None or measure.doubt is not None or measure.value is None or not math.isfinite(measure.value):
        return None
    partial = measure.samples is not None and measure.samples < (measure.expected or 1)
    return True if measure.value > limit else None if partial else False
