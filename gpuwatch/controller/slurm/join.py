"""Which machine is which node of Slurm: by the machine's tag, else by name or address; what is not certain is said."""

from collections import Counter
from dataclasses import dataclass, replace

from gpuwatch.clouds import CloudError
from gpuwatch.controller.slurm import SlurmCluster
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.slurm import NODE_TAG, SlurmNode, SlurmView


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What one look at Slurm showed."""

    view: SlurmView
    nodes: tuple[SlurmNode, ...] = ()


def show_cluster(cluster: SlurmCluster | None) -> Shown | None:
    """What Slurm shows now, or why it shows nothing; None: no cluster is in the settings."""
    if cluster is None:
        return None
    pools = tuple(cluster.pools)
    try:
        power, nodes = cluster.power(), cluster.nodes()
    except CloudError as error:
        return Shown(view=SlurmView(pools=pools, doubt=f"Slurm gives no answer: {error}"))
    view = SlurmView(pools=pools, power=power)
    try:
        jobs = cluster.jobs()
    except CloudError as error:
        return Shown(view=replace(view, jobs_doubt=f"Slurm gives no answer about its jobs: {error}"), nodes=nodes)
    if jobs is None:
        return Shown(view=view, nodes=nodes)
    nodes = tuple(replace(node, jobs=jobs.get(node.name, ())) for node in nodes)
    return Shown(view=replace(view, sees_jobs=True), nodes=nodes)


def with_slurm(fleet: Fleet, seen: Shown | None) -> Fleet:
    """The fleet; each machine of Slurm's pools with its node, or with the doubt about it.

    The tag `gpuwatch:slurm-node` names the node. Without the tag, it is the one that has the machine's
    name, id or private address as NodeName, NodeHostName or NodeAddr. There must be exactly one, and no other machine
    may claim it.
    """
    if seen is None:
        return fleet
    view, index = seen.view, _index(seen.nodes)
    claims = {node.id: _claimed_nodes(node, index) for node in fleet.nodes}
    living = [node for node in fleet.nodes if node.state is not NodeState.TERMINATED]
    claimants = Counter(each.name for node in living for each in claims.get(node.id, ()))
    pools = frozenset(view.pools)

    def of(node: Node) -> Node:
        if node.pool not in pools:
            return node
        known = _one(node, claims, claimants) if view.doubt is None else SlurmNode(doubt=view.doubt)
        return replace(node, slurm=known)

    return replace(fleet, nodes=tuple(map(of, fleet.nodes)), slurm=view)


def _index(nodes: tuple[SlurmNode, ...]) -> dict[str, dict[str, SlurmNode]]:
    """Nodes by each word that may name them; under `NAME=` by their name alone. A name listed twice is in doubt."""
    listed = Counter(each.name for each in nodes)
    found: dict[str, dict[str, SlurmNode]] = {}
    for each in nodes:
        twice = f"Slurm lists the node {each.name} more than once."
        known = each if listed[each.name] == 1 else SlurmNode(name=each.name, doubt=twice)
        for word in {each.name, each.host, each.address, f"NAME={each.name}"} - {""}:
            found.setdefault(word, {})[each.name] = known
    return found


def _claimed_nodes(node: Node, index: dict[str, dict[str, SlurmNode]]) -> tuple[SlurmNode, ...]:
    """The nodes that may be this machine's."""
    if NODE_TAG in node.tags:
        return tuple(index.get(f"NAME={node.tags[NODE_TAG]}", {}).values())
    words = {node.name, node.id, node.address or ""} - {""}
    found = {name: each for word in words for name, each in index.get(word, {}).items()}
    return tuple(found[name] for name in sorted(found))


def _one(node: Node, claims: dict[str, tuple[SlurmNode, ...]], claimants: Counter[str]) -> SlurmNode:
    """Its node, or the doubt."""
    found = claims[node.id]
    if not found:
        tag = node.tags.get(NODE_TAG)
        by = "its name or its address" if tag is None else f"the name {tag!r} of its tag {NODE_TAG}"
        return SlurmNode(doubt=f"Slurm shows no node under {by}.")
    if len(found) > 1:
        names = ", ".join(each.name for each in found[:3])
        return SlurmNode(doubt=f"Several nodes of Slurm may be this machine ({names}): its tag {NODE_TAG} decides.")
    if claimants[found[0].name] > 1:
        return SlurmNode(doubt=f"Several machines may be the node {found[0].name} of Slurm: tags {NODE_TAG} decide.")
    return found[0]
