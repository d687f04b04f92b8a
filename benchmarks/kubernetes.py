"""What a cluster of 500 GPU nodes and 5,000 pods costs a controller, on a real API server."""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator

from benchmarks.figures import Figure
from gpuwatch.controller.observe.kubernetes import with_cluster
from gpuwatch.kubernetes import ConnectedCluster
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.fleet import Fleet
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.fleet import NOW, a_node
from tests.support.kubernetes_programs import STARTED_BY_TESTS, built
from tests.support.real.kubernetes import ControlPlane, control_plane, end_control_plane
from tests.support.real.large_cluster import fill

_NODES = 500
_PODS_EACH = 10
_RUNS = 7
_PATIENCE_SECONDS = 30.0


def possible() -> bool:
    """Whether etcd and kube-apiserver are built here."""
    return all(built(name).exists() for name in STARTED_BY_TESTS)


def measure() -> Iterator[Figure]:
    """All figures."""
    plane = control_plane()
    try:
        fill(plane, _NODES, _PODS_EACH)
        yield from _measured(plane)
    finally:
        end_control_plane()


def _measured(plane: ControlPlane) -> Iterator[Figure]:
    what = f"{_NODES:,} nodes, {_NODES * _PODS_EACH:,} pods"
    bare = _times(3, lambda: (plane.admin.list("Node"), plane.admin.list("Pod")))
    cluster = _connected(plane)
    first = _times(1, cluster.view)
    yield Figure(
        name=f"first view, {what}",
        unit="s",
        runs=first,
        floor="the same lists, and json.loads",
        floor_runs=bare,
        at_most=10.0,
    )
    yield Figure(name="a round's view", unit="ms", runs=_milliseconds(_times(_RUNS, cluster.view)), at_most=500.0)
    fleet = _fleet()
    view = cluster.view()
    joins = _milliseconds(_times(_RUNS, lambda: with_cluster(fleet, view)))
    yield Figure(name=f"joined to {_NODES:,} machines", unit="ms", runs=joins, at_most=500.0)
    asked = _milliseconds(_times(_RUNS, lambda: cluster.node("gpu-1")))
    yield Figure(name="one node and its pods, asked now", unit="ms", runs=asked)
    yield Figure(
        name="a cordon by somebody else, until it is seen", unit="ms", runs=_milliseconds(_seen(plane, cluster))
    )
    cluster.close()
    yield Figure(name=f"memory of the watches, {what}", unit="MiB", runs=[_memory_mib(plane)])


def _connected(plane: ControlPlane) -> ConnectedCluster:
    return KubernetesSettings(kubeconfig=str(plane.kubeconfig())).connect(SystemClock())


def _fleet() -> Fleet:
    """The machines that the nodes are."""
    machines = (a_node(id=f"i-{number:017x}", cloud="aws", zone="us-east-1a") for number in range(_NODES))
    return Fleet(observed_at=NOW, nodes=tuple(machines))


def _seen(plane: ControlPlane, cluster: ConnectedCluster) -> list[float]:
    """How long after the API server took a change the watch shows it."""
    runs = []
    for number in range(_RUNS):
        name = f"gpu-{number}"
        plane.admin.patch("Node", name, {"spec": {"unschedulable": True}})
        began = time.perf_counter()
        while not any(node.name == name and node.unschedulable for node in cluster.view().nodes):
            if time.perf_counter() - began > _PATIENCE_SECONDS:
                raise TimeoutError(name)
        runs.append(time.perf_counter() - began)
    return runs


def _times(count: int, work: Callable[[], object]) -> list[float]:
    runs = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        runs.append(time.perf_counter() - began)
    return runs


def _milliseconds(runs: list[float]) -> list[float]:
    return [run * 1e3 for run in runs]


def _memory_mib(plane: ControlPlane) -> float:
    """What a cluster's own objects take, by Python's own account."""
    gc.collect()
    tracemalloc.start()
    cluster = _connected(plane)
    cluster.view()
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    cluster.close()
    return taken / (1 << 20)
