"""Machines that are nodes of a Slurm cluster: their GPUs, sick or well, and the desk with both sides of them."""

from dataclasses import dataclass, field, replace
from datetime import timedelta

from gpuwatch.controller.context import LiveParts
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Verb
from gpuwatch.model.fleet import Node, NodeReport, NodeState
from gpuwatch.model.health import Finding, GpuHealth, Health, Remedy
from gpuwatch.policies.health_settings import HealthRules
from tests.support.builders.fleet import NOW, RULES, Desk, a_node, a_verdict
from tests.support.fakes.slurm import FakeSlurm

KEY = "gpuwatch-0a1b2c-7-89abcdef"
DRAINING = replace(RULES, health=HealthRules(action="drain", max_cordoned_ratio=0.5))
XID_79 = Finding(
    code="xid_79",
    health=Health.FAILING,
    sentence="The GPU has fallen off the bus.",
    remedy=Remedy.REBOOT,
    source="XID 79",
)


def a_report(health: Health | None = Health.HEALTHY, state: State = State.BUSY) -> NodeReport:
    """An agent that calls its GPUs so; None: it says nothing of their health."""
    verdict = a_verdict(state=state)
    findings = (XID_79,) if health is Health.FAILING else ()
    said = None if health is None else GpuHealth(state=health, since=NOW, findings=findings)
    return NodeReport(verdict=replace(verdict, gpus=tuple(replace(gpu, health=said) for gpu in verdict.gpus)))


def a_slurm_machine(number: int, health: Health | None = Health.HEALTHY, **other: object) -> Node:
    """The machine i-<number> at work; its node in Slurm is gpu-<number>, by its name."""
    return replace(a_node(f"i-{number}", name=f"gpu-{number}", signal=a_report(health)), **other)  # type: ignore[arg-type]


@dataclass(slots=True)
class SlurmDesk(Desk):
    """A controller over machines and the Slurm cluster that they are nodes of."""

    slurm: FakeSlurm = field(default_factory=FakeSlurm)
    has_slurm: bool = True  # in the settings

    @property
    def parts(self) -> LiveParts:
        """What step() takes."""
        return replace(super(SlurmDesk, self).parts, slurm=self.slurm if self.has_slurm else None)

    def turn(self, number: int, health: Health | None) -> None:
        """The GPUs of that machine become so."""
        self.fleet.put(a_slurm_machine(number, health))
        self.rest(0.0)

    def rest(self, seconds: float) -> None:
        """Time passes; each agent goes on saying of its GPUs what it said, for so much longer."""
        self.clock.advance(seconds)
        for node in list(self.fleet.nodes_.values()):
            if node.state is NodeState.RUNNING and node.verdict is not None:
                shown = node.verdict
                longer = [
                    replace(each, held_seconds=each.held_seconds + seconds)
                    for each in (shown.activity, *(gpu.activity for gpu in shown.gpus))
                ]
                verdict = replace(
                    shown,
                    at=self.clock.now() - timedelta(seconds=1),
                    activity=longer[0],
                    gpus=tuple(replace(gpu, activity=each) for gpu, each in zip(shown.gpus, longer[1:], strict=True)),
                )
                self.fleet.put(replace(node, signal=NodeReport(verdict=verdict)))

    def done(self, number: int = 1) -> list[tuple[Verb, str]]:
        """What the ledger holds of a machine and how each ended, the oldest first."""
        entries = reversed(list(self.ledger.history(f"i-{number}", limit=50)))
        return [(each.intent.verb, each.outcomes[-1].status.value if each.outcomes else "open") for each in entries]


def a_slurm_desk(machines: int = 4, **other: object) -> SlurmDesk:
    """So many working machines and nodes; the GPU of the first is failing."""
    desk = SlurmDesk(**{"rules": DRAINING, **other})  # type: ignore[arg-type]
    for number in range(1, machines + 1):
        desk.turn(number, Health.FAILING if number == 1 else Health.HEALTHY)
        desk.slurm.put(f"gpu-{number}", "MIXED" if number == 1 else "IDLE")
    return desk
