"""Which target a step or an intent is about: chosen here, once, by its verb and the id that it names."""

from collections.abc import Sequence
from datetime import datetime

from gpuwatch.clouds import NotFoundError
from gpuwatch.clouds.permit import Permit
from gpuwatch.controller.circuits import NOBODY, Server
from gpuwatch.controller.context import ControllerContext
from gpuwatch.controller.slurm.target import SlurmNodeTarget
from gpuwatch.controller.target import Found, Target
from gpuwatch.controller.target_cluster_node import ClusterNodeTarget
from gpuwatch.controller.target_machine import MachineTarget
from gpuwatch.controller.target_pool import GroupTarget, PoolTarget
from gpuwatch.controller.target_workload import WorkloadTarget
from gpuwatch.model.decision import Intent, Observation, OpenIntent, Status, Step
from gpuwatch.model.kubernetes import is_workload
from gpuwatch.model.verbs import TargetKind, Verb
from gpuwatch.policies.slurm_sick import NODE as SLURM_NODE


class RecordTarget(Target):
    """What others have done: it is on record, and nothing is asked."""

    def servers(self, _observation: Observation, _step: Step) -> tuple[Server, ...]:
        """Return nobody: there is nothing to ask."""
        return (NOBODY,)

    def ask(self, intent: Intent, _observation: Observation, _permit: Permit) -> tuple[Status, str]:
        """Refuse: nobody decides a record."""
        raise NotFoundError(f"there is nothing to ask for a record of {intent.verb.value}")

    def outcome_of(self, _entry: OpenIntent) -> Found:
        """Return that it is over: to be written down was all."""
        return Status.SETTLED, "it is written down"


class Targets:
    """The targets of one round, one of each kind."""

    def __init__(self, parts: ControllerContext, resumed: Sequence[tuple[str | None, datetime]] = ()) -> None:
        """Nothing is asked yet; `resumed` are the orders to resume a pool."""
        machine = MachineTarget(parts)
        self._of_kind: dict[TargetKind, Target] = {
            TargetKind.MACHINE: machine,
            TargetKind.POOL: PoolTarget(parts, resumed),
            TargetKind.GROUP: GroupTarget(parts),
            TargetKind.CLUSTER_NODE: ClusterNodeTarget(parts, machine),
            TargetKind.WORKLOAD: WorkloadTarget(parts),
            TargetKind.SLURM_NODE: SlurmNodeTarget(parts, machine),
            TargetKind.RECORD: RecordTarget(parts),
        }

    def target_of(self, subject: Step | Intent) -> Target:
        """Return the target that a step or an intent is about; a cordon may be one of a Slurm node."""
        kind = TargetKind.SLURM_NODE if SLURM_NODE in subject.arguments else target_kind(subject.verb, subject.node_id)
        return self._of_kind[kind]


def target_kind(verb: Verb, node_id: str) -> TargetKind:
    """Return the kind of a verb's target; a notice, and its withdrawal, may be about a machine or a workload."""
    return TargetKind.WORKLOAD if is_workload(node_id) else verb.target
