"""A day of hosts with power: stopped by their own agents when idle, woken by the schedule, and the power cut anywhere.

The controller is real, and so are the provider and the packets on loopback. The hosts are not: one goes down within a
minute after its agent's yes, and comes up within a minute after its packet, unless it is broken.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

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
from gpuwatch.model.money import SAVES
from gpuwatch.model.power import PowerAnswer, PowerQuestion
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from tests.support.builders.fleet import NOW, a_verdict
from tests.support.builders.money import a_price
from tests.support.clouds.hosts.bmc import MAC, ONE, TWO, Woken
from tests.support.clouds.idle_agents import IdleAgents
from tests.support.clouds.lives import Recorded
from tests.support.crash_points import Fate, Mortal, PowerCut

_DAY = Window(hours=f"{NOW.hour + 1:02}:00-{NOW.hour + 3:02}:00", zone="UTC", min_nodes=2)
RULES = PoolRules(
    profile="cautious",
    warm_up=300.0,
    idle=IdleRules(timeout=300.0, grace_period=60.0, action="stop"),
    schedule={"day": _DAY},
)
LIMITS = Limits(max_stops_per_hour_ratio=1.0)
PRICE = a_price("0.68")
CUTS = (" stop", " start", " settle")  # in CI, around the first of each; all of them with NIGHTLY_LIVES
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


def test_an_idle_host_is_powered_off_and_woken_by_the_schedule_and_the_busy_one_is_never_asked() -> None:
    """Notice, grace, last question, its agent's yes, settled as stopped; then a packet, and settled as running."""
    with a_rack() as rack:
        for _ in range(NIGHT):
            rack.round()
            rack.rest()
        assert (rack.state(ONE), rack.state(TWO)) == (NodeState.STOPPED, NodeState.RUNNING)
        stop = rack.ledger.history(ONE, limit=1)[0].intent
        assert stop.arguments[SAVES] == "0"  # its price is paid all the same
        assert rack.told(ONE)[-2:] == [(Verb.NOTICE, Status.SETTLED), (Verb.STOP, Status.SETTLED)]
        for _ in range(DAY):
            rack.round()
            rack.rest()
        assert rack.state(ONE) is NodeState.RUNNING
        assert (Verb.START, Status.SETTLED) in rack.told(ONE)
        assert [node for node, off in rack.questions if off] == [ONE]


def test_a_host_that_does_not_come_up_is_told_and_never_counts_as_running() -> None:
    """Its packet is sent again, some times; the start has failed, and the pool's owner gets a message."""
    with a_rack() as rack:
        rack.broken = True
        for _ in range(NIGHT + DAY + 40):
            rack.round()
            rack.rest()
        assert rack.state(ONE) is NodeState.STOPPED
        assert (Verb.START, Status.SETTLED) not in rack.told(ONE)
        assert (Verb.LEFT_ALONE, Status.SETTLED) in rack.told(ONE)


def test_a_host_that_its_owner_switched_off_is_unknown_and_is_not_woken() -> None:
    """P24: it was not our stop, however much the schedule wants it."""
    with a_rack() as rack:
        for _ in range(3):
            rack.round()
            rack.rest()
        rack.on.discard(ONE)
        for _ in range(NIGHT + DAY):
            rack.round()
            rack.rest()
        assert rack.state(ONE) is NodeState.UNKNOWN
        assert {verb for verb, _ in rack.told(ONE)} <= {Verb.NOTICE, Verb.WITHDRAW}
        assert ONE not in rack.on


def boundaries() -> list[str]:
    """Every call that leaves the process or is written down in a day without a cut."""
    with a_rack() as rack:
        fate = Fate(0)
        for _ in range(NIGHT + DAY):
            rack.round(fate.die)
            rack.rest()
        return fate.passed


def test_a_power_cut_anywhere_leaves_the_day_as_it_was() -> None:
    """One poweroff, the busy host untouched, no intent open for ever, and the host is back by day."""
    passed = boundaries()
    around = [passed.index(call) for call in ("before stop", "before start")]
    near = [first + at for first in around for at in range(1, 16) if passed[first + at - 1].endswith(CUTS)]
    every = range(1, len(passed) + 1) if "NIGHTLY_LIVES" in os.environ else near
    for cut in every:
        with a_rack() as rack:
            fate = Fate(cut)
            for _ in range(NIGHT + DAY):
                try:
                    rack.round(fate.die)
                except PowerCut:
                    rack.restart()
                rack.rest()
            where = f"cut {cut} ({passed[cut - 1]})"
            assert [node for node, off in rack.questions if off] == [ONE], where
            # An order of which no yes is on record leaves silence unknown, and such a host to its owner.
            unknown = "after stop" in passed[cut - 2 : cut]
            assert (rack.on, rack.state(ONE)) == (
                ({TWO}, NodeState.UNKNOWN) if unknown else ({ONE, TWO}, NodeState.RUNNING)
            ), where
            assert [
                e.intent.verb for e in rack.ledger.view(rack.clock.now()).open_intents if e.intent.verb is Verb.STOP
            ] == [], where
