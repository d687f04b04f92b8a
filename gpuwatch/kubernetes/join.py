"""PURE: which machine a node object is. Nothing is guessed: where two fit, neither is joined, and that is said.

Rules, for each node object:
1. Its providerID names a machine of one of the five clouds: that machine, or none.
2. Without one, or with that of a system that is no cloud here: its firmware's UUID, which is a machine's id on Azure.
3. Then its name and addresses, where all that are known of any machine are of one and the same.
4. A machine that two node objects fit, and a node object that fits two machines, are joined to nothing.

Doubt, for each running machine: it is unknown, whatever its agent says, where rule 4 struck; where its tags say that it
is in a cluster and no node object is its own; and where the API server's word is not to be relied on.
Sources: the providers' own cloud-controller-managers; for byte order https://learn.microsoft.com/azure/virtual-machines.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuwatch.model.activity import Activity, State
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.kubernetes import ClusterView, KubernetesNode

# How `Node.managed_by` begins where a machine's tags or metadata say that it is a node of some cluster.
OF_A_CLUSTER = (
    *("EKS", "GKE", "AKS", "TKE", "Container Service (ACK)", "Kubernetes cluster"),
    *("Karpenter", "cluster autoscaler"),
)
_AWS = re.compile(r"aws:///(?:([a-z0-9-]+)/)?(i-[0-9a-f]+)")
_AZURE = re.compile(
    r"azure:///subscriptions/([^/]+)/resourcegroups/[^/]+/providers/microsoft\.compute/"
    r"(?:virtualmachinescalesets/([^/]+)/)?virtualmachines/([^/]+)",
    re.IGNORECASE,
)
_GCE = re.compile(r"gce://([^/]+)/([^/]+)/([^/]+)")
_ALIBABA = re.compile(r"(?:alicloud://)?([a-z]{2,}-[a-z0-9-]+)\.(i-[a-z0-9]+)")
_TENCENT = re.compile(r"qcloud://+(?:[^/]+/)?(ins-[a-z0-9]+)")
_CLOUDS = ("aws://", "azure://", "gce://", "alicloud://", "qcloud://")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineName:
    """How a providerID names a machine: by its id, or by a name within an account and a zone; "" is not known."""

    id: str = ""
    name: str = ""
    account: str = ""
    zone: str = ""

    def fits(self, machine: Node) -> bool:
        """Whether it is this machine's."""
        if self.id and self.id != machine.id:
            return False
        if self.name and self.name.lower() != machine.name.lower():
            return False
        if self.account and machine.account is not None and self.account.lower() != machine.account.lower():
            return False
        return not (self.zone and machine.zone and self.zone != machine.zone)


def machine_name(provider_id: str) -> MachineName | None:
    """What a providerID says; None: it is of no cloud that is known here, or not of the cloud's form."""
    if found := _AWS.fullmatch(provider_id):
        return MachineName(id=found[2], zone=found[1] or "")
    if found := _AZURE.fullmatch(provider_id):
        # A member of a uniform scale set has a number here, and is named SET_NUMBER.
        name = f"{found[2]}_{found[3]}" if found[2] and found[3].isdecimal() else found[3]
        return MachineName(name=name, account=found[1])
    if found := _GCE.fullmatch(provider_id):
        return MachineName(account=found[1], zone=found[2], name=found[3])
    if found := _ALIBABA.fullmatch(provider_id):
        return MachineName(id=found[2])
    if found := _TENCENT.fullmatch(provider_id):
        return MachineName(id=found[1])
    return None


def is_marked_as_node(machine: Node) -> bool:
    """Whether its tags or metadata say that it is a node of some cluster."""
    return (machine.managed_by or "").startswith(OF_A_CLUSTER)


def join_machines(machines: Sequence[Node], view: ClusterView) -> tuple[tuple[Node, ...], ClusterView]:
    """The machines with their node objects and their doubts, and the view with notes on what does not fit."""
    index = _Index(machines)
    claims = {node.name: _claims(node, index, view) for node in view.nodes}
    claimed: defaultdict[str, list[KubernetesNode]] = defaultdict(list)
    for node in view.nodes:
        for machine_id in claims[node.name]:
            claimed[machine_id].append(node)
    notes = [_two_machines(node, claims[node.name]) for node in view.nodes if len(claims[node.name]) > 1]
    notes += [_two_nodes(machine_id, nodes) for machine_id, nodes in claimed.items() if len(nodes) > 1]
    sole = {
        machine_id: nodes[0]
        for machine_id, nodes in claimed.items()
        if len(nodes) == 1 and len(claims[nodes[0].name]) == 1
    }
    doubtful = claimed.keys() - sole.keys()
    view = replace(view, notes=(*view.notes, *sorted(notes)))
    seen = (replace(each, kubernetes=sole.get(each.id)) for each in machines)
    return tuple(with_doubt(each, view, rivals=claimed[each.id] if each.id in doubtful else ()) for each in seen), view


def _claims(node: KubernetesNode, index: "_Index", view: ClusterView) -> tuple[str, ...]:
    """The machines that a node object fits; of several clusters, those in pools of its own alone."""
    found = index.machines_of(node)
    part = view.part(node.cluster) if view.parts else None
    if part is None or not part.pools:
        return found
    return tuple(each for each in found if index.pool_of(each) in part.pools)


def merged_view(views: Iterable[ClusterView]) -> ClusterView:
    """Several clusters as one; the nodes of each have names of their own."""
    views = tuple(views)
    troubles = (f"Cluster {each.name}: {each.trouble}" for each in views if each.trouble is not None)
    return ClusterView(
        name=" and ".join(each.name for each in views),
        silent_seconds=max(each.silent_seconds for each in views),
        trouble=next(troubles, None),
        nodes=tuple(node for each in views for node in each.nodes),
        pending=tuple(pod for each in views for pod in each.pending),
        notes=tuple(note for each in views for note in each.notes),
        pools=() if any(not each.pools for each in views) else tuple(pool for each in views for pool in each.pools),
        parts=tuple(replace(each, nodes=()) for each in views),
    )


def with_troubles(view: ClusterView, troubles: Mapping[str, str]) -> ClusterView:
    """The same view with these troubles, by the names of their clusters."""
    if not view.parts:
        return replace(view, trouble=next(iter(troubles.values()), view.trouble))
    whole = merged_view(replace(each, trouble=troubles.get(each.name, each.trouble)) for each in view.parts)
    return replace(whole, nodes=view.nodes, notes=view.notes)


def with_doubt(machine: Node, view: ClusterView, *, rivals: Sequence[KubernetesNode] = ()) -> Node:
    """The machine; unknown where Kubernetes gives a doubt about it."""
    why = doubt(machine, view, rivals=rivals)
    verdict = machine.signal.verdict
    if why is None or verdict is None or verdict.activity.state is State.UNKNOWN:
        return machine
    activity = Activity(
        state=State.UNKNOWN, since=None, held_seconds=0.0, evidence=verdict.activity.evidence, doubt=why
    )
    return replace(machine, signal=_with_activity(machine.signal, activity))


def doubt(machine: Node, view: ClusterView, *, rivals: Sequence[KubernetesNode] = ()) -> str | None:
    """Why nobody knows what a machine does, as a clause; None: Kubernetes gives no doubt. `rivals` all fit it."""
    if machine.state is not NodeState.RUNNING:
        return None
    node = machine.kubernetes
    own = None if node is None else view.part(node.cluster)
    silent = next((each for each in ((own,) if own else view.each) if _hides(each, machine, view)), None)
    if silent is not None and silent.trouble is not None:
        return f"its pods are not known: {silent.trouble.removesuffix('.')}"
    if rivals:
        named = _few(sorted(node.name for node in rivals))
        return f"it and the nodes of the {view.title} ({named}) do not fit one to one"
    if node is None and is_marked_as_node(machine):
        return (
            f"its tags say that it is a node ({machine.managed_by}), and it is not among the nodes of the {view.title}"
        )
    return None


def _hides(part: ClusterView, machine: Node, view: ClusterView) -> bool:
    """Whether a cluster that is not to be relied on may have the machine."""
    if part.trouble is None:
        return False
    if machine.kubernetes is not None:
        return True
    may_be_one = not part.pools or machine.pool in part.pools
    if is_marked_as_node(machine):
        return may_be_one or not view.parts
    return may_be_one and not view.shows_nodes(part)


def _with_activity(signal: NodeReport, activity: Activity) -> NodeReport:
    """The same word of its agent, with another verdict on its use."""
    return signal if signal.verdict is None else replace(signal, verdict=replace(signal.verdict, activity=activity))


@dataclass(slots=True)
class _Index:
    """The machines that can be nodes, by all that a node object may say about them."""

    machines: Sequence[Node]
    _by_id: dict[str, list[Node]] = field(default_factory=lambda: defaultdict(list))
    _by_name: dict[str, list[Node]] = field(default_factory=lambda: defaultdict(list))
    _by_clue: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        for each in self.machines:
            if each.state is NodeState.TERMINATED:
                continue
            self._by_id[each.id].append(each)
            self._by_name[each.name.lower()].append(each)
            for clue in {each.id, each.name, each.address or ""} - {""}:
                self._by_clue[clue.lower()].add(each.id)

    def pool_of(self, machine_id: str) -> str:
        """The pool of a machine that a node object fits."""
        return self._by_id[machine_id][0].pool

    def machines_of(self, node: KubernetesNode) -> tuple[str, ...]:
        """The ids of all machines that a node object fits."""
        named = machine_name(node.provider_id)
        if named is not None:
            found = self._by_id.get(named.id, []) if named.id else self._by_name.get(named.name.lower(), [])
            return tuple(sorted(each.id for each in found if named.fits(each)))
        if node.provider_id.startswith(_CLOUDS):
            return ()  # of a form that nobody has seen: no guess
        by_firmware = sorted({each.id for uuid in _readings(node.system_uuid) for each in self._by_id.get(uuid, [])})
        if by_firmware:
            return tuple(by_firmware)
        name = node.name.rpartition("/")[2]  # of several clusters its own stands before it
        clues = dict.fromkeys(clue.lower() for clue in (name, *node.addresses) if clue)
        return tuple(sorted(set().union(*(self._by_clue.get(clue, set()) for clue in clues))))


def _readings(uuid: str) -> Iterable[str]:
    """A UUID as it stands, and with the first three groups in the other byte order, as old firmware writes it."""
    uuid = uuid.lower()
    if not _UUID.fullmatch(uuid):
        return ()
    first, second, third, rest = uuid.split("-", 3)
    swapped = "-".join(bytes.fromhex(each)[::-1].hex() for each in (first, second, third))
    return dict.fromkeys((uuid, f"{swapped}-{rest}"))


def _two_machines(node: KubernetesNode, machine_ids: Sequence[str]) -> str:
    return f"The node {node.name} fits {len(machine_ids)} machines ({_few(machine_ids)}), so that it is joined to none."


def _two_nodes(machine_id: str, nodes: Sequence[KubernetesNode]) -> str:
    names = sorted(node.name for node in nodes)
    return f"{len(nodes)} nodes ({_few(names)}) fit the machine {machine_id}, so that it is joined to none."


def _few(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
