"""A controller over a cluster in which Alice's notebook holds a GPU without use, and may be stopped for it."""

from dataclasses import replace
from decimal import Decimal

from gpuwatch.model.activity import State
from gpuwatch.model.kubernetes import Pod
from gpuwatch.model.money import Price
from gpuwatch.policies.kubernetes.idle_pods_settings import IdlePodRules
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.clusters import ClusterDesk, a_cluster_desk
from tests.support.builders.fleet import NOW, RULES
from tests.support.builders.workloads import its_pod

PODS = IdlePodRules(action="as-annotated", timeout=3600.0, grace_period=600.0, rest=1800.0)
PRICE = Price(usd_per_hour=Decimal("4.10"), source="test", as_of=NOW.date())


def a_workload_desk(*pods: Pod, state: State = State.IDLE, rules: IdlePodRules = PODS) -> ClusterDesk:
    """A machine that only reports, without use for two hours, with these pods: Alice's alone unless told otherwise."""
    pool = replace(RULES, idle=replace(RULES.idle, action="report"), kubernetes=KubernetesRules(pods=rules))
    desk = a_cluster_desk(pool, *(pods or (its_pod(),)), state=state)
    desk.prices = {"g6.xlarge": PRICE}
    return desk
