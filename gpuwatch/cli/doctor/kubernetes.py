"""The cluster of the settings: its API server answers, and lets the controller do what it needs."""

from collections.abc import Iterator

from gpuwatch.cli.doctor.context import ControllerCase
from gpuwatch.cli.doctor.findings import found
from gpuwatch.cli.doctor.report import Finding, fine
from gpuwatch.clouds import CloudError
from gpuwatch.kubernetes.settings import KubernetesSettings


def cluster(case: ControllerCase) -> Iterator[Finding]:
    """Its version, its rights, and what the first view of it shows."""
    settings = case.settings.kubernetes
    if not settings.configured:
        return
    where = f"the Kubernetes cluster {settings.name}"
    try:
        yield from _looked(case, settings, where)
    except (CloudError, ImportError) as error:
        yield found("kubernetes.unusable", where, str(error))


def _looked(case: ControllerCase, settings: KubernetesSettings, where: str) -> Iterator[Finding]:
    """Raises CloudError, ImportError."""
    made = settings.connect(case.clock)
    yield fine("kubernetes", where, f"its API server answers at {made.server}: {made.version()}")
    allowed: list[str] = []
    for each in made.accesses(changes=case.settings.mode == "enforce"):
        if each.allowed:
            allowed.append(f"{', '.join(each.allowed)} {each.resource}")
        if each.refused:
            seen = f"{', '.join(each.refused)}: refused; they are {each.reason}"
            yield found("kubernetes.denied", f"rights to {each.resource} in {where}", seen)
    if allowed:
        yield fine("kubernetes", f"rights in {where}", f"allowed: {'; '.join(allowed)}")
    try:
        view = made.view()
    finally:
        made.close()
    if view.trouble is not None:
        yield found("kubernetes.silent", where, view.trouble)
        return
    pods = [pod for node in view.nodes for pod in node.pods]
    gpus = sum(node.gpus or 0 for node in view.nodes)
    seen = f"{len(view.nodes)} nodes with {gpus:g} GPUs, {len(pods)} pods, {len(view.pending)} pending ones want GPUs"
    yield fine("kubernetes", f"what {where} shows", seen)
