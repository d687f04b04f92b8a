"""Budgets of a Kubernetes namespace: what its pods request counts, used or not, and nothing is done to machines."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Observation
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import SpendBook
from gpuwatch.money.budgets.settings import Budget
from gpuwatch.money.budgets.tracker import Budgeting
from tests.support.builders.configurations import mistakes, read
from tests.support.builders.fleet import NOW
from tests.support.builders.kubernetes_views import shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_busy_node, a_round

UTC = ZoneInfo("UTC")
RULES = Metering(zone=UTC)


def a_minute(number: int) -> Observation:
    """Two machines with two GPUs each at $10 an hour; a pod of `cv` holds one GPU of the first."""
    at = NOW + timedelta(minutes=number)
    known = shown_node("gpu-1", "i-1", shown_pod("serve-0", "gpu-1", gpus=1.0, namespace="cv"), gpus=2.0)
    seen = a_round(at, replace(a_busy_node("i-1", at), kubernetes=known), a_busy_node("i-2", at))
    return replace(seen, fleet=replace(seen.fleet, cluster=shown_cluster(known)))


def test_a_namespace_is_charged_for_what_its_pods_request(tmp_path: Path) -> None:
    """A quarter of both machines' cost, in the past as now; a budget of everything counts no hour twice."""
    ledger = Ledger.open(tmp_path / "ledger.db")
    book = SpendBook(ledger)
    budgets = {"cv": Budget(namespace="cv"), "other": Budget(namespace="nlp"), "all": Budget()}
    tracker = Budgeting(ledger=ledger, budgets=budgets, zone=UTC)
    for number in range(0, 61, 5):
        book.meter(a_minute(number), RULES)
        states = {each.name: each for each in tracker.states(a_minute(number))}
    ledger.close()

    assert {name: each.spent_usd for name, each in states.items()} == {
        "cv": Decimal(5),
        "other": Decimal(0),
        "all": Decimal(20),
    }
    assert {name: each.usd_per_hour for name, each in states.items()} == {"cv": 5, "other": 0, "all": 20}
    assert str(states["cv"].scope) == "namespace cv"


def test_no_machine_is_in_the_scope_of_a_namespace() -> None:
    """What acts on machines finds none there."""
    assert not Budget(namespace="cv").scope.covers(a_busy_node("i-1", NOW))


def test_mistakes_are_named(tmp_path: Path) -> None:
    """A namespace without a cluster, and effects that a namespace cannot have."""
    file = tmp_path / "gpuwatch.yaml"
    wrong = mistakes(file, "budgets: {a: {namespace: cv, block_growth: actual, shorten_idle_timeout: forecast}}\n")

    assert "budgets.a.namespace is of a Kubernetes cluster, and no cluster is configured" in wrong
    assert "budgets.a.block_growth acts on machines, and budgets.a.namespace is of pods" in wrong
    assert "budgets.a.shorten_idle_timeout acts on machines" in wrong
    text = "kubernetes: {in_cluster: true}\nbudgets: {a: {namespace: cv, usd_per_month: 100}}\n"
    assert read(file, text).budgets["a"].namespace == "cv"
