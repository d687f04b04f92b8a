"""Machines and workloads of a cluster whose controllers run, and what becomes of them."""

from gpuwatch.ledger import Ledger, LedgerError
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.kubernetes import IDLE_ACTION, INTERRUPTIBLE
from tests.support.builders.kubernetes import GPU, node_object
from tests.support.real.kubernetes import ControlPlane
from tests.support.real.kubernetes_api import Object
from tests.support.real.local_site import Site


def join(site: Site, cluster: ControlPlane, name: str, utilization: float = 0.0, gpus: int = 4) -> str:
    """A machine that is a node with so many GPUs; gives the instance's id."""
    machine = site.launch(name, utilization)
    cluster.admin.create(node_object(name, gpus=gpus, provider_id=f"aws:///us-east-1a/{machine}"))
    return machine


def wanting(made: Object, *, replicas: int | None = None, gpus: int = 0, **annotations: str) -> Object:
    """A workload of so many pods with so many GPUs each; annotations by the names of gpuwatch's words."""
    words = {"action": IDLE_ACTION, "interruptible": INTERRUPTIBLE}
    made["metadata"].setdefault("annotations", {}).update({words[key]: value for key, value in annotations.items()})
    if replicas is not None:
        made["spec"]["replicas"] = replicas
    if gpus:
        made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {GPU: str(gpus)}}
    return made


def budget(team: str, app: str, least: int) -> Object:
    """A PodDisruptionBudget whose status its own controller keeps."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": team},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": app}}},
    }


def running(cluster: ControlPlane, team: str, app: str) -> list[str]:
    """The nodes of the pods of a workload that run and are not ending, by name."""
    return sorted(
        each["spec"].get("nodeName", "")
        for each in cluster.admin.list("Pod", team)
        if each["metadata"]["labels"].get("app") == app
        and each.get("status", {}).get("phase") == "Running"
        and "deletionTimestamp" not in each["metadata"]
    )


def ends(site: Site, workload: str) -> list[Status | None]:
    """How each end of a workload's pods came out, newest first."""
    try:
        ledger = Ledger.open(site.folder / "ledger.db", read_only=True)
    except LedgerError:
        return []  # the controller is about to make it
    try:
        history = ledger.history(f"kube:research/{workload}")
    finally:
        ledger.close()
    found = [each for each in history if each.intent.verb is Verb.RELEASE]
    return [each.outcomes[-1].status if each.outcomes else None for each in found]
