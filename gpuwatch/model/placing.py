"""What the scheduler looks at: what pods need, and what nodes have. Amounts are whole: thousandths of cores, and bytes.

Rules: https://kubernetes.io/docs/concepts/scheduling-eviction/. Places and rooms are no part of what a round stores.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

HOSTNAME = "kubernetes.io/hostname"
NODE_NAME = "@metadata.name"  # a node's name among its labels; no label has such a key
PODS = "pods"  # the resource of which each pod takes one


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What a node's label has to be: operator In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def meets(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet it.

        https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#operators
        """
        value = labels.get(self.key)
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value not in self.values
        if self.operator in {"Exists", "DoesNotExist"}:
            return (value is not None) == (self.operator == "Exists")
        if value is None or len(self.values) != 1:
            return False
        try:
            number, limit = int(value), int(self.values[0])
        except ValueError:
            return False
        return number > limit if self.operator == "Gt" else self.operator == "Lt" and number < limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """What keeps pods off a node that do not tolerate it: effect NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """Taints that a pod bears: key "" is every key, operator Exists or Equal, effect "" is every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """So many devices of one driver (Dynamic Resource Allocation); count 0 is all of a node."""

    driver: str
    count: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a pending pod may go: all of `selector`, one of `alternatives` whole where there are any.

    Of each of `devices` it takes one.
    """

    selector: Mapping[str, str] = field(default_factory=dict)
    alternatives: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    devices: tuple[tuple[Wanted, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Labels of pods: all of it has to hold."""

    exact: tuple[tuple[str, str], ...] = ()
    terms: tuple[Requirement, ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects a pod with these labels."""
        exact = all(labels.get(key) == value for key, value in self.exact)
        return exact and all(each.meets(labels) for each in self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTerm:
    """Pods that a pod has to be next to, or apart from; `namespaces` None: all of them, (): the pod's own."""

    topology: str
    selector: Selector | None
    namespaces: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How evenly pods have to be spread over the values of a label of their nodes."""

    topology: str
    most_skew: int
    selector: Selector | None
    least_domains: int = 1
    by_affinity: bool = True
    by_taints: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What one pod needs of its node. `doubt` is why nobody can say where it fits, as a clause."""

    requests: tuple[tuple[str, int], ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    alternatives: tuple[tuple[Requirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    ports: tuple[tuple[str, int], ...] = ()  # protocol and number, on the host
    near: tuple[PodTerm, ...] = ()
    apart: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    doubt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A volume that a pod takes with it: the nodes where it can be mounted, all where it names no alternatives."""

    name: str
    alternatives: tuple[tuple[Requirement, ...], ...] = ()
    alone: bool = False  # one node at a time has it
    doubt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    """A pod on a node, or one that waits for one; `nominated`: where the scheduler makes room for it."""

    name: str
    namespace: str
    uid: str
    node: str | None
    labels: Mapping[str, str] = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)
    disks: tuple[Disk, ...] = ()
    ends: bool = False
    nominated: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A node as the scheduler sees it; `closed`: it takes no pods, or they cannot stay."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    offers: Mapping[str, int] = field(default_factory=dict)
    closed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """All nodes and pods of a cluster at one moment."""

    places: tuple[Place, ...] = ()
    pods: tuple[PlacedPod, ...] = ()
