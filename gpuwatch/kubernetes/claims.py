"""Claims and persistent volumes: which of them are disks of one node, and hold data there.

Rules, all of them:

1. A volume is of one node if it is `local`, or a path of a host, or if its node affinity asks for more than a zone and
   fits one node alone, by any label. One that fits no node now is of the node of which it has the name or host name.
2. Data is on the volumes that are bound, and on those that are released and not to be deleted: somebody keeps these on
   purpose. One that was never bound holds nothing.
3. A replica of Longhorn's is data of its node, whether or not there are others, and whatever its volume's pods do.
4. What cannot be read, is missing, or is not bound, is a doubt, and a doubt is kept as data is.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuwatch.kubernetes.facts import NodeFacts, OwnerFacts, PodFacts, keeping_annotations, version_of
from gpuwatch.kubernetes.volume_objects import ClaimObject, PersistentVolumeObject, PersistentVolumeSpec
from gpuwatch.model.bounds import bounded_name
from gpuwatch.model.kubernetes import LOSES_LOCAL_DATA
from gpuwatch.model.placing import Disk, Requirement

_ZONES = frozenset({"zone", "region"})  # how keys of labels end that many nodes have in common


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """Of one persistent volume; `claim` is the one that it is or was bound to, as namespace and name."""

    name: str
    uid: str
    version: int
    phase: str
    kept: bool  # it is not deleted with its claim
    claim: tuple[str, str] | None
    of_host: bool  # a disk or a path of a machine
    driver: str
    alternatives: tuple[tuple[Requirement, ...], ...]


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """What is kept of one claim."""

    namespace: str
    name: str
    uid: str
    version: int
    phase: str
    volume: str
    one_node: bool  # one node at a time may mount it
    annotations: Mapping[str, str]


def volume_facts(volume: PersistentVolumeObject) -> VolumeFacts:
    """Of a persistent volume."""
    meta, spec = volume.metadata, volume.spec or PersistentVolumeSpec()
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    claim = spec.claim_ref
    return VolumeFacts(
        name=meta.name,
        uid=meta.uid,
        version=version_of(meta),
        phase=volume.status.phase if volume.status is not None else "",
        kept=spec.reclaim_policy != "Delete",
        claim=None if claim is None else (claim.namespace, claim.name),
        of_host=spec.local is not None or spec.host_path is not None,
        driver="" if spec.csi is None else spec.csi.driver,
        alternatives=tuple(
            tuple(
                Requirement(key=each.key, operator=each.operator, values=tuple(each.values or ()))
                for each in term.match_expressions or ()
            )
            for term in (required.node_selector_terms if required is not None else None) or ()
        ),
    )


def claim_facts(claim: ClaimObject) -> ClaimFacts:
    """What is kept of a claim."""
    meta, spec = claim.metadata, claim.spec
    modes = (spec.access_modes if spec is not None else None) or ()
    return ClaimFacts(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        version=version_of(meta),
        phase=claim.status.phase if claim.status is not None else "",
        volume=spec.volume_name if spec is not None else "",
        one_node=not any(each in {"ReadWriteMany", "ReadOnlyMany"} for each in modes),
        annotations=keeping_annotations(meta),
    )


@dataclass(slots=True, kw_only=True)
class Disks:
    """What of the volumes is known at one moment. `doubt`: why that is not all of it, as a clause."""

    volumes: Mapping[str, VolumeFacts] = field(default_factory=dict)  # by name
    claims: Mapping[tuple[str, str], ClaimFacts] = field(default_factory=dict)  # by namespace and name
    nodes: Collection[NodeFacts] = ()
    replicas: Mapping[str, Sequence[str]] = field(default_factory=dict)  # volumes of Longhorn's, by node
    doubt: str | None = None
    _by_label: dict[str, Mapping[str, list[NodeFacts]]] = field(default_factory=dict)
    _on: Mapping[str, list[VolumeFacts]] | None = None

    def local_data(self, pod: PodFacts) -> str | None:
        """Which of a pod's claims are on a disk of its machine, or may be; None: none is."""
        found = [
            f"{bounded_name(name)} (the claim {bounded_name(claim)} {why})"
            for name, claim in pod.claims
            if (why := self._why_local(pod.namespace, claim)) is not None
        ]
        return ", ".join(found) or None

    def disk(self, namespace: str, name: str) -> Disk:
        """What of a claim goes with its pod."""
        claim = self.claims.get((namespace, name))
        if claim is None or claim.phase != "Bound" or (volume := self.volumes.get(claim.volume)) is None:
            return Disk(
                name=bounded_name(name), doubt=f"its claim {self._why_local(namespace, name) or 'is not known'}"
            )
        return Disk(name=bounded_name(name), alternatives=volume.alternatives, alone=claim.one_node)

    def volume(self, namespace: str, name: str) -> VolumeFacts | None:
        """The volume that a claim is bound to; None: it is bound to none, or that is not known."""
        claim = self.claims.get((namespace, name))
        return None if claim is None else self.volumes.get(claim.volume)

    def data_on(
        self, node: NodeFacts, asked: Collection[tuple[str, str]], namespaces: Mapping[str, OwnerFacts]
    ) -> str | None:
        """Why a node's disks may hold data of claims that are not `asked` about with their pods; None: they do not."""
        if self.doubt is not None:
            return f"which volumes are on its disks is not known: {self.doubt}"
        for volume in self._of_nodes().get(node.name, ()):
            if volume.claim in asked:
                continue
            whose = "" if volume.claim is None else f" of the claim {'/'.join(volume.claim)}"
            if volume.phase == "Released" and volume.kept:
                return f"the volume {volume.name}{whose} is on its disk, released and kept"
            if volume.phase not in {"Available", "Released"} and not self._is_given_up(volume.claim, namespaces):
                return f"the volume {volume.name}{whose} is on its disk, and no pod uses it now"
        for name in self.replicas.get(node.name, ()):
            known = self.volumes.get(name)
            if known is None or not self._is_given_up(known.claim, namespaces):
                whose = "" if known is None or known.claim is None else f" (the claim {'/'.join(known.claim)})"
                return f"a replica of Longhorn's volume {bounded_name(name)}{whose} is on its disk"
        return None

    def _is_given_up(self, key: tuple[str, str] | None, namespaces: Mapping[str, OwnerFacts]) -> bool:
        """Whether people have said on a claim, or on its namespace, that its data may be lost."""
        claim, above = self.claims.get(key or ("", "")), namespaces.get("" if key is None else key[0])
        said = None if claim is None else claim.annotations.get(LOSES_LOCAL_DATA)
        return (said or (None if above is None else above.annotations.get(LOSES_LOCAL_DATA))) == "true"

    def _why_local(self, namespace: str, name: str) -> str | None:
        """Why a claim is kept as local data, after its name."""
        claim = self.claims.get((namespace, name))
        if claim is None:
            return "does not exist" if self.doubt is None else f"cannot be read: {self.doubt}"
        if claim.annotations.get(LOSES_LOCAL_DATA) == "true":
            return None
        if claim.phase != "Bound" or not claim.volume:
            return f"is {bounded_name(claim.phase) or 'without a state'}"
        volume = self.volumes.get(claim.volume)
        if volume is None:
            missing = "does not exist" if self.doubt is None else f"cannot be read: {self.doubt}"
            return f"is the volume {bounded_name(claim.volume)}, which {missing}"
        return "is on its machine's disk" if self.is_of_one_node(volume) else None

    def is_of_one_node(self, volume: VolumeFacts) -> bool:
        """Whether a volume is of one node (rule 1)."""
        if volume.of_host:
            return True
        return not _is_zonal(volume) and bool(volume.alternatives) and len(self._fitting(volume)) <= 1

    def _of_nodes(self) -> Mapping[str, list[VolumeFacts]]:
        """The volumes of one node each, by its name."""
        if self._on is None:
            found: defaultdict[str, list[VolumeFacts]] = defaultdict(list)
            for volume in sorted(self.volumes.values(), key=lambda each: each.name):
                if volume.alternatives and self.is_of_one_node(volume):
                    for node in self._fitting(volume) or self._nodes_by_name(volume):
                        found[node].append(volume)
            self._on = found
        return self._on

    def _fitting(self, volume: VolumeFacts) -> list[str]:
        """The nodes that a volume can be mounted on, at most two of them."""
        found: dict[str, None] = {}
        for terms in volume.alternatives:
            for node in self._likely(terms):
                if terms and all(each.meets(node.labels) for each in terms):
                    found[node.name] = None
                if len(found) > 1:
                    return list(found)
        return list(found)

    def _likely(self, terms: tuple[Requirement, ...]) -> Iterable[NodeFacts]:
        """The nodes that need to be looked at for an alternative."""
        exact = next((each for each in terms if each.operator == "In"), None)
        if exact is None:
            return self.nodes
        if exact.key not in self._by_label:
            by_value: defaultdict[str, list[NodeFacts]] = defaultdict(list)
            for node in self.nodes:
                if (value := node.labels.get(exact.key)) is not None:
                    by_value[value].append(node)
            self._by_label[exact.key] = by_value
        return [node for value in exact.values for node in self._by_label[exact.key].get(value, ())]

    def _nodes_by_name(self, volume: VolumeFacts) -> Iterator[str]:
        """The nodes that a volume says by name, which have lost the label that it asks for."""
        values = {value for terms in volume.alternatives for each in terms for value in each.values}
        for node in self.nodes:
            if values & {node.name, node.labels.get("kubernetes.io/hostname", node.name), *node.addresses}:
                yield node.name


def _is_zonal(volume: VolumeFacts) -> bool:
    """Whether all that a volume asks of a node is its zone."""
    keys = {each.key for terms in volume.alternatives for each in terms}
    return bool(keys) and all(key.rpartition("/")[2] in _ZONES for key in keys)
