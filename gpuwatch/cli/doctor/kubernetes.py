"""The cluster of the settings: its API server answers, and lets the controller do what it needs."""

from collections.abc import Iterator

from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.report import Finding, fine, make_finding
from gpuwatch.clouds import CloudError
from gpuwatch.kubernetes import ConnectedCluster
from gpuwatch.kubernetes.calls import IN_NAMESPACES, Use
from gpuwatch.kubernetes.settings import KubernetesSettings
from gpuwatch.model.kubernetes import ClusterView
from gpuwatch.model.readable import how_many

_NAMESPACES = 16  # of those whose pods hold GPUs: each right is a question in each


def cluster(case: ControllerCase) -> Iterator[Finding]:
    """The version of each, its rights, and what the first view of it shows."""
    for settings in case.settings.named_clusters.values():
        where = f"the Kubernetes cluster {settings.name}"
        try:
            yield from _look_at_cluster(case, settings, where)
        except (CloudError, ImportError) as error:
            yield make_finding("kubernetes.unusable", where, str(error))


def _uses(case: ControllerCase) -> frozenset[Use]:
    """What the settings let the controller do with the cluster."""
    settings, found = case.settings, set[Use]({"observe"})
    if settings.mode != "enforce":
        return frozenset(found)
    for pool in map(settings.rulebook.pool, settings.rulebook.known):
        ends = pool.kubernetes.pods.action != "report"
        found |= {"nodes"} if pool.kubernetes.node_owner == "gpuwatch" or pool.health.action != "tell" else set[Use]()
        found |= {"workloads"} if ends else set[Use]()
        found |= {"bare-pods"} if ends and pool.kubernetes.pods.bare_pods == "delete" else set[Use]()
    return frozenset(found)


def _look_at_cluster(case: ControllerCase, settings: KubernetesSettings, where: str) -> Iterator[Finding]:
    """Return findings about the cluster; raises CloudError, ImportError."""
    made = settings.connect(case.clock)
    yield fine("kubernetes", where, f"its API server answers at {made.server}: {made.version()}")
    try:
        view = made.view()
        yield from _look_at_rights(case, made, view, where)
    finally:
        made.close()
    if view.trouble is not None:
        yield make_finding("kubernetes.silent", where, view.trouble)
        return
    pods = [pod for node in view.nodes for pod in node.pods]
    gpus = sum(node.gpus or 0 for node in view.nodes)
    nodes, held = how_many(len(view.nodes), "node"), how_many(len(pods), "pod")
    seen = f"{nodes} with {gpus:g} GPUs, {held}, {len(view.pending)} pending ones want GPUs"
    yield fine("kubernetes", f"what {where} shows", seen)


def _look_at_rights(case: ControllerCase, made: ConnectedCluster, view: ClusterView, where: str) -> Iterator[Finding]:
    """Return findings about what its role lets us do; raises CloudError."""
    uses = _uses(case)
    holding = sorted({pod.namespace for node in view.nodes for pod in node.pods if pod.gpus})[:_NAMESPACES]
    allowed: list[str] = []
    for each in made.accesses(uses, holding):
        if each.allowed:
            inside = "" if each.namespaces is None else f" in {', '.join(each.namespaces) or 'some namespaces'}"
            allowed.append(f"{', '.join(each.allowed)} {each.resource}{inside}")
        if each.refused:
            inside = "" if each.namespaces is None else f" in {', '.join(holding)}"
            seen = f"{', '.join(each.refused)}: refused{inside}; they are {each.reason}"
            yield make_finding("kubernetes.denied", f"rights to {each.resource} in {where}", seen)
    if allowed:
        yield fine("kubernetes", f"rights in {where}", f"allowed: {'; '.join(allowed)}")
    if uses & IN_NAMESPACES and not holding:
        yield fine("kubernetes", f"rights to workloads in {where}", "not asked for: no pod holds GPUs")
