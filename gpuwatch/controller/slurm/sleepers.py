"""Hosts of one's own that gpuwatch switched off, and that jobs of Slurm's queue wait for: which are to be started."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC

from gpuwatch.controller.slurm.join import Shown, idle_nodes, nodes_off, waits
from gpuwatch.model.decision import Observation, Reason
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.model.life import WOKEN_FOR
from gpuwatch.model.slurm import SlurmNode
from gpuwatch.model.slurm_listing import WAITS, QueuedJob
from gpuwatch.model.slurm_queue import held_nodes
from gpuwatch.model.slurm_wake import woken_nodes
from gpuwatch.policies import PoolRules
from gpuwatch.policies.lasting import SILENT
from gpuwatch.policies.starts import starts
from gpuwatch.policies.wakes import rests_of

_ALSO = "gpuwatch starts it if the job lacks nothing but nodes, and could begin with those that are off."
_HAS_JOBS = (("ALLOCATED",), ("MIXED",))  # what waits now found no room beside them
_ON_ITS_WAY = frozenset({NodeState.PENDING, NodeState.RUNNING, NodeState.UNKNOWN})


def with_sleepers(seen: Observation, shown: Shown | None, rules: Mapping[str, PoolRules]) -> Observation:
    """The observation; each host that is off with the job that it is to be started for, or with why it is not."""
    view = seen.fleet.slurm
    if shown is None or view is None or (view.doubt or view.power or view.queue_doubt) is not None:
        return seen
    asleep = _sleepers(seen, rules, view.pools)
    if not asleep:
        return seen
    facts = {each.name: each for each in shown.nodes}
    jobs, here = shown.queue.jobs, seen.now.astimezone(UTC)
    rests = rests_of(seen, {job.number for job in jobs if job.state == WAITS})
    on_their_way = _coming_nodes(seen)
    coming = [facts[name] for name in on_their_way if name in facts]
    idle = [each for each in idle_nodes(shown.nodes, nodes_off(seen.fleet)) if each.name not in on_their_way]
    woken = woken_nodes(
        [job for job in jobs if job.number not in rests.work],
        idle=idle,
        coming=coming,
        asleep=[facts[name] for name, node in asleep.items() if node.id not in rests.hosts],
        now=here,
        reservations=shown.queue.reservations,
    )
    places = {name: each.nodes for name, each in shown.queue.reservations.items()}
    taken = [*woken.values(), *held_nodes(jobs, idle, here, places).values()]
    taken += held_nodes(jobs, coming, here, places, seen=False).values()
    left = [facts[name] for name in asleep if name not in woken]
    others = held_nodes([job for job in jobs if job.number not in _numbers(taken)], left, here, places, seen=False)
    told: dict[str, Node] = {}
    for name, node in asleep.items():
        job = woken.get(name) or others.get(name)
        if job is None or job.state != WAITS or node.slurm is None:
            continue
        why = "" if name in woken else f" {rests.sentence(node.id, job.number) or _ALSO}"
        known = replace(node.slurm, wanted_by=f"{waits(job)}, and could run on it.{why}")
        told[node.id] = replace(node, slurm=replace(known, wanted_for=job.number if name in woken else None))
    nodes = tuple([told.get(node.id, node) for node in seen.fleet.nodes])
    return replace(seen, fleet=replace(seen.fleet, nodes=nodes)) if told else seen


def _numbers(jobs: Iterable[QueuedJob]) -> Collection[str]:
    return {job.number for job in jobs}


def _sleepers(seen: Observation, rules: Mapping[str, PoolRules], pools: Iterable[str]) -> dict[str, Node]:
    """The hosts that may be started, by the names of their nodes, where our drain is all that keeps jobs from them."""
    nothing = Reason(code="", sentence="")
    found: dict[str, Node] = {}
    for pool in pools:
        for step in starts(seen, pool, rules[pool].start, nothing) if pool in rules else ():
            node = seen.fleet.find(step.node_id)
            known = None if node is None or not node.owned else node.slurm
            if node is not None and known is not None and known.doubt is None and known.leaves and known.resumable:
                found[known.name] = node
    return found


def _coming_nodes(seen: Observation) -> Collection[str]:
    """The nodes that jobs may expect: those on their way up, and those that were started for a job and have no work."""
    lately = {life.node_id for life in seen.lives if life.started and seen.now - life.at < SILENT}
    woken = {life.node_id for life in seen.lives if WOKEN_FOR in life.asked and life.end is None and not life.worked}
    asked = {entry.intent.node_id for entry in seen.ledger.open_intents if not entry.resumable}
    return [
        node.slurm.name
        for node in seen.fleet.nodes
        if node.slurm is not None and _is_coming(node, node.slurm, lately, woken, asked)
    ]


def _is_coming(
    node: Node, known: SlurmNode, lately: Collection[str | None], woken: Collection[str | None], asked: Collection[str]
) -> bool:
    if known.doubt is not None or known.states[:1] in _HAS_JOBS:
        return False
    if node.state is NodeState.STOPPED:
        return node.id in asked
    if node.state not in _ON_ITS_WAY or not (known.leaves or node.id in woken):
        return False
    return known.answers or node.id in lately
