"""How many machines and GPUs one owner may have: what gpuwatch adds to them, and who has more already."""

from collections import Counter
from collections.abc import Iterator

from gpuwatch.guard.case import Case, Finding, allow, refuse
from gpuwatch.guard.settings import OwnerLimit, OwnerLimits
from gpuwatch.model.decision import ADDITIONS, Observation, Step, Verb
from gpuwatch.model.fleet import Fleet
from gpuwatch.model.readable import how_many
from gpuwatch.policies import capacity
from gpuwatch.policies.lives import THERE
from gpuwatch.policies.machines import pool_machines

_KEY = "limits.per_owner"


def owner_limit(case: Case) -> Finding:
    """Refuses an addition that gives an owner more nodes or GPUs than the limit allows.

    The limits are `limits.per_owner`: its `max_nodes` and `max_gpus` are for each owner, and `owners` has others for
    some of them. Every node with the owner's tag that runs, or is about to, counts,
    enrolled or not, and so do starts, launches and growth that are under way. What is launched, or comes from a group,
    is taken for the owner's if all nodes of the pool are; otherwise nobody knows the owner, and it is allowed. If the
    number of GPUs of a counted node is not known and `max_gpus` is set, nothing is added. Nodes without an owner have
    no limit, and what people start themselves is not affected: `gpuwatch status` names owners with more.

    Stop idle nodes of that owner, wait, or raise the limit.
    """
    owner = _owner_of(case, case.step)
    limit = None if owner is None else limit_of(case.limits.per_owner, owner)
    if owner is None or limit is None:
        return allow("No limit of its owner applies.")
    counted = [*_there(case, owner), *_coming(case, owner)]
    more = _gpus_of(case, case.step)
    nodes, key = len(counted) + len(more), f"{_KEY}, or let idle nodes of {owner} stop"
    if limit.max_nodes is not None and nodes > limit.max_nodes:
        return refuse(f"{owner} would have {how_many(nodes, 'node')}; the limit is {limit.max_nodes}.", f"Raise {key}.")
    if limit.max_gpus is None:
        return allow(f"{owner} would have {how_many(nodes, 'node')}.")
    known = [gpus for gpus in (*counted, *more) if gpus is not None]
    if len(known) < nodes:
        sentence = f"How many GPUs {owner} would have is not known, and max_gpus is set."
        return refuse(sentence, "Let an agent report the GPUs of that type, or remove max_gpus.")
    if sum(known) > limit.max_gpus:
        return refuse(
            f"{owner} would have {how_many(sum(known), 'GPU')}; the limit is {limit.max_gpus}.", f"Raise {key}."
        )
    return allow(f"{owner} would have {how_many(nodes, 'node')} with {how_many(sum(known), 'GPU')}.")


def limit_of(limits: OwnerLimits, owner: str) -> OwnerLimit | None:
    """The limit of one owner; None: it has no limit."""
    own = limits.owners.get(owner, OwnerLimit())
    nodes = limits.max_nodes if own.max_nodes is None else own.max_nodes
    gpus = limits.max_gpus if own.max_gpus is None else own.max_gpus
    return None if nodes is None and gpus is None else OwnerLimit(max_nodes=nodes, max_gpus=gpus)


def beyond(fleet: Fleet, limits: OwnerLimits) -> Iterator[str]:
    """Owners who have more than their limit now, in sentences; machines that they started themselves count, too."""
    nodes, gpus = Counter[str](), Counter[str]()
    for node in fleet.nodes:
        if node.owner is not None and node.state in THERE:
            nodes[node.owner] += 1
            gpus[node.owner] += node.gpu_count or 0
    for owner in sorted(nodes):
        limit = limit_of(limits, owner)
        if limit is None:
            continue
        if limit.max_nodes is not None and nodes[owner] > limit.max_nodes:
            yield f"{owner} has {how_many(nodes[owner], 'node')}; {_KEY} allows {limit.max_nodes}."
        if limit.max_gpus is not None and gpus[owner] > limit.max_gpus:
            yield f"{owner} has {how_many(gpus[owner], 'GPU')}; {_KEY} allows {limit.max_gpus}."


def _owner_of(case: Case, step: Step) -> str | None:
    """The owner of what an addition brings, as far as that is known."""
    seen = case.observation
    if step.verb is Verb.START:
        node = seen.fleet.find(step.node_id)
        return None if node is None else node.owner
    group = seen.fleet.group(step.node_id)
    pool = capacity.pool_of_launch(step) if group is None else group.pool
    return None if pool is None else _only_owner(seen, pool)


def _only_owner(observation: Observation, pool: str) -> str | None:
    """The owner of all nodes of a pool; None: there are several, none, or no node."""
    owners = {node.owner for node in observation.fleet.roster(pool).nodes}
    return owners.pop() if len(owners) == 1 else None


def _there(case: Case, owner: str) -> list[int | None]:
    """The GPUs of each node of the owner that runs, or begins to."""
    own = case.step.node_id
    nodes = case.observation.fleet.nodes
    return [node.gpu_count for node in nodes if node.owner == owner and node.state in THERE and node.id != own]


def _coming(case: Case, owner: str) -> list[int | None]:
    """The GPUs of each node that comes, or may come, to the owner: by what is open, and by steps of this round."""
    seen, found = case.observation, list[int | None]()
    granted, own = case.counts(ADDITIONS), case.step.node_id
    asked = {own, *(step.node_id for step in granted)}
    for pool in seen.fleet.pools:
        whole, machines = _only_owner(seen, pool) == owner, pool_machines(seen, pool)
        doubtful = [each for each in machines.doubtful if each.name not in asked]
        for each in (*machines.coming, *machines.late, *doubtful):
            node = seen.fleet.find(each.name)  # of a start
            if whole if node is None else node.owner == owner and node.id != own:
                found.append(_gpus(seen, each.kind))
    for step in granted:
        if _owner_of(case, step) == owner:
            found += _gpus_of(case, step)
    return found


def _gpus_of(case: Case, step: Step) -> list[int | None]:
    """The GPUs of each node that a step brings; None where they are not known."""
    seen = case.observation
    node, group = seen.fleet.find(step.node_id), seen.fleet.group(step.node_id)
    if node is not None:
        return [node.gpu_count]
    kind = group.instance_type if group is not None else None
    return [_gpus(seen, kind or step.arguments.get("instance_type"))] * capacity.adds(step)


def _gpus(seen: Observation, kind: str | None) -> int | None:
    """How many GPUs a machine type has, by a node of that type that is there."""
    return seen.fleet.gpus_of_types.get(kind or "")
