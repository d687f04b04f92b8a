"""`gpuwatch status` with a Kubernetes cluster: its line, and a table of the pods that hold GPUs without use."""

from dataclasses import replace

from gpuwatch.cli.status_pods import cluster_lines, pods_table
from gpuwatch.controller.node_row import nodes_page
from gpuwatch.controller.round import step
from gpuwatch.model.kubernetes import ClusterView
from gpuwatch.model.nodes_page import NodesPage
from tests.support.builders.fleet import Desk, a_node
from tests.support.builders.kubernetes_views import Shown, shown_cluster, shown_node, shown_pod
from tests.support.builders.money import a_price

VIEW = shown_cluster(
    shown_node("gpu-1", "i-1", shown_pod("rests", "gpu-1", gpus=1.0), gpus=1.0),
    pending=(shown_pod("waits", gpus=2.0),),
)


def a_page(view: ClusterView | None) -> NodesPage:
    """Of a fleet of one idle machine."""
    desk = Desk(prices={"g6.xlarge": a_price("8")})
    desk.fleet.put(replace(a_node("i-1"), name="one"))
    done = step(replace(desk.parts, cluster=None if view is None else Shown(view)), act=False)
    return nodes_page(done, desk.rulebook)


def test_requested_and_used_stand_side_by_side() -> None:
    """The GPUs of the cluster in one line, and below it who holds them without use."""
    page = a_page(VIEW)

    assert list(cluster_lines(page)) == ["Kubernetes k: 1 node, 1 of 1 GPUs are requested, pending pods want 2 more."]
    assert [line.plain.rstrip() for line in pods_table(page, None)] == [
        "Pods that hold GPUs without use:",
        "POD         WORKLOAD               OWNER  NODE  GPUS  USE   FOR   $/H",
        "team/rests  Deployment team/serve  ann    i-1      1  idle   2h  8.00",
    ]


def test_what_is_wrong_with_a_cluster_is_said() -> None:
    """Its trouble, and what does not fit together."""
    view = replace(VIEW, trouble="Its API server is silent.", notes=("The node x fits 2 machines.",))
    page = a_page(view)

    assert list(cluster_lines(page))[1:] == [
        "None of its nodes is stopped: Its API server is silent.",
        "The node x fits 2 machines.",
    ]
    assert pods_table(page, None) == []


def test_without_a_cluster_nothing_is_said() -> None:
    """A fleet without Kubernetes looks as ever."""
    page = a_page(None)

    assert (list(cluster_lines(page)), pods_table(page, 80), page.kubernetes, page.pods) == ([], [], None, ())
