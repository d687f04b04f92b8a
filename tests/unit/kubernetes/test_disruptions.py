"""Which PodDisruptionBudget would refuse an eviction, by the rules of the eviction API."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from gpuwatch.kubernetes.disruptions import BudgetFacts, budget_facts, refusal, selects
from gpuwatch.kubernetes.facts import PodFacts, pod_facts
from gpuwatch.kubernetes.objects import BudgetObject, LabelSelector, PodObject
from gpuwatch.kubernetes.settings import GPU_RESOURCES
from gpuwatch.model.kubernetes import PodPhase
from tests.support.builders.kubernetes import budget_object, pod_object


def a_budget(name: str = "serve", *, allowed: int = 0, **spec: object) -> BudgetFacts:
    """Of pods of the app `serve`; as its controller leaves it with so many evictions to give."""
    made = budget_object("team", name, app="serve", allowed=allowed)
    made["spec"] |= spec
    return budget_facts(msgspec.json.decode(json.dumps(made), type=BudgetObject))


def a_pod(app: str = "serve") -> PodFacts:
    """One that runs and is ready."""
    made = pod_object("team", "serve-0", node="gpu-1", labels={"app": app})
    found = pod_facts(msgspec.json.decode(json.dumps(made), type=PodObject), GPU_RESOURCES)
    assert found is not None
    return found


def test_a_budget_without_evictions_to_give_refuses() -> None:
    """By name, with its count; one that has some lets the pod go, and so does one of other pods."""
    assert refusal(a_pod(), [a_budget()]) == (
        "the PodDisruptionBudget team/serve allows no eviction now: 1 are healthy, and 1 have to be"
    )
    assert refusal(a_pod(), [a_budget(allowed=1)]) is None
    assert refusal(a_pod("other"), [a_budget()]) is None
    assert refusal(a_pod(), []) is None


def test_kubernetes_evicts_no_pod_with_two_budgets() -> None:
    """Whatever they allow."""
    told = refusal(a_pod(), [a_budget("a", allowed=1), a_budget("b", allowed=1)])

    assert told == "it has several PodDisruptionBudgets (a and b), and Kubernetes evicts no such pod"


def test_pods_that_are_not_healthy_go_as_their_budget_says() -> None:
    """IfHealthyBudget lets them go while enough others are healthy, AlwaysAllow always."""
    sick = replace(a_pod(), ready=False)
    short = replace(a_budget(), healthy=0)

    assert refusal(sick, [a_budget()]) is None
    assert refusal(sick, [short]) is not None
    assert refusal(sick, [replace(short, unhealthy_may_go=True)]) is None
    assert a_budget(unhealthyPodEvictionPolicy="AlwaysAllow").unhealthy_may_go
    assert refusal(replace(a_pod(), phase=PodPhase.PENDING), [a_budget()]) is None
    assert refusal(replace(a_pod(), node=None), [a_budget()]) is None


@pytest.mark.parametrize(
    ("selector", "taken"),
    [
        (None, False),
        ({}, True),
        ({"match_labels": {"app": "serve"}}, True),
        ({"match_labels": {"app": "serve", "tier": "x"}}, False),
        ({"match_expressions": [{"key": "app", "operator": "In", "values": ["serve"]}]}, True),
        ({"match_expressions": [{"key": "app", "operator": "NotIn", "values": ["serve"]}]}, False),
        ({"match_expressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]}, True),
        ({"match_expressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"match_expressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        ({"match_expressions": [{"key": "app", "operator": "SomethingNew"}]}, False),
    ],
)
def test_a_selector_takes_what_kubernetes_says(selector: dict[str, Any] | None, *, taken: bool) -> None:
    """None takes nothing, an empty one all."""
    made = None if selector is None else msgspec.convert(_camel(selector), LabelSelector)

    assert selects(made, {"app": "serve"}) == taken


def _camel(selector: dict[str, Any]) -> dict[str, Any]:
    names = {"match_labels": "matchLabels", "match_expressions": "matchExpressions"}
    return {names[key]: value for key, value in selector.items()}
