"""Which PodDisruptionBudget would refuse an eviction now. For people alone: a drain asks the API server itself.

A budget's own controller counts how many more of its pods may go; that count is some seconds old. Rules:
https://kubernetes.io/docs/tasks/run-application/configure-pdb/.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.kubernetes.facts import PodFacts, version_of
from gpuwatch.kubernetes.objects import BudgetObject, BudgetStatus, LabelSelector, Term
from gpuwatch.model.kubernetes import PodPhase

_ALWAYS = "AlwaysAllow"  # of pods that are not healthy


@dataclass(frozen=True, slots=True)
class BudgetFacts:
    """Of one budget: the pods that it is of, and whether one more of them may go. `healthy` of `needed` are healthy."""

    namespace: str
    name: str
    uid: str
    version: int
    selector: LabelSelector | None
    allowed: int
    healthy: int
    needed: int
    unhealthy_may_go: bool

    def refuses(self, pod: PodFacts) -> str | None:
        """Why it would refuse the eviction of a pod of its own now, as a clause."""
        if self.allowed > 0 or pod.phase is not PodPhase.RUNNING:
            return None
        if not pod.ready and (self.unhealthy_may_go or self.healthy >= self.needed > 0):
            return None
        return (
            f"the PodDisruptionBudget {self.namespace}/{self.name} allows no eviction now: {self.healthy} are healthy, "
            f"and {self.needed} have to be"
        )


def budget_facts(budget: BudgetObject) -> BudgetFacts:
    """Of a budget; as long as its controller has not counted, it allows no eviction."""
    meta, spec, status = budget.metadata, budget.spec, budget.status or BudgetStatus()
    return BudgetFacts(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=version_of(meta),
        selector=None if spec is None else spec.selector,
        allowed=status.disruptions_allowed,
        healthy=status.current_healthy,
        needed=status.desired_healthy,
        unhealthy_may_go=spec is not None and spec.unhealthy_pod_eviction_policy == _ALWAYS,
    )


def refusal(pod: PodFacts, budgets: Sequence[BudgetFacts]) -> str | None:
    """Why the API server would refuse to evict a pod now, as a clause; `budgets` are those of its namespace."""
    if pod.node is None or not budgets:
        return None
    its = [each for each in budgets if selects(each.selector, pod.labels)]
    if len(its) > 1 and pod.phase is PodPhase.RUNNING:
        names = " and ".join(sorted(each.name for each in its)[:2])
        return f"it has several PodDisruptionBudgets ({names}), and Kubernetes evicts no such pod"
    return next((why for each in its if (why := each.refuses(pod)) is not None), None)


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector takes these labels: none takes nothing, an empty one everything."""
    if selector is None:
        return False
    exact = all(labels.get(key) == value for key, value in (selector.match_labels or {}).items())
    return exact and all(_term_matches(each, labels) for each in selector.match_expressions or ())


def _term_matches(term: Term, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(term.key), term.values or ()
    met = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return met.get(term.operator, False)
