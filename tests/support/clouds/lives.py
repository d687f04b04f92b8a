"""A controller over a provider's fake: rounds of a minute, restarts, and what the cloud itself holds in the end.

Three pools: an idle machine of `solo` is stopped, an idle member of `group` is ended with its place, and `train` lacks
a machine, which is launched. Somebody works on another machine and on another member.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuwatch.clouds import POOL_TAG, Cloud
from gpuwatch.controller.context import LiveParts, Memory
from gpuwatch.controller.recall import recall
from gpuwatch.controller.round import Round, step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import NodeState
from gpuwatch.policies import PoolRules
from gpuwatch.policies.capacity import LaunchRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.policies.schedule import Window
from tests.support.clouds.fault_worlds import MINE, FaultWorld, WithGroups, a_fault_world
from tests.support.clouds.idle_agents import IdleAgents
from tests.support.crash_points import Mortal

SOLO, GROUP, TRAIN = "solo", "group", "train"
GRACE = 60.0
DOWN = frozenset({NodeState.STOPPED, NodeState.STOPPING})
ENDED = frozenset({NodeState.TERMINATING, NodeState.TERMINATED, None})
# Some fakes have machine types with local disks only.
_IDLE = IdleRules(timeout=600.0, grace_period=GRACE, action="stop", instance_store="discard")
_LONG = 3 * 3600.0
_CHANGES = ("stop", "start", "terminate", "launch", "grow", "protect", "tag")


@dataclass(slots=True)
class Recorded:
    """A cloud that is asked for no change whose intent is not on record and open (P12)."""

    inner: Cloud
    is_open: Callable[[str], bool]
    watch: Callable[[str, str, str], None]  # the change, its key, and what it is about

    def __getattr__(self, name: str) -> object:
        """Each of its methods."""
        method = getattr(self.inner, name)
        if name not in _CHANGES:
            return method

        def change(*args: str, **options: object) -> object:
            key = args[2] if name in {"grow", "protect", "tag"} else args[1]
            assert self.is_open(key), f"P12: a {name} without an open record, {key}"
            self.watch(name, key, args[0])
            return method(*args, **options)

        return change


@dataclass(slots=True)
class CloudLife:
    """One controller after another over one account and one ledger."""

    world: FaultWorld
    ledger: Ledger = field(default_factory=Ledger.in_memory)
    memory: Memory = field(default_factory=Memory)
    limits: Limits = field(default_factory=lambda: Limits(max_stops_per_hour_ratio=1.0))
    watch: Callable[[str, str, str], None] = lambda _change, _key, _target: None
    agents: IdleAgents = field(init=False)
    cloud: Cloud = field(init=False)
    idle: str = field(init=False)
    busy: str = field(init=False)
    members: list[str] = field(init=False)
    grouped: bool = field(init=False)

    def __post_init__(self) -> None:
        """The machines have been up for long."""
        world = self.world
        self.agents = IdleAgents(world.clock)
        region = world.regions[0]
        self.idle, self.busy = (world.launch({**MINE, POOL_TAG: SOLO}, region=region) for _ in "ab")
        self.grouped = isinstance(world, WithGroups) and "grow" in world.calls
        before = set(world.ids())
        if isinstance(world, WithGroups) and self.grouped:
            world.add_group("g", {**MINE, POOL_TAG: GROUP}, size=2)
        self.members = sorted(set(world.ids()) - before)
        self.agents.busy = {self.busy, *self.members[1:]}
        world.clock.advance(_LONG)
        world.settle(self.busy)
        self.restart()

    def restart(self) -> None:
        """The controller's process begins anew: the ledger is all that it knows."""
        self.cloud, self.memory = self.world.anew(), Memory()
        recall(self.cloud, self.ledger)

    def parts(self, die: Callable[[str], None] | None = None) -> LiveParts:
        """What a round takes; `die` has a chance around every call that leaves the process or is written down."""
        cloud: object = Recorded(self.cloud, self.is_open, self.watch)
        signals: object = self.agents
        ledger: object = self.ledger
        if die is not None:
            cloud, signals, ledger = (Mortal(each, die) for each in (cloud, signals, ledger))
        return LiveParts(
            clock=self.world.clock,
            cloud=cloud,  # type: ignore[arg-type]
            signals=signals,  # type: ignore[arg-type]
            ledger=ledger,  # type: ignore[arg-type]
            rules=self.rulebook,
            memory=self.memory,
        )

    @property
    def rulebook(self) -> Rulebook:
        """The three pools."""
        idle = PoolRules(profile="cautious", warm_up=900.0, idle=_IDLE)
        window = Window(hours="00:00-24:00", min_nodes=1)
        launch = LaunchRules(**{name: value for name, value in self.world.arguments.items() if name != "pool"})  # type: ignore[arg-type]
        pools = {
            SOLO: replace(idle, min_nodes=1),
            GROUP: replace(idle, idle=replace(_IDLE, action="terminate")),
            TRAIN: replace(idle, schedule={"day": window}, launch=launch),
        }
        limits = replace(self.limits, failure_cooldown=300.0)
        return Rulebook(pools=pools, limits=limits, enforce=True)

    def round(self, die: Callable[[str], None] | None = None) -> Round:
        """One round; time stands still."""
        return step(self.parts(die))

    def rest(self, seconds: float = 60.0) -> None:
        """Time passes, in the cloud as well."""
        self.world.clock.advance(max(0.0, seconds - 60.0))
        self.world.settle(self.busy)

    def launched(self) -> list[str]:
        """Machines that are there and were not at the beginning."""
        mine = {self.idle, self.busy, *self.members}
        return [each for each in self.world.ids() if each not in mine and self.world.state(each) not in ENDED]

    def settled(self, node_id: str, verb: Verb) -> int:
        """How often the ledger says that this was done to a machine."""
        entries = self.ledger.history(node_id, limit=1000)
        return sum(each.intent.verb is verb and each.outcomes[-1].status is Status.SETTLED for each in entries)

    def is_open(self, key: str) -> bool:
        """Whether the ledger has an open intent of that key."""
        return any(entry.intent.key == key for entry in self.ledger.view(self.world.clock.now()).open_intents)


@contextmanager
def a_life(name: str, folder: Path) -> Iterator[CloudLife]:
    """Over the fake of that provider."""
    with a_fault_world(name, folder) as world:
        yield CloudLife(world)
