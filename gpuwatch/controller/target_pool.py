"""What brings a pool new nodes: launches and groups.

A launch is over when its machine is a node of its pool in the cloud's own list. Until then it counts as capacity, for
as long as its machine may live. One that does not turn into a node stops further launches of its pool (guard rule
`launch_unseen`) until its machine is terminated or becomes a node of the pool, or until somebody resumes the pool. One
that the cloud has never shown counts for twenty minutes (policies/uncounted.py); should it be shown later, it counts
again.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property

from gpuwatch.clouds import NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.circuits import Server
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.target import Found, Target, not_yet
from gpuwatch.model.decision import Intent, Observation, OpenIntent, Status, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Node, NodeState
from gpuwatch.policies.lives import ENDED, LAUNCHES, NEVER_RAN, SHOWN
from gpuwatch.policies.machines import launched_id
from gpuwatch.policies.uncounted import NOT_SHOWN

FIND_TIMEOUT = timedelta(minutes=1)  # for which a launch that nobody answered may not be shown yet
UNSEEN_TIMEOUT = timedelta(minutes=10)  # in which a launched machine must become a node of its pool


class PoolTarget(Target):
    """A pool that gets one new node; the cloud's list is asked for once, and only where there is an open launch."""

    def __init__(self, parts: ControllerContext, resumed: Sequence[tuple[str | None, datetime]]) -> None:
        """Nothing is asked yet; `resumed` are the orders to resume a pool."""
        super().__init__(parts)
        self._resumed = resumed

    def servers(self, _observation: Observation, step: Step) -> tuple[Server, ...]:
        """Return the part of a cloud that the launch is asked of."""
        return (Server.named_in(step.arguments),)

    def ask(self, intent: Intent, _observation: Observation, _permit: Permit) -> tuple[Status, str]:
        """Launch one machine from the pool's template."""
        return Status.ACCEPTED, f"{LAUNCHES}{self._parts.cloud.launch(intent.arguments, intent.key)}"

    def outcome_of(self, entry: OpenIntent) -> Found:
        """Find out whether a launch has become a node of its pool."""
        node = self._parts.cloud.find(entry.intent.key, entry.intent.arguments)
        node_id = launched_id(entry) if node is None else node.id
        if node_id is None:
            return self._outcome_unanswered(entry)
        if node is not None and node.state is NodeState.TERMINATED:
            said = "" if node.failed_start is None else f" ({node.failed_start})"
            return Status.FAILED, f"{node.id}{said} {ENDED}"
        if node is not None and node.state is NodeState.TERMINATING:
            return None  # it ends before it was a node
        if node is not None and node.state is NodeState.STOPPED and node.failed_start is not None:
            return Status.FAILED, f"{node.id} {NEVER_RAN}: {node.failed_start}"
        seen = self._listed.get(node_id)
        if seen is not None and seen.enrolled and seen.pool == entry.intent.pool:
            return Status.SETTLED, f"{SHOWN}{node_id}"
        return self._not_there(entry, node_id, seen or node)

    @cached_property
    def _listed(self) -> Mapping[str, Node]:
        """Return the fleet, as rounds see it."""
        return {node.id: node for node in self._parts.cloud.nodes()}

    def _outcome_unanswered(self, entry: OpenIntent) -> Found:
        """Say what a launch is of which the cloud shows no machine, and never said that there is one."""
        since = entry.intent.at if entry.last is None else entry.last.at
        if entry.resumable or self._parts.clock.now() - since <= FIND_TIMEOUT:
            return None  # it may be there and not be shown yet
        return Status.INTERRUPTED, "the cloud shows no machine with its key"

    def _not_there(self, entry: OpenIntent, node_id: str, node: Node | None) -> Found:
        """Say what a launch is if its machine is no node of the pool."""
        last, pool = entry.last, entry.intent.pool
        if last is None or last.status not in {Status.ACCEPTED, Status.UNSEEN}:
            return Status.ACCEPTED, f"{LAUNCHES}{node_id}"
        if last.status is Status.UNSEEN:
            # A pause of everything that is lifted says nothing about this pool's launches.
            resumed = any(named == pool and at > last.at for named, at in self._resumed)
            if resumed:
                return Status.FAILED, f"{last.detail}; the pool was resumed without it"
            said = f"{last.detail.rpartition(': ')[0]}: {_why(node, pool)}"
            return None if last.detail == said else (Status.UNSEEN, said)
        if self._parts.clock.now() - last.at <= UNSEEN_TIMEOUT:
            return None
        waited = format_duration(UNSEEN_TIMEOUT.total_seconds())
        missing = f"the cloud launched {node_id}, and after {waited} it does not appear as a node of pool {pool}"
        return Status.UNSEEN, f"{missing}: {_why(node, pool)}"


def _why(node: Node | None, pool: str) -> str:
    """Say what keeps a machine from being a node of its pool."""
    if node is None:
        return NOT_SHOWN
    if node.gpu_count == 0:
        return f"its type {node.instance_type} has no GPU"
    if not node.enrolled:
        return "it does not carry the fleet's tag"
    return "the cloud does not list it" if node.pool == pool else f"it is in pool {node.pool}"


class GroupTarget(Target):
    """A group of machines: its cloud is asked for another desired size."""

    def ask(self, intent: Intent, _observation: Observation, _permit: Permit) -> tuple[Status, str]:
        """Ask for the size that the guard has allowed."""
        cloud = self._parts.cloud
        resize = cloud.grow if intent.verb is Verb.GROW else cloud.shrink
        resize(intent.node_id, int(intent.arguments["size"]), intent.key)
        return Status.ACCEPTED, f"the cloud accepted the {intent.verb.value}"

    def outcome_of(self, entry: OpenIntent) -> Found:
        """Find a growth over when the desired size is what was asked for, or more; a taking back, or less."""
        size = int(entry.intent.arguments["size"])
        try:
            group = self._parts.cloud.group(entry.intent.node_id)
        except NotFoundError:
            return Status.FAILED, "the cloud does not know the group"
        done = group.desired >= size if entry.intent.verb is Verb.GROW else group.desired <= size
        shown = f"the cloud shows a desired size of {group.desired}"
        return (Status.SETTLED, shown) if done else not_yet(self._parts, entry, shown)
