"""Two hosts with power, of which one is idle, and a real controller over them: by Wake-on-LAN, or by their BMCs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpuwatch.clouds import CloudUnavailableError
from gpuwatch.clouds.hosts.power import magic_packet
from gpuwatch.controller.context import LiveParts, Memory
from gpuwatch.controller.recall import recall
from gpuwatch.controller.round import step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import DEFAULT_POOL, Node, NodeReport, NodeState
from gpuwatch.model.power import PowerAnswer, PowerQuestion
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import NOW, a_verdict
from tests.support.builders.money import a_price
from tests.support.clouds.hosts.bmc import MAC, ONE, TWO, UUIDS, PoweredLab, Woken, powered_lab
from tests.support.clouds.idle_agents import IdleAgents
from tests.support.clouds.lives import Recorded
from tests.support.crash_points import Mortal

_DAY = Window(hours=f"{NOW.hour + 1:02}:00-{NOW.hour + 3:02}:00", zone="UTC", min_nodes=2)
RULES = PoolRules(
    profile="cautious",
    warm_up=300.0,
    idle=IdleRules(timeout=300.0, grace_period=60.0, action="stop"),
    schedule={"day": _DAY},
)
PRICE = a_price("0.68")
NIGHT, DAY = 25, 50  # rounds until the idle host is off, and until it is on again


class Rack(Woken, IdleAgents):
    """Two hosts of which one is busy, and one controller after another over one ledger."""

    def __init__(self) -> None:
        """Both are on."""
        self.on, self.going, self.broken = {ONE, TWO}, set[str](), False
        Woken.__init__(self, both=True)
        self.busy = {TWO}
        self.ledger = Ledger.in_memory()
        self.restart()

    def restart(self) -> None:
        """The controller's process begins anew."""
        self.cloud, self.memory = self.anew(), Memory()
        recall(self.cloud, self.ledger)

    def ask(self, node: Node, question: PowerQuestion, seconds: float | None) -> PowerAnswer:
        """Its agent, where its host is on; asked to, the host goes down."""
        del seconds
        self.questions.append((node.id, question.off))
        if node.id not in self.on:
            raise CloudUnavailableError("its agent did not answer within 5s")
        if question.off:
            self.going.add(node.id)
        return PowerAnswer(node_id=node.id, boot_id=f"{len(self.questions) if node.id not in self.on else 'b'}")

    def confirm(self, node: Node) -> NodeReport:
        """What its agent says of its use."""
        if node.state is not NodeState.RUNNING or node.id not in self.on:
            return NodeReport(failure="its agent did not answer within 5s")
        state, held = (State.BUSY, 0.0) if node.id in self.busy else (State.IDLE, 0.9 * self.clock.monotonic())
        verdict = a_verdict(node.id, state, held, gpus=1, at=self.clock.now())
        gpus = tuple(replace(gpu, uuid=f"GPU-of-{node.id}") for gpu in verdict.gpus)
        return NodeReport(verdict=replace(verdict, gpus=gpus), received_at=self.clock.now())

    def round(self, die: Callable[[str], None] = lambda _: None) -> None:
        """One round; then a minute passes, in which hosts go down and come up."""
        cloud = Mortal(Recorded(self.cloud, self.is_open, lambda *_: None), die)
        parts = LiveParts(
            clock=self.clock,
            cloud=cloud,  # type: ignore[arg-type]
            signals=Mortal(self, die),  # type: ignore[arg-type]
            ledger=Mortal(self.ledger, die),  # type: ignore[arg-type]
            rules=Rulebook(
                pools={"train": RULES, DEFAULT_POOL: RULES}, limits=Limits(max_stops_per_hour_ratio=1.0), enforce=True
            ),
            memory=self.memory,
            prices=lambda _hire, _at: PRICE,
        )
        step(parts)

    def rest(self, seconds: float = 60.0) -> None:
        """So much time passes."""
        self.on -= self.going
        self.going.clear()
        if magic_packet(MAC) in self.packets() and not self.broken:
            self.on.add(ONE)
        self.clock.advance(seconds)

    def is_open(self, key: str) -> bool:
        """Whether the ledger has an open intent of that key (P12)."""
        return any(entry.intent.key == key for entry in self.ledger.view(self.clock.now()).open_intents)

    def told(self, node_id: str) -> list[tuple[Verb, Status]]:
        """What was done to a host, oldest first, and how it ended."""
        history = reversed(self.ledger.history(node_id, limit=1000))
        return [(each.intent.verb, each.outcomes[-1].status) for each in history if each.outcomes]

    def state(self, node_id: str) -> NodeState | None:
        """A host in the newest round."""
        (line, *_) = self.ledger.rounds(1)
        found = self.ledger.observation(line.id).fleet.find(node_id)
        return None if found is None else found.state


@contextmanager
def a_rack() -> Iterator[Rack]:
    """It, with its network."""
    rack = Rack()
    try:
        yield rack
    finally:
        rack.heard.close()


class RackWithBmcs(Rack):
    """The same two hosts behind BMCs; a host that `hangs` has no agent, and its BMC shows it on."""

    def __init__(self, lab: PoweredLab) -> None:
        """Both are on."""
        del lab.settings.machines["gpu-3"]  # it has no power
        self.clock, self.settings, self.bmcs, self.busy = lab.clock, lab.settings, lab.bmcs, {TWO}
        self.questions, self.hangs = [], set[str]()
        self.ledger = Ledger.in_memory()
        self.restart()

    def ask(self, node: Node, question: PowerQuestion, seconds: float | None) -> PowerAnswer:
        """With its system UUID."""
        self.on = {name for name, bmc in self.bmcs.items() if bmc.power == "On"} - self.hangs
        return replace(super().ask(node, question, seconds), system_uuid=UUIDS[node.id], boot_id="b")

    def rest(self, seconds: float = 60.0) -> None:
        """So much time passes."""
        self.clock.advance(seconds)
        self.on = {name for name, bmc in self.bmcs.items() if bmc.power == "On"} - self.hangs


@contextmanager
def a_rack_with_bmcs(folder: Path) -> Iterator[RackWithBmcs]:
    """It, with BMCs over TLS on loopback."""
    with powered_lab(folder) as lab:
        rack = RackWithBmcs(lab)
        rack.rest(0.0)
        yield rack
