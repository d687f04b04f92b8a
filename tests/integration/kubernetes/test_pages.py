"""A cluster that is larger than one page of a list: no pod is lost between two pages, and none is counted twice."""

from collections import Counter

import pytest

from gpuwatch.kubernetes.client import PAGE_SIZE
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.runtime.clock import SystemClock
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.large_cluster import fill

pytestmark = pytest.mark.component("kube-apiserver")
NODES, PODS_EACH = 40, 13


def test_a_list_of_several_pages_is_whole(plane: ControlPlane) -> None:
    """Each pod is on its node, with its GPUs; a benchmark measures ten times as many."""
    assert NODES * PODS_EACH > PAGE_SIZE
    team = fill(plane, NODES, PODS_EACH)
    cluster = KubernetesSettings(kubeconfig=str(plane.kubeconfig())).connect(SystemClock())
    try:
        seen = cluster.view()
    finally:
        cluster.close()

    assert seen.trouble is None
    assert Counter(str(pod) for node in seen.nodes for pod in node.pods) == Counter(
        f"{team}/work-{node}-{number}" for node in range(NODES) for number in range(PODS_EACH)
    )
    assert {node.requested_gpus for node in seen.nodes} == {8.0}
