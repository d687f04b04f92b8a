"""What the controller tells Prometheus of a Kubernetes cluster."""

from dataclasses import replace
from decimal import Decimal

from prometheus_client.parser import text_string_to_metric_families as parse

from gpuwatch.controller.metrics import ControllerMetrics
from gpuwatch.controller.round import step
from gpuwatch.model.kubernetes import ClusterView
from gpuwatch.model.usage import GPU, UNALLOCATED, Holder, Terms
from gpuwatch.money.accounting.totals import Row
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.kubernetes_views import Shown, shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_price
from tests.support.builders.workload_desk import a_workload_desk

TERMS = Terms(
    pool="default",
    owner=None,
    account=None,
    region="r",
    instance_type="t",
    capacity_type="on_demand",
    gpus=4,
    usd_per_hour=Decimal(8),
    price_as_of=None,
    price_source=None,
)
Samples = dict[tuple[str, ...], float]


def told(view: ClusterView | None, *, enrolled: bool = True) -> Samples:
    """Every `gpuwatch_kube_*` sample of a fleet of one idle machine: its name and its labels' values."""
    desk = Desk(prices={"g6.xlarge": a_price("8")})
    desk.fleet.put(replace(a_node("i-1"), name="one", enrolled=enrolled))
    metrics = ControllerMetrics("enforce", "ml", desk.clock)
    metrics.round(step(replace(desk.parts, cluster=None if view is None else Shown(view))), 0.1)
    page = metrics.page().body.decode()
    return {
        (
            sample.name.removeprefix("gpuwatch_kube_"),
            *(sample.labels[key] for key in sample.labels if key != "fleet"),
        ): (sample.value)
        for family in parse(page)
        for sample in family.samples
        if sample.name.startswith("gpuwatch_kube_")
    }


VIEW = shown_cluster(
    shown_node(
        "gpu-1",
        "i-1",
        shown_pod("rests", "gpu-1", gpus=1.0),
        shown_pod("driver", "gpu-1", gpus=1.0, system=True),
        gpus=2.0,
        unschedulable=True,
    ),
    shown_node("gpu-2", "i-elsewhere"),
    pending=(shown_pod("fits", gpus=1.0), shown_pod("too-large", gpus=8.0)),
    silent_seconds=3.0,
)


def test_requested_and_used_gpus_stand_side_by_side() -> None:
    """What is offered, requested, waited for and held without use; the system's own pods apart."""
    assert told(VIEW) == {
        ("up", "k"): 1.0,
        ("silence_seconds", "k"): 3.0,
        ("unjoined_nodes", "k"): 1.0,
        ("allocatable_gpus", "k", "default"): 2.0,
        ("requested_gpus", "k", "default"): 1.0,
        ("pending_gpus", "k", "default"): 1.0,
        ("pending_gpus", "k", ""): 8.0,
        ("cordoned_nodes", "k", "default"): 1.0,
        ("gpu_pods", "idle", "k", "team", "default"): 1.0,
        ("gpu_pods_usd_per_hour", "idle", "k", "team", "default"): 4.0,
        ("unused_pod_seconds", "idle", "Deployment", "k", "team", "i-1", "ann", "rests", "default", "serve"): 7200.0,
        ("unused_pod_usd_per_hour", "idle", "Deployment", "k", "team", "i-1", "ann", "rests", "default", "serve"): 4.0,
    }


def test_the_money_of_a_machine_that_is_not_ours_has_no_series() -> None:
    """Its pods are seen; what they cost is in no sum (`cost.scope`)."""
    found = told(VIEW, enrolled=False)

    assert any(name == "unused_pod_seconds" for name, *_ in found)
    assert not [name for name, *_ in found if "usd" in name]


def test_a_cluster_in_trouble_is_down_and_its_pods_are_unknown() -> None:
    """Nobody is told that a pod rests because an API server is silent."""
    found = told(replace(VIEW, trouble="It is silent.", silent_seconds=60.0))

    assert found["up", "k"] == 0.0
    assert found["silence_seconds", "k"] == 60.0
    assert found["gpu_pods", "unknown", "k", "team", "default"] == 1.0
    assert not [each for each in found if each[0].startswith("unused")]
    assert ("pending_gpus", "k", "default") not in found


def test_what_was_billed_is_counted_by_who_requests_it() -> None:
    """Seconds and dollars by namespace and use; machines are counted apart from them, so that no dollar is twice."""
    holders = (Holder("k", "team", "Deployment", "serve"), Holder("k", UNALLOCATED))
    uses = [7_200_000, 0, 0, 0, 0, 0, 0]
    rows = [Row(terms=TERMS, amounts=[0] * GPU + uses + [0, 0], holder=holder) for holder in (None, *holders)]
    metrics = ControllerMetrics("enforce", "ml", ManualClock())
    metrics.count_billed(rows)
    found = {
        (sample.name, sample.labels.get("namespace")): sample.value
        for family in parse(metrics.page().body.decode())
        for sample in family.samples
        if "_billed_" in sample.name
    }

    assert found == {
        ("gpuwatch_billed_gpu_seconds_total", None): 7200.0,
        ("gpuwatch_billed_usd_total", None): 4.0,
        ("gpuwatch_kube_billed_gpu_seconds_total", "team"): 7200.0,
        ("gpuwatch_kube_billed_usd_total", "team"): 4.0,
        ("gpuwatch_kube_billed_gpu_seconds_total", UNALLOCATED): 7200.0,
        ("gpuwatch_kube_billed_usd_total", UNALLOCATED): 4.0,
    }


def test_without_a_cluster_there_is_no_series() -> None:
    """The families alone are declared."""
    assert told(None) == {}


def of_workloads(metrics: ControllerMetrics) -> Samples:
    """What is told of notices and ends, by name and labels."""
    return {
        (
            sample.name.removeprefix("gpuwatch_kube_"),
            *(sample.labels[key] for key in sorted(sample.labels)),
        ): sample.value
        for family in parse(metrics.page().body.decode())
        for sample in family.samples
        if sample.name.startswith(("gpuwatch_kube_noticed", "gpuwatch_kube_re")) and "requested" not in sample.name
    }


def test_notices_and_ends_of_workloads_are_counted() -> None:
    """A notice while it is in force; an end once, with the GPUs that it gave back and what their hour costs."""
    desk = a_workload_desk()
    metrics = ControllerMetrics("enforce", "ml", desk.clock)
    metrics.round(desk.round(), 0.1)
    metrics.round(desk.round(), 0.1)
    told_before = of_workloads(metrics)
    for _ in range(14):
        metrics.round(desk.round(), 0.1)

    assert told_before == {("noticed_workloads", "ml", "prod", "default"): 1.0}
    assert of_workloads(metrics) == {
        ("released_workloads_total", "ml", "stop", "prod", "default"): 1.0,
        ("released_gpus_total", "ml", "prod", "default"): 1.0,
        ("released_usd_per_hour_total", "ml", "prod", "default"): 4.1,
    }


def test_what_the_guard_refuses_is_there_by_rule() -> None:
    """For an alert on what is refused for hours."""
    desk = a_workload_desk()
    desk.enforce = False
    metrics = ControllerMetrics("observe", "ml", desk.clock)
    metrics.round(desk.round(), 0.1)

    assert of_workloads(metrics) == {("refused_workloads", "ml", "prod", "default", "observe_only"): 1.0}
