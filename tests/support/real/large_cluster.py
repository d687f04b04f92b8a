"""Many nodes and pods on a real API server, as fast as it takes them: for benchmarks, and lists of several pages."""

from collections.abc import Iterator

from tests.support.builders.kubernetes import node_object, pod_object, replica_set_object
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.kubernetes_api import Object

_GPUS = 8
_HOLDING = 4  # pods of each node that hold two GPUs; all others hold none
_OWNERS = 20


def fill(plane: ControlPlane, nodes: int, pods_each: int) -> str:
    """GPU nodes with as many pods each, which ReplicaSets own; gives their namespace."""
    team = plane.namespace()
    owners = plane.admin.create(*(replica_set_object(team, f"serve-{number}") for number in range(_OWNERS)))
    plane.admin.create_many(
        node_object(f"gpu-{number}", gpus=_GPUS, provider_id=f"aws:///us-east-1a/i-{number:017x}")
        for number in range(nodes)
    )
    plane.admin.create_many(_pods(team, owners, nodes, pods_each))
    return team


def _pods(team: str, owners: list[Object], nodes: int, pods_each: int) -> Iterator[Object]:
    for node in range(nodes):
        for number in range(pods_each):
            owner = owners[(node + number) % len(owners)]
            gpus = 2 if number < _HOLDING else 0
            made = pod_object(team, f"work-{node}-{number}", node=f"gpu-{node}", gpus=gpus, owner=owner)
            made.pop("status")  # half of the calls; a pod that nobody has told of yet is pending on its node
            yield made
