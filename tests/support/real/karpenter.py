"""Karpenter's own controller with its provider for KWOK: what it launches is a node object, and no machine.

`kubernetes_programs.py karpenter-kwok` builds it once. It needs the controllers of `kubernetes_controllers.py`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.builders.kubernetes import GPU
from tests.support.builders.kubernetes_kinds import project_kinds
from tests.support.kubernetes_programs import built, fetched
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.kubernetes_api import Object
from tests.support.real.kubernetes_controllers import possible, start

POOL = "gpu"
_PROGRAM = "karpenter-kwok"
_POOLS, _CLAIMS, _CLASSES = (
    "/apis/karpenter.sh/v1/nodepools",
    "/apis/karpenter.sh/v1/nodeclaims",
    "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses",
)
_MERGE = "application/merge-patch+json"
_ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
_ZONE = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]}
_TYPE = {
    "name": "g4dn.xlarge",
    "offerings": [{"Price": 0.526, "Available": True, "Requirements": [_ON_DEMAND, _ZONE]}],
    "architecture": "amd64",
    "operatingSystems": ["linux"],
    "resources": {"cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": "20", GPU: "1"},
}
_SETTINGS = {
    "DISABLE_LEADER_ELECTION": "true",
    "KUBERNETES_MIN_VERSION": "1.19.0-0",
    "SYSTEM_NAMESPACE": "default",
    "METRICS_PORT": "0",  # any that is free
    "HEALTH_PROBE_PORT": "0",
}


def karpenter_possible() -> bool:
    """Whether all that it takes is built and fetched here."""
    return possible() and built(_PROGRAM).exists() and fetched("karpenter")


@contextmanager
def karpenter(plane: ControlPlane) -> Iterator[None]:
    """It runs, with one NodePool of nodes with a GPU each, of which it removes those without pods."""
    plane.custom(*project_kinds("karpenter"))
    types = plane.folder / "instance-types.json"
    types.write_text(json.dumps([_TYPE]), encoding="ascii")
    plane.admin.ask("POST", _CLASSES, _object("karpenter.kwok.sh/v1alpha1", "KWOKNodeClass", "default", {}))
    plane.admin.ask("POST", _POOLS, _object("karpenter.sh/v1", "NodePool", POOL, _pool()))
    more = {"KUBECONFIG": str(plane.kubeconfig()), "INSTANCE_TYPES_FILE_PATH": str(types)}
    running = start(plane, _PROGRAM, environment=_SETTINGS | more)
    try:
        yield
    finally:
        running.kill()
        running.wait(30)
        for path in (_CLAIMS, _POOLS, _CLASSES, "/api/v1/nodes"):
            for each in plane.admin.ask("GET", path)["items"]:
                one = f"{path}/{each['metadata']['name']}"
                plane.admin.ask("PATCH", one, {"metadata": {"finalizers": None}}, _MERGE)
            plane.admin.ask("DELETE", path)


def change_pool(plane: ControlPlane) -> None:
    """The NodePool's nodes are to have a label more: each that is there has drifted."""
    change = {"spec": {"template": {"metadata": {"labels": {"team": "changed"}}}}}
    plane.admin.ask("PATCH", f"{_POOLS}/{POOL}", change, _MERGE)


def drifted(plane: ControlPlane) -> set[str]:
    """The nodes that Karpenter would replace, by name."""
    return {
        each["status"]["nodeName"]
        for each in plane.admin.ask("GET", _CLAIMS)["items"]
        if any(one["type"] == "Drifted" and one["status"] == "True" for one in each["status"].get("conditions", ()))
    }


def karpenter_told(plane: ControlPlane) -> str:
    """The end of what it said."""
    return (plane.folder / f"{_PROGRAM}.log").read_text(errors="replace")[-3000:]


def _object(version: str, kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _pool() -> Object:
    """With a term for drains, without which Karpenter leaves a drifted node to the budgets of its pods."""
    node = {
        "requirements": [_ON_DEMAND],
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "expireAfter": "Never",
        "terminationGracePeriod": "1h",
    }
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
    return {"template": {"spec": node}, "disruption": disruption}
