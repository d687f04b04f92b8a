"""A cluster of which one object is not well, read from JSON by the product's own reader, and what lives beside it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from zoneinfo import ZoneInfo

from gpuwatch.kubernetes.calls import CLAIMS, DISRUPTION_BUDGETS, NAMESPACES, NODES, PODS, VOLUMES
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.model.kubernetes import IDLE_ACTION, OWNER, ClusterView
from gpuwatch.money.accounting.metering import Metering
from gpuwatch.money.accounting.store import Meter
from gpuwatch.policies.kubernetes.settings import KubernetesRules
from tests.support.builders.clusters import ClusterDesk
from tests.support.builders.fleet import RULES, a_node
from tests.support.builders.kubernetes import (
    Object,
    budget_object,
    deployment_object,
    node_object,
    pod_object,
    replica_set_object,
)
from tests.support.builders.sick_parts import NEIGHBOURS, ROUNDS, SECONDS, SICK, others
from tests.support.builders.workload_desk import PODS as IDLE_PODS
from tests.support.builders.workload_desk import PRICE
from tests.support.fakes.cluster import FakeCluster
from tests.support.fakes.listed_server import view_of

REPLICA_SETS, DEPLOYMENTS = "/apis/apps/v1/replicasets", "/apis/apps/v1/deployments"
HELD, EMPTY = "i-held", "i-empty"  # a machine with a pod that holds its GPU without use, and one without pods
OURS, THEIRS = "team-a", "team-b"  # namespaces: of the pods that are well, and of the one that is not
RULES_IN_CLUSTER = replace(RULES, kubernetes=KubernetesRules(node_owner="gpuwatch", pods=IDLE_PODS))
_METERING = Metering(zone=ZoneInfo("UTC"))

Path = tuple[str | int, ...]


def _registered(made: Object, uid: str) -> Object:
    """The object as the API server has it."""
    told = {"uid": uid, "resourceVersion": "7", "creationTimestamp": "2026-02-28T12:00:00Z"}
    return {**made, "metadata": {**made["metadata"], **told}}


def _claim(namespace: str, name: str, volume: str) -> Object:
    """A claim on a network disk."""
    meta = {"name": name, "namespace": namespace}
    spec = {"volumeName": volume, "accessModes": ["ReadWriteOnce"]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": meta,
        "spec": spec,
        "status": {"phase": "Bound"},
    }


def _volume(namespace: str, claim: str, name: str) -> Object:
    """That disk, which any machine of its zone can mount."""
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    spec = {
        "csi": {"driver": "ebs.csi.aws.com"},
        "claimRef": {"namespace": namespace, "name": claim},
        "persistentVolumeReclaimPolicy": "Delete",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"phase": "Bound"},
    }


def _objects(namespace: str, pod: str, node: str) -> dict[str, Object]:
    """A Deployment with one pod on that node, and all that stands above it, by the path of its list."""
    may_end = {IDLE_ACTION: "scale-to-zero", OWNER: f"owner of {namespace}"}
    deployment = _registered(deployment_object(namespace, "serve", annotations=may_end), f"uid-{namespace}-deployment")
    replicas = _registered(replica_set_object(namespace, "serve-1", owner=deployment), f"uid-{namespace}-replicas")
    made = pod_object(namespace, pod, node=node, gpus=1, owner=replicas, labels={"app": "serve"}, annotations=may_end)
    made["spec"] |= {"tolerations": [{"key": "gpu", "operator": "Exists"}], "nodeSelector": {"zone": "a"}}
    claim, volume = f"{namespace}-data", f"pv-{namespace}"
    made["spec"]["volumes"] = [
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": claim}},
    ]
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "annotations": {OWNER: "team"}}}
    return {
        PODS: _registered(made, f"uid-{namespace}-pod"),
        REPLICA_SETS: replicas,
        DEPLOYMENTS: deployment,
        NAMESPACES: _registered(home, f"uid-{namespace}"),
        NODES: _registered(node_object(node, gpus=1, taints=[{"key": "gpu", "effect": "NoSchedule"}]), f"uid-{node}"),
        CLAIMS: _registered(_claim(namespace, claim, volume), f"uid-{claim}"),
        VOLUMES: _registered(_volume(namespace, claim, volume), f"uid-{volume}"),
        DISRUPTION_BUDGETS: _registered(
            budget_object(namespace, "budget", app="serve", allowed=1), f"uid-{namespace}-budget"
        ),
    }


WELL, SICK_ONES = _objects(OURS, "serve-0", HELD), _objects(THEIRS, "sick-0", SICK)


def json_places(value: Any, path: Path = ()) -> Iterator[Path]:  # noqa: ANN401  as JSON has it
    """Every place of a JSON value, its parts' and its own."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from json_places(part, (*path, name))


def with_json(value: Any, path: Path, by: bytes) -> bytes:  # noqa: ANN401  as JSON has it
    """The JSON of a value with those bytes in that place."""
    if not path:
        return by
    if isinstance(value, dict):
        parts = [
            json.dumps(name).encode() + b":" + with_json(part, path[1:] if name == path[0] else (), by)
            if name == path[0]
            else json.dumps({name: part}).encode()[1:-1]
            for name, part in value.items()
        ]
        return b"{" + b",".join(parts) + b"}"
    parts = [
        with_json(part, path[1:], by) if place == path[0] else json.dumps(part).encode()
        for place, part in enumerate(value)
    ]
    return b"[" + b",".join(parts) + b"]"


@dataclass(slots=True)
class ReadCluster(FakeCluster):
    """It begins with what gpuwatch reads of the objects of an API server, and lives on from there."""

    begins: ClusterView | None = None

    def view(self) -> ClusterView:
        """As read, with what became of it since."""
        assert self.begins is not None
        shown = FakeCluster.view(self)
        return replace(self.begins, nodes=shown.nodes)


@dataclass(slots=True)
class ClusterWorld:
    """Machines in no cluster, two in the cluster that are well, and the one on which the sick object stands."""

    desk: ClusterDesk
    meter: Meter = field(init=False)

    def __post_init__(self) -> None:
        """With the books of its ledger."""
        assert self.desk.ledger.lead()
        self.meter = Meter(self.desk.ledger, _METERING)

    @classmethod
    def of(cls, view: ClusterView) -> "ClusterWorld":
        """Over what was read."""
        pools = {"default": RULES, "training": RULES, "cluster": RULES_IN_CLUSTER}
        desk = ClusterDesk(pools=pools, prices={"g6.xlarge": PRICE})
        for number, (name, state) in enumerate(NEIGHBOURS.items()):
            desk.fleet.put(a_node(name, state, pool="default" if number % 2 else "training"))
        for name in (HELD, EMPTY):
            desk.fleet.put(_with_pod(a_node(name, pool="cluster"), f"{OURS}/serve-0" if name == HELD else None))
        desk.fleet.put(_with_pod(a_node(SICK, pool="cluster", protected="its owner keeps it"), f"{THEIRS}/sick-0"))
        cluster = ReadCluster(clock=desk.clock, begins=view)
        for node in view.nodes:
            cluster.put(node)
        desk.cluster = desk.fleet.cluster = cluster  # type: ignore[attr-defined]  # a ClusterFleet
        return cls(desk)

    def rounds(self) -> list[object]:
        """What is decided, done and billed of all that is well, round by round."""
        return [self._round() for _ in range(ROUNDS)]

    def _round(self) -> object:
        done = self.desk.round(SECONDS)
        billed = self.meter(done.observation)
        held = [(row.holder, row.amounts) for row in billed if row.holder is not None and row.holder.namespace == OURS]
        return others(done, is_well), sorted(map(repr, held))


def _with_pod(node: Node, pod: str | None) -> Node:
    """The machine, whose agent names the pod that was given its GPU."""
    verdict = node.verdict
    assert verdict is not None
    gpus = tuple(replace(gpu, pods=() if pod is None else (pod,)) for gpu in verdict.gpus)
    return replace(node, signal=NodeReport(verdict=replace(verdict, gpus=gpus)))


def is_well(node_id: str) -> bool:
    """Whether it is a machine, or a workload, that has nothing to do with the sick object."""
    return node_id in {*NEIGHBOURS, HELD, EMPTY} or node_id.startswith(f"kube:prod/{OURS}/")


def items(spoiled: Mapping[str, bytes | None] | None = None) -> dict[str, list[bytes]]:
    """The objects of the API server; `spoiled` are those in the place of the sick one's, None for none."""
    given = spoiled or {}
    empty = _registered(node_object(EMPTY, gpus=1), f"uid-{EMPTY}")
    made = {path: [json.dumps(each).encode()] for path, each in WELL.items()}
    made[NODES].append(json.dumps(empty).encode())
    for path, each in SICK_ONES.items():
        item = given.get(path, json.dumps(each).encode())
        made[path] += [] if item is None else [item]
    return made


def read(spoiled: Mapping[str, bytes | None] | None = None) -> ClusterView:
    """What gpuwatch reads of all that."""
    return view_of(items(spoiled))
