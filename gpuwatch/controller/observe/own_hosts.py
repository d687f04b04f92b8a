"""PURE: what only the agents of hosts of one's own can say: whether a host is there, and how many GPUs it has.

Rules, all of them:

1. No cloud says whether such a host runs. Without an answer of its agent its state is unknown: off, rebooting and cut
   off look alike. It stays in the fleet until its owner no longer names it. Only power control shows a host off
   (`clouds/hosts/power.py`).
2. An answer counts only for the host that it names (`scrape.py`): a host at the address of another one is unknown.
3. Two hosts that show one GPU are one machine under two names. The first by id stands for it, and is protected; the
   other is unknown and not enrolled, so that it counts in no sum.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import replace

from gpuwatch.clouds.silence import as_last_seen
from gpuwatch.model.fleet import Fleet, Node, NodeState


def with_own_hosts(fleet: Fleet, gpus: MutableMapping[str, int]) -> Fleet:
    """The fleet with these hosts as their agents show them; `gpus` remembers how many each had last."""
    if not fleet.has_owned:
        return fleet
    twins = _twins(fleet)
    return replace(fleet, nodes=tuple([_judge_host(node, gpus, twins) if node.owned else node for node in fleet.nodes]))


def _judge_host(node: Node, gpus: MutableMapping[str, int], twins: Mapping[str, str]) -> Node:
    if node.verdict is None:
        known = replace(node, gpu_count=gpus.get(node.id, node.gpu_count))
        shown = node.unseen or node.state is not NodeState.RUNNING
        if shown:
            return known
        on = "" if node.bmc_on is None else f"its BMC {node.bmc_on} shows it on, and no agent answers: "
        return as_last_seen(known, on + (node.activity.doubt or "its agent was not asked"))
    gpus[node.id] = len(node.verdict.gpus)
    found = replace(node, gpu_count=gpus[node.id])
    other = twins.get(node.id)
    if other is None:
        return found
    why = f"it shows a GPU that {other} shows, too: both names are one machine, and one of them is to go"
    if node.id < other:
        return replace(found, protected=node.protected or why)
    return replace(as_last_seen(found, why), enrolled=False)


def _twins(fleet: Fleet) -> dict[str, str]:
    """The other name of each machine that has two; the first one where there are more."""
    names: dict[str, list[str]] = {}
    for node in fleet.nodes:
        if node.owned and node.verdict is not None:
            for gpu in node.verdict.gpus:
                names.setdefault(gpu.uuid, []).append(node.id)
    found: dict[str, str] = {}
    for shared in names.values():
        if len(shared) > 1:
            first, second = sorted(shared)[:2]
            found |= {each: second if each == first else first for each in shared}
    return found
