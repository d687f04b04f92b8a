"""Longhorn's replicas on a real API server, with the chart's role: their nodes are not emptied."""

import pytest

from gpuwatch.kubernetes.cluster import ApiCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.kubernetes import node_object, replica_object
from tests.support.builders.kubernetes_kinds import longhorn_kind
from tests.support.real.agents import eventually
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.kubernetes_chart import chart_account, cluster_rules

pytestmark = pytest.mark.component("kube-apiserver")


def connected(plane: ControlPlane, token: str) -> ApiCluster:
    """The controller's client, with that account's token."""
    cluster = KubernetesSettings(kubeconfig=str(plane.kubeconfig(token)), max_silence=10.0).connect(SystemClock())
    assert isinstance(cluster, ApiCluster)
    return cluster


def data_on(cluster: ApiCluster) -> dict[str, str | None]:
    """What is said of each node's disks."""
    return {node.name: node.disk_data for node in cluster.view().nodes}


def test_a_node_with_a_replica_stays_until_longhorn_has_moved_it(plane: ControlPlane) -> None:
    """Seen at once, and asked again before a change; without the right Longhorn's own pods keep its nodes."""
    team = plane.namespace()
    plane.custom(longhorn_kind())
    plane.admin.create(node_object("gpu-1"), node_object("gpu-2"), replica_object(team, "pvc-1", "gpu-1"))
    cluster = connected(plane, chart_account(plane, [team]).token)
    blind = connected(
        plane,
        chart_account(
            plane, [team], rules=[each for each in cluster_rules() if each["apiGroups"] != ["longhorn.io"]]
        ).token,
    )
    try:
        kept = {"gpu-1": "a replica of Longhorn's volume pvc-1 is on its disk", "gpu-2": None}
        eventually(lambda: data_on(cluster) == kept, lambda: data_on(cluster))
        asked = cluster.node("gpu-1")
        assert asked is not None
        assert asked.disk_data == kept["gpu-1"]
        eventually(lambda: data_on(blind) == {"gpu-1": None, "gpu-2": None}, lambda: data_on(blind))
        plane.admin.ask(
            "DELETE", f"/apis/longhorn.io/v1beta2/namespaces/{team}/replicas/pvc-1-r-0", {"gracePeriodSeconds": 0}
        )
        eventually(lambda: data_on(cluster) == {"gpu-1": None, "gpu-2": None}, lambda: data_on(cluster))
    finally:
        cluster.close()
        blind.close()
