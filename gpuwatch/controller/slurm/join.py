"""Which machine is which node of Slurm: by the machine's tag, else by name or address; what is not certain is said.

And which of these nodes somebody waits for: a job of the queue, or a reservation.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gpuwatch.clouds import CloudError
from gpuwatch.controller.slurm import Queue, SlurmCluster
from gpuwatch.model.duration import format_time
from gpuwatch.model.fleet import Fleet, Node, NodeState
from gpuwatch.model.slurm import NODE_TAG, SlurmNode, SlurmView
from gpuwatch.model.slurm_listing import QueuedJob
from gpuwatch.model.slurm_queue import LONGEST_WAIT, has, held_nodes
from gpuwatch.runtime.printable import legible

_WAITS = "PD"
_LONGEST_WORD, _LONGEST_REASON = 60, 100  # characters of a name, and of Slurm's word on why a job waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What one look at Slurm showed."""

    view: SlurmView
    nodes: tuple[SlurmNode, ...] = ()
    queue: Queue = field(default_factory=Queue)


def show_cluster(cluster: SlurmCluster | None) -> Shown | None:
    """What Slurm shows now, or why it shows nothing; None: no cluster is in the settings."""
    if cluster is None:
        return None
    pools = tuple(cluster.pools)
    try:
        power, nodes = cluster.power(), cluster.nodes()
    except CloudError as error:
        return Shown(view=SlurmView(pools=pools, doubt=f"Slurm gives no answer: {error}"))
    view, queue = SlurmView(pools=pools, power=power), Queue()
    try:
        queue = cluster.queue()
    except CloudError as error:
        view = replace(view, queue_doubt=f"Slurm gives no answer about the jobs that wait: {error}")
    try:
        jobs = cluster.jobs()
    except CloudError as error:
        view = replace(view, jobs_doubt=f"Slurm gives no answer about its jobs: {error}")
        return Shown(view=view, nodes=nodes, queue=queue)
    if jobs is None:
        return Shown(view=view, nodes=nodes, queue=queue)
    nodes = tuple(replace(node, jobs=jobs.get(node.name, ())) for node in nodes)
    return Shown(view=replace(view, sees_jobs=True), nodes=nodes, queue=queue)


def idle_nodes(nodes: Sequence[SlurmNode], off: Collection[str]) -> list[SlurmNode]:
    """Those that jobs can have; `off` are the names of nodes without a machine that runs.

    One that we have drained before its end can still be kept.
    """
    return [each for each in nodes if each.rests and each.name not in off and (not each.drained or each.leaves)]


def wanted_nodes(
    queue: Queue, nodes: Sequence[SlurmNode], off: Collection[str], now: datetime, *, hosts: Collection[str] = ()
) -> Mapping[str, str]:
    """The idle nodes that must stay for a job or a reservation, with the sentence that says for which.

    Of a machine that we have stopped it is said which job could run there, of `hosts` of one's own elsewhere
    (`sleepers.py`).
    """
    idle = idle_nodes(nodes, off)
    here = now.astimezone(UTC)
    places = {name: each.nodes for name, each in queue.reservations.items()}
    held = held_nodes(queue.jobs, idle, here, places)
    found = {
        name: f"{waits(job)}, and may need it." if job.state == _WAITS else f"{_whose(job)} is on it ({job.state})."
        for name, job in held.items()
    }
    ended = [each for each in nodes if each.leaves and each.name in off and each.name not in hosts]
    others = [job for job in queue.jobs if job not in held.values()]
    found |= {
        name: f"{waits(job)}, and could run on it. gpuwatch has stopped it, and starts no machine for Slurm's queue."
        for name, job in held_nodes(others, ended, here, places, seen=False).items()
        if job.state == _WAITS
    }
    for each in queue.reservations.values():
        start, end = each.start.replace(tzinfo=UTC), each.end.replace(tzinfo=UTC)
        if end <= here or start - here > LONGEST_WAIT:
            continue
        why = f"Slurm's reservation {legible(each.name, _LONGEST_WORD)} has it from {format_time(start)} on."
        found = {node.name: why for node in idle if has(each.nodes, node.name)} | found
    return found


def _whose(job: QueuedJob) -> str:
    return f"The job {job.job} of {legible(job.user, _LONGEST_WORD)}"


def waits(job: QueuedJob) -> str:
    """Return the clause that says that the job waits, and for what."""
    return f"{_whose(job)} waits in Slurm ({legible(job.reason, _LONGEST_REASON)})"


def nodes_off(fleet: Fleet) -> frozenset[str]:
    """Return the names of nodes without a machine that runs."""
    down = [node.slurm for node in fleet.nodes if node.state is not NodeState.RUNNING and node.slurm is not None]
    return frozenset(each.name for each in down)


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

    joined = replace(fleet, nodes=tuple(map(of, fleet.nodes)), slurm=view)
    hosts = [node.slurm.name for node in joined.nodes if node.owned and node.slurm is not None]
    wanted = wanted_nodes(seen.queue, seen.nodes, nodes_off(joined), fleet.observed_at, hosts=hosts)
    return replace(joined, nodes=tuple([_with_wanted(node, wanted) for node in joined.nodes]))


def _with_wanted(node: Node, wanted: Mapping[str, str]) -> Node:
    """The machine with who waits for its node; what jobs may ask for is not kept with each round."""
    if node.slurm is None or node.slurm.doubt is not None:
        return node
    return replace(node, slurm=with_wish(node.slurm, wanted))


def with_wish(known: SlurmNode, wanted: Mapping[str, str]) -> SlurmNode:
    """The node with who waits for it, and without what that rests on."""
    why = wanted.get(known.name)
    return replace(known, wanted_by=why, partitions=None, features=None, gpu_kinds=None, megabytes=None, cpus=None)


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
