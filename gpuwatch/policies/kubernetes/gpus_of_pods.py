"""PURE: which GPUs of a node a pod has: by its agent, and by elimination with what its pods request.

Rules, all of them:

1. Where the agent has the kubelet's own list, and so knows no `other_pods`, a pod has the GPUs that name it alone.
   Names that the API server does not show there are of pods that have ended, and that the kubelet still lists.
   Claims of Dynamic Resource Allocation that name GPUs by their uuids say as much, and come first.
2. Else a GPU names the pods that have a process on it. Of a pod that may use GPUs which it was not given (privileged,
   or with NVIDIA_VISIBLE_DEVICES of its own), or that requests none, that shows what it uses, not what it was given.
3. Each GPU is one pod's alone if the node has as many whole GPUs as its agent sees, and all its pods with GPUs request
   such. Then a pod has none of those on which others have processes, and as many of the rest as it lacks: all of the
   rest, if it lacks so many.
4. If what is seen contradicts that (two pods on one GPU, a pod on more than it requests), rule 3 says nothing.
5. Where GPUs are shared, a pod of which as many GPUs are seen as it has devices has no others; any other may have any.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuwatch.model.fleet import GpuVerdict, Node, NodeVerdict
from gpuwatch.model.kubernetes import KubernetesNode, Pod, PodPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What is known of one pod's GPUs: `sure` are its own, and of `others` it has `least` or more, up to `most`."""

    sure: tuple[GpuVerdict, ...]
    others: tuple[GpuVerdict, ...] = ()
    least: int = 0
    most: int = 0

    @property
    def whole(self) -> bool:
        """Whether all of its GPUs are known."""
        return self.most == 0


def holding(node: Node, pod: Pod) -> Holding | None:
    """What is known of a pod's GPUs; None: nothing is, or its agent's list does not name it."""
    verdict, known = node.verdict, node.kubernetes
    if verdict is None or not verdict.gpus:
        return None
    if pod.gpu_uuids is not None and (claimed := _claimed_gpus(verdict, pod.gpu_uuids)):
        return Holding(sure=claimed)
    name = str(pod)
    named = tuple(gpu for gpu in verdict.gpus if name in gpu.pods)
    if _is_listed(verdict) or pod.gpus <= 0:
        return Holding(sure=named) if named else None
    rest = tuple(gpu for gpu in verdict.gpus if name not in gpu.pods)
    anything = Holding(sure=named, others=rest, least=0 if named else 1, most=len(rest))
    if known is None or pod.devices is None or pod.uses_any_gpu:
        return anything
    if not _is_whole(verdict, known):
        return Holding(sure=named) if named and pod.devices == len(named) else anything
    free = _free_gpus(verdict, known)
    return anything if free is None else _of_free(pod, named, free)


def works_alone(node: Node, pod: Pod, gpu: GpuVerdict) -> bool:
    """Whether work on a GPU that a pod has, or may have, is the pod's own for certain."""
    verdict, name = node.verdict, str(pod)
    if verdict is None or verdict.other_pods is None:
        there = {str(each) for each in node.kubernetes.pods} if node.kubernetes is not None else set[str]()
        return not any(other != name and (name not in there or other in there) for other in gpu.pods)
    return gpu.pods == (name,)


def pods_by_gpu(node: Node) -> Mapping[str, tuple[str, ...]]:
    """The pods that each GPU is of for certain, by its uuid; a GPU that is in doubt is not there."""
    verdict, known = node.verdict, node.kubernetes
    if verdict is None:
        return {}
    if known is None or _is_listed(verdict):
        there = None if known is None else {str(each) for each in known.pods}
        named = ((gpu.uuid, (name for name in gpu.pods if there is None or name in there)) for gpu in verdict.gpus)
        return {uuid: tuple(names) for uuid, names in named} if _is_listed(verdict) else {}
    found: dict[str, list[str]] = {gpu.uuid: list(gpu.pods) for gpu in verdict.gpus}
    doubt = False
    for pod in (each for each in known.pods if each.gpus > 0):
        its = holding(node, pod)
        doubt = doubt or its is None or not its.whole
        for gpu in () if its is None else its.sure:
            if str(pod) not in found[gpu.uuid]:
                found[gpu.uuid].append(str(pod))
    return {uuid: tuple(pods) for uuid, pods in found.items() if pods or not doubt}


def _is_listed(verdict: NodeVerdict) -> bool:
    """Rule 1; an older agent names pods by that list alone, and none without it."""
    return verdict.other_pods is None and any(gpu.pods for gpu in verdict.gpus)


def _claimed_gpus(verdict: NodeVerdict, uuids: tuple[str, ...]) -> tuple[GpuVerdict, ...]:
    """The GPUs of these uuids; no GPU, where the agent does not see each of them."""
    found = tuple(gpu for gpu in verdict.gpus if gpu.uuid in uuids)
    return found if len(found) == len(set(uuids)) else ()


def _is_whole(verdict: NodeVerdict, known: KubernetesNode) -> bool:
    """Whether each GPU is one pod's alone."""
    return known.whole_gpus == len(verdict.gpus) and all(pod.devices is not None for pod in known.pods if pod.gpus > 0)


def _free_gpus(verdict: NodeVerdict, known: KubernetesNode) -> tuple[GpuVerdict, ...] | None:
    """The GPUs without a process of a pod that was given them; None: what is seen contradicts itself (rule 4)."""
    lacks = {str(pod): pod.devices or 0 for pod in known.pods if pod.gpus > 0 and not pod.uses_any_gpu}
    free = []
    for gpu in verdict.gpus:
        its = [name for name in gpu.pods if name in lacks]
        if len(its) > 1:
            return None
        for name in its:
            lacks[name] -= 1
        if not its:
            free.append(gpu)
    asked = sum(pod.devices or 0 for pod in known.pods)
    possible = all(each >= 0 for each in lacks.values()) and asked <= len(verdict.gpus)
    return tuple(free) if possible else None


def _of_free(pod: Pod, named: tuple[GpuVerdict, ...], free: tuple[GpuVerdict, ...]) -> Holding:
    """Rule 3. A pod that does not run yet may not have been given any."""
    lacks = (pod.devices or 0) - len(named)
    if lacks == len(free) and pod.phase is PodPhase.RUNNING:
        return Holding(sure=(*named, *free))
    return Holding(sure=named, others=free if lacks else (), least=lacks, most=lacks)
