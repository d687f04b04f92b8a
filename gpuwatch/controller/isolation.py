"""One part that cannot be judged never stops the rest: it is found, left alone, and named in the log.

A round decides on all it sees at once. Values are bounded where they are read; this is for the value that nobody
thought of. Where the round cannot be decided, the parts are tried by halves: first without what agents say, then
without the machines, groups and pods themselves. What fails by itself is blinded: a machine stays in the fleet, counts,
and is unknown; a pod on a node, and a node of the cluster, stay and are protected; a group, a measure or a waiting pod
is left out. All others are decided about as if it had said nothing.
A part that was blinded is tried again in each round.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Generic, TypeVar

from gpuwatch.clouds import CloudError
from gpuwatch.controller.observe.believable import unjudged_node
from gpuwatch.ledger import LedgerError, LedgerValueError
from gpuwatch.model.bounds import bounded_name, bounded_text
from gpuwatch.model.decision import Observation
from gpuwatch.model.fleet import Node, NodeReport
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode, Pod, PodPhase, Workload

log = logging.getLogger(__name__)

_MOST_TRIALS = 100  # in one search: half a minute of a large fleet; what is not reached stays blinded for this round

Judged = TypeVar("Judged")
Part = tuple[str, str]  # its kind, and its name
WORD, MACHINE, GROUP, MEASURE = "What the agent says of", "Machine", "Group", "Measure"
CLUSTER_NODE, POD = "Node", "Pod"
_CANNOT_BE_JUDGED = "it cannot be judged; the controller's log says why"


def judge_apart(seen: Observation, judge: Callable[[Observation], Judged], sick: dict[str, str]) -> Judged:
    """Judge all that was seen; what makes that impossible is blinded, and named in `sick` with the reason.

    `sick` is kept from round to round: each stands in the log once.

    Raises:
        LedgerError: the ledger cannot be asked.
        Exception: no part by itself is to blame.

    """
    try:
        judged = judge(seen)
    except CloudError:
        raise
    except Exception as error:
        if isinstance(error, LedgerError) and not isinstance(error, LedgerValueError):
            raise
        if not sick:
            log.exception("The round cannot be decided as a whole; the part that is to blame is looked for")
        return _without_the_sick(seen, judge, sick, error)
    for name in sick:
        log.info("%s can be judged again", name)
    sick.clear()
    return judged


def _without_the_sick(
    seen: Observation, judge: Callable[[Observation], Judged], sick: dict[str, str], error: Exception
) -> Judged:
    """Search among the words of agents, and where these are not to blame among all parts."""
    for parts, blinded in ((_words_of_agents(seen), _without_words), (_whole_parts(seen), _without_parts)):
        search = _Search(judge=lambda without, blinded=blinded: judge(blinded(seen, without)), all=frozenset(parts))  # type: ignore[misc]
        if not search.passes(frozenset()):
            continue
        # Those that were to blame before come last: then one trial is enough for all others.
        before = [part for part in parts if _name(part) in sick]
        sound = search.sound_of([part for part in parts if _name(part) not in sick], frozenset())
        sound |= search.sound_of(before, sound)
        judged = search.judge(search.all - sound)
        _name_in_log(sick, {_name(part): search.why(part) for part in search.all - sound})
        return judged
    raise error


def _name_in_log(sick: dict[str, str], found: dict[str, str]) -> None:
    """Name each in the log once."""
    for name, why in found.items():
        if sick.get(name) != why:
            log.warning("%s cannot be judged, and is left alone in this round: %s", name, why)
    for name in sick.keys() - found.keys():
        log.info("%s can be judged again", name)
    sick.clear()
    sick |= found


@dataclass(slots=True, kw_only=True)
class _Search(Generic[Judged]):
    """Which of all parts can be judged together; `judge` is given those that are blinded."""

    judge: Callable[[frozenset[Part]], Judged]
    all: frozenset[Part]
    errors: dict[Part, Exception] = field(default_factory=dict)
    last: Exception = field(default_factory=Exception)
    trials: int = 0

    def passes(self, sound: frozenset[Part]) -> bool:
        """Whether these parts can be judged, with all others blinded."""
        self.trials += 1
        try:
            self.judge(self.all - sound)
        except Exception as error:
            if isinstance(error, LedgerError) and not isinstance(error, LedgerValueError):
                raise
            self.last = error
            return False
        return True

    def sound_of(self, parts: Sequence[Part], sound: frozenset[Part]) -> frozenset[Part]:
        """Those of these parts that can be judged along with what is sound already."""
        if not parts or self.trials >= _MOST_TRIALS:
            return frozenset()
        if self.passes(sound | frozenset(parts)):
            return frozenset(parts)
        if len(parts) == 1:
            self.errors[parts[0]] = self.last
            return frozenset()
        half = len(parts) // 2
        first = self.sound_of(parts[:half], sound)
        return first | self.sound_of(parts[half:], sound | first)

    def why(self, part: Part) -> str:
        """Why a part is blinded."""
        error = self.errors.get(part)
        return "there was no time to try it" if error is None else _words(error)


def _name(part: Part) -> str:
    return " ".join(part)


def _words(error: Exception) -> str:
    return bounded_text(f"{type(error).__name__}: {error}")


def _words_of_agents(seen: Observation) -> list[Part]:
    return [(WORD, node.id) for node in seen.fleet.nodes if node.signal.verdict is not None]


def _without_words(seen: Observation, blinded: frozenset[Part]) -> Observation:
    """The same, with machines of which nobody has said anything."""
    why = NodeReport(failure="what its agent says cannot be judged; the controller's log says why")

    def mute(node: Node) -> Node:
        return replace(node, signal=why) if (WORD, node.id) in blinded else node

    return replace(seen, fleet=replace(seen.fleet, nodes=tuple(map(mute, seen.fleet.nodes))))


def _whole_parts(seen: Observation) -> list[Part]:
    return list(dict.fromkeys(_each_part(seen)))


def _each_part(seen: Observation) -> Iterator[Part]:
    yield from ((MACHINE, node.id) for node in seen.fleet.nodes)
    yield from ((GROUP, group.id) for group in seen.fleet.groups)
    yield from ((MEASURE, f"{each.name} of pool {each.pool}") for each in seen.measures)
    cluster = seen.fleet.cluster
    if cluster is not None:
        yield from map(_part_of_node, cluster.nodes)
        yield from (_part_of_pod(pod, _home(node)) for node in cluster.nodes for pod in node.pods)
        yield from (_part_of_pod(pod, home) for home, pods in _pending(cluster) for pod in pods)


def _part_of_node(node: KubernetesNode) -> Part:
    return CLUSTER_NODE, _text(node.name)


def _part_of_pod(pod: Pod, home: str) -> Part:
    return POD, f"{home}{_text(pod.namespace)}/{_text(pod.name)}"


def _home(node: KubernetesNode) -> str:
    """What stands before the names of a cluster's pods: of several its own name."""
    return "".join(_text(node.name).rpartition("/")[:2])


def _pending(view: ClusterView) -> Iterator[tuple[str, tuple[Pod, ...]]]:
    """The pods that wait, with what stands before their names."""
    yield from ((f"{_text(each.name)}/" if view.parts else "", each.pending) for each in view.each)


def _without_parts(seen: Observation, blinded: frozenset[Part]) -> Observation:
    """The same, with machines of which it is known that they are there, and without the others."""
    fleet = seen.fleet

    def judged(node: Node) -> Node:
        if (MACHINE, node.id) in blinded:
            node = unjudged_node(node, _CANNOT_BE_JUDGED)
        return node if node.kubernetes is None else replace(node, kubernetes=_with_protected(node.kubernetes, blinded))

    cluster = fleet.cluster
    if cluster is not None:
        known = [_with_protected(node, blinded) for node in cluster.nodes]
        waiting = [
            tuple(pod for pod in pods if _part_of_pod(pod, home) not in blinded) for home, pods in _pending(cluster)
        ]
        parts = tuple(replace(each, pending=left) for each, left in zip(cluster.parts, waiting, strict=False))
        cluster = replace(cluster, pending=tuple(chain(*waiting)), nodes=tuple(known), parts=parts)
    groups = [group for group in fleet.groups if (GROUP, group.id) not in blinded]
    measures = [each for each in seen.measures if (MEASURE, f"{each.name} of pool {each.pool}") not in blinded]
    fleet = replace(fleet, nodes=tuple(map(judged, fleet.nodes)), groups=tuple(groups), cluster=cluster)
    return replace(seen, fleet=fleet, measures=tuple(measures))


def _with_protected(node: KubernetesNode, blinded: frozenset[Part]) -> KubernetesNode:
    """A node of the cluster; it, or its pods, as of which no more is known than that they are there."""
    home = _home(node)
    if any(_part_of_pod(pod, home) in blinded for pod in node.pods):
        pods = [_unjudged_pod(pod) if _part_of_pod(pod, home) in blinded else pod for pod in node.pods]
        node = replace(node, pods=tuple(pods))
    if _part_of_node(node) not in blinded:
        return node
    name, uid, cluster, provider = map(_text, (node.name, node.uid, node.cluster, node.provider_id))
    return KubernetesNode(
        name=name, uid=uid, cluster=cluster, provider_id=provider, pods=node.pods, keep=_CANNOT_BE_JUDGED
    )


def _unjudged_pod(pod: Pod) -> Pod:
    """A pod of the same workload that may hold a GPU and is not to be touched: neither is its workload then."""
    above = pod.workload
    if isinstance(above, Workload):
        namespace, kind, name, uid = map(_text, (above.namespace, above.kind, above.name, above.uid))
        above = Workload(namespace=namespace, kind=kind, name=name, uid=uid, protected=_CANNOT_BE_JUDGED)
    else:
        above = Workload(namespace=_text(pod.namespace), kind="Pod", name=_text(pod.name), uid=_text(pod.uid))
    return Pod(
        namespace=_text(pod.namespace),
        name=_text(pod.name),
        uid=_text(pod.uid),
        phase=PodPhase.UNKNOWN,
        workload=above,
        node=_text(pod.node) or None,
        gpus=1.0,
        group=_text(pod.group) or None,  # whoever belongs to it stays
        protected=_CANNOT_BE_JUDGED,
    )


def _text(value: object) -> str:
    return bounded_name(value) if isinstance(value, str) else ""
