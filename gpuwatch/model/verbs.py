"""What a step does: each verb is an action on a kind of target, and the groups of verbs follow from those two.

The values of `Verb` are the words that ledgers hold: they never change.
"""

from collections.abc import Collection, Mapping
from enum import Enum, StrEnum, auto
from typing import Self


class TargetKind(Enum):
    """What a verb changes. A notice, and its withdrawal, may be about a workload instead: its id says so."""

    MACHINE = auto()
    POOL = auto()  # it gets a new machine
    GROUP = auto()
    CLUSTER_NODE = auto()  # a machine's node object in Kubernetes
    WORKLOAD = auto()
    SLURM_NODE = auto()
    RECORD = auto()  # nothing is changed: it is written down what others do


class Action(Enum):
    """What is done to the target, as far as rules and limits tell actions apart."""

    HOLD = auto()
    ANNOUNCE = auto()
    WITHDRAW = auto()
    REMOVE = auto()
    PREPARE = auto()  # a removal; which one is the step's argument THEN
    EXPOSE = auto()  # its group may remove it: the first half of a termination
    SHIELD = auto()
    END_WORK = auto()  # of pods; their machines stay
    MOVE_WORK = auto()
    ISOLATE = auto()  # it gets no new work
    EVACUATE = auto()
    MARK = auto()
    UNDO = auto()  # of our own earlier change
    ADD = auto()
    REDUCE = auto()  # what is wanted, to what is there
    RECORD = auto()


class Verb(StrEnum):
    """What a step does to its target; HOLD does nothing and says why."""

    _value_: str
    target: TargetKind
    action: Action

    # The defaults are never used: with them a look-up by the word alone, Verb("stop"), is well typed.
    def __new__(cls, word: str, target: TargetKind = TargetKind.MACHINE, action: Action = Action.HOLD) -> Self:
        """Make the ledger's word a verb that knows its target and its action."""
        verb = str.__new__(cls, word)
        verb._value_ = word
        verb.target, verb.action = target, action
        return verb

    HOLD = "hold", TargetKind.MACHINE, Action.HOLD
    # Tag the instance, write to the log; the grace period begins.
    NOTICE = "notice", TargetKind.MACHINE, Action.ANNOUNCE
    WITHDRAW = "withdraw", TargetKind.MACHINE, Action.WITHDRAW
    STOP = "stop", TargetKind.MACHINE, Action.REMOVE
    # Of a group's member: with its place in the group.
    TERMINATE = "terminate", TargetKind.MACHINE, Action.REMOVE
    # A stopped node runs again.
    START = "start", TargetKind.MACHINE, Action.ADD
    # One new node from the pool's template.
    LAUNCH = "launch", TargetKind.POOL, Action.ADD
    # A group's desired size is raised to `size`; never lowered.
    GROW = "grow", TargetKind.GROUP, Action.ADD
    # A group's desired size is taken back to `size`, to what it has or more: no member goes.
    SHRINK = "shrink", TargetKind.GROUP, Action.REDUCE
    # The group may not choose this member for its own scale-in.
    PROTECT = "protect", TargetKind.MACHINE, Action.SHIELD
    UNPROTECT = "unprotect", TargetKind.MACHINE, Action.EXPOSE
    # Kubernetes gives the node no new pods, or Slurm no new jobs: its machine is about to end.
    CORDON = "cordon", TargetKind.CLUSTER_NODE, Action.PREPARE
    # Of a cordon of our own: the node is kept, or its machine was started again.
    UNCORDON = "uncordon", TargetKind.CLUSTER_NODE, Action.UNDO
    # Its pods are asked to go, each by an eviction.
    DRAIN = "drain", TargetKind.CLUSTER_NODE, Action.PREPARE
    # A workload's pods are ended, as its people have said: its GPUs are free again.
    RELEASE = "release", TargetKind.WORKLOAD, Action.END_WORK
    # The cordon of a node with a failing GPU: its pods stay.
    QUARANTINE = "quarantine", TargetKind.CLUSTER_NODE, Action.ISOLATE
    # The cordon and drain of a node that its cloud is about to take.
    EVACUATE = "evacuate", TargetKind.CLUSTER_NODE, Action.EVACUATE
    # The cloud is about to take the node, or says something else about it.
    INTERRUPTION = "interruption", TargetKind.RECORD, Action.RECORD
    # The cloud has taken it.
    LOST = "lost", TargetKind.RECORD, Action.RECORD
    # The cloud has not taken it, and the node counts again.
    SPARED = "spared", TargetKind.RECORD, Action.RECORD
    # A machine that gpuwatch launched is gone, or stopped, and neither gpuwatch nor a notice of its cloud did that.
    ENDED = "ended", TargetKind.RECORD, Action.RECORD
    # Somebody has undone our stops of it twice, or what starts or launches bring does not last: it, or its group, is
    # left alone for a time. Its owner is told.
    LEFT_ALONE = "left_alone", TargetKind.RECORD, Action.RECORD
    # Pods of a node with a failing GPU are asked to go, each by an eviction; the node stays.
    EVICT = "evict", TargetKind.CLUSTER_NODE, Action.MOVE_WORK
    # On a node of another autoscaler: that it must not go.
    MARK = "mark", TargetKind.CLUSTER_NODE, Action.MARK
    UNMARK = "unmark", TargetKind.CLUSTER_NODE, Action.UNDO
    # Slurm gives a node with a failing GPU no new jobs: those on it run to their end.
    SLURM_DRAIN = "slurm_drain", TargetKind.SLURM_NODE, Action.ISOLATE
    # Of a drain of our own: the node is well.
    SLURM_RESUME = "slurm_resume", TargetKind.SLURM_NODE, Action.UNDO


def _that(*actions: Action) -> frozenset[Verb]:
    """Return the verbs with one of these actions."""
    return frozenset(verb for verb in Verb if verb.action in actions)


def _verbs_on(targets: Collection[TargetKind]) -> frozenset[Verb]:
    """Return the verbs that change one of these."""
    return frozenset(verb for verb in Verb if verb.target in targets)


REMOVALS = _that(Action.REMOVE)
PREPARATIONS = _that(Action.PREPARE)
# What the removal of a node consists of, each step of which is judged as the removal itself.
REMOVAL_STEPS = _that(Action.REMOVE, Action.PREPARE, Action.EXPOSE)
# What ends the work of machines or pods: after it, and after what may have been it, the limits count.
WORK_ENDINGS = _that(Action.REMOVE, Action.END_WORK)
# What may end somebody's work: cloud, cluster and agent are asked a last time before it.
ASKED_A_LAST_TIME = REMOVAL_STEPS | WORK_ENDINGS | _that(Action.MOVE_WORK)
ADDITIONS = _that(Action.ADD)
# What takes back what a group wants and its cloud does not give it.
REDUCTIONS = _that(Action.REDUCE)
# A later start or termination ends what a stop has left behind, and so does a later stop.
ENDS_OF_A_STOP = REMOVALS | {Verb.START}
SHIELDINGS = _that(Action.SHIELD, Action.EXPOSE)
# What is asked of a cluster's API server or of Slurm about a node, and of no cloud.
SCHEDULER_CHANGES = _verbs_on({TargetKind.CLUSTER_NODE, TargetKind.SLURM_NODE})
SLURM_CHANGES = _verbs_on({TargetKind.SLURM_NODE})
# What is written down, and nothing else. Nobody decides it.
RECORDS = _verbs_on({TargetKind.RECORD})
# Those of what the cloud does by itself.
CLOUD_RECORDS = RECORDS - {Verb.LEFT_ALONE}
# The guard allows these with exactly these arguments: with others they are another step.
BOUND_TO_ARGUMENTS = _verbs_on({TargetKind.GROUP, TargetKind.WORKLOAD, TargetKind.SLURM_NODE})

THEN = "then"


def prepared_removal(verb: Verb, arguments: Mapping[str, str]) -> Verb:
    """Return the verb; of a step that prepares a removal, that removal."""
    return Verb(arguments.get(THEN, Verb.TERMINATE)) if verb in PREPARATIONS else verb
