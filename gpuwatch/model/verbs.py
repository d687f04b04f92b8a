"""What a step does to its target, and which verbs belong together."""

from collections.abc import Mapping
from enum import StrEnum


class Verb(StrEnum):
    """What a step does to its target; HOLD does nothing and says why."""

    HOLD = "hold"
    NOTICE = "notice"  # tag the instance, write to the log; the grace period begins
    WITHDRAW = "withdraw"  # the notice no longer holds
    STOP = "stop"
    TERMINATE = "terminate"  # of a group's member: with its place in the group
    START = "start"  # a stopped node runs again
    LAUNCH = "launch"  # one new node from the pool's template
    GROW = "grow"  # a group's desired size is raised to `size`; never lowered
    SHRINK = "shrink"  # a group's desired size is taken back to `size`, to what it has or more: no member goes
    PROTECT = "protect"  # the group may not choose this member for its own scale-in
    UNPROTECT = "unprotect"
    CORDON = "cordon"  # Kubernetes gives the node no new pods
    UNCORDON = "uncordon"  # of a cordon of our own: the node is kept
    DRAIN = "drain"  # its pods are asked to go, each by an eviction
    RELEASE = "release"  # a workload's pods are ended, as its people have said: its GPUs are free again
    QUARANTINE = "quarantine"  # the cordon of a node with a failing GPU: its pods stay
    EVACUATE = "evacuate"  # the cordon and drain of a node that its cloud is about to take
    INTERRUPTION = "interruption"  # a record: the cloud is about to take the node, or says something else of it
    LOST = "lost"  # a record: the cloud has taken it
    SPARED = "spared"  # a record: the cloud has not, and the node counts again
    EVICT = "evict"  # pods of such a node are asked to go, each by an eviction; the node stays
    MARK = "mark"  # on a node of another autoscaler: that it must not go
    UNMARK = "unmark"  # of a mark of our own
    SLURM_DRAIN = "slurm_drain"  # Slurm gives a node with a failing GPU no new jobs: those on it run to their end
    SLURM_RESUME = "slurm_resume"  # of a drain of our own: the node is well


REMOVALS = frozenset({Verb.STOP, Verb.TERMINATE})
# The first steps of the removal of a Kubernetes node; the removal itself is their argument THEN.
PREPARES = frozenset({Verb.CORDON, Verb.DRAIN})
THEN = "then"
# What removes a node: a removal, the end of the protection that keeps its group from one, and what prepares either.
LETS_GO = REMOVALS | {Verb.UNPROTECT} | PREPARES
# What ends the work of machines or pods: after it, and after what may have been it, the limits count.
ENDS = REMOVALS | {Verb.RELEASE}
ADDITIONS = frozenset({Verb.START, Verb.LAUNCH, Verb.GROW})
# What takes back what a group wants and its cloud does not give it.
GIVES_BACK = frozenset({Verb.SHRINK})
# What is asked of a cluster's API server, and of no cloud.
OF_CLUSTER = PREPARES | {Verb.UNCORDON, Verb.QUARANTINE, Verb.EVACUATE, Verb.EVICT, Verb.MARK, Verb.UNMARK}
# What is asked of Slurm, and of no cloud.
OF_SLURM = frozenset({Verb.SLURM_DRAIN, Verb.SLURM_RESUME})
# What may end somebody's work: cloud, cluster and agent are asked a last time before it.
ASKED_LAST = LETS_GO | ENDS | {Verb.EVICT}
# What the cloud does by itself: written down, and nothing else. Nobody decides it.
RECORDS = frozenset({Verb.INTERRUPTION, Verb.LOST, Verb.SPARED})


def prepared(verb: Verb, arguments: Mapping[str, str]) -> Verb:
    """The verb; of a step that prepares a removal, that removal."""
    return Verb(arguments.get(THEN, Verb.TERMINATE)) if verb in PREPARES else verb
