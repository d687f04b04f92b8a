"""A controller of 100,000 GPUs, and of 100,000 nodes of eight: CPU, memory and the ledger's growth, round by round.

The world is in memory, and its agents' answers are at hand: what listing and asking cost is in `clouds` and `signals`.
Nine nodes in ten are busy, every figure of theirs is noise and new in each round, and in each minute one node in a
hundred turns idle and another one goes to work. The ledger is a file. First every idle node is given notice, and one
busy member of a group, the last node of the list, is to be protected; the rounds after it have nothing to do.

All is in seconds of CPU, since other programs of the machine take the rest. The floor of a round is what making its
answers costs; that is not counted in the round. As in `gpuwatch controller`, garbage among all objects is collected
once in ten rounds; a tenth of that is in each round's figure.
"""

import gc
import random
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.ledger import a_signal
from benchmarks.processes import peak_rss_bytes
from gpuwatch.controller.round import ControllerContext, Round, step
from gpuwatch.guard import Limits, Rulebook
from gpuwatch.ledger import Ledger
from gpuwatch.model.activity import Activity, GpuUse, State
from gpuwatch.model.decision import Status, Verb
from gpuwatch.model.fleet import Fleet, GpuVerdict, Node, NodeGroup, NodeReport
from gpuwatch.policies import PoolRules
from gpuwatch.policies.idle import IdleRules
from gpuwatch.runtime.clock import ManualClock
from gpuwatch.runtime.scheduler import INTERVALS_A_COLLECTION, SteadyScheduler, schedule_collections
from tests.support.builders.fleet import NOW, FakeFleet, a_node, a_verdict

_GPUS = 8
_GOALS = {100_000 // _GPUS: 2.0, 100_000: 4.0}  # nodes, and the seconds that a steady round of them may take
_GOAL_MB = 400.0  # of memory on top of the world's own, at the most nodes
_GOAL_BYTES = 0.25  # of a whole round's, at the most nodes
_ROUNDS = 5
_POOLS = 20
_VARIANTS = 64  # of the noise of nodes that do the same since the same minute
_SPELLS = 60  # minutes over which the beginnings of work and rest are spread
_MINUTE = 60.0
_RULES = PoolRules(min_nodes=0, warm_up=900.0, idle=IdleRules(timeout=1800.0, grace_period=86400.0))
_MEMBER, _GROUP = "i-member", "g-1"
_MEGABYTE, _KIB = 1e6, 1 << 10


@dataclass(slots=True, kw_only=True)
class _Seen:
    """What a process saw that ran the story for one size of fleet: seconds of CPU, bytes, and counts."""

    notices: int = 0
    calls_before_protect: int = 0
    first: float = 0.0
    first_world: float = 0.0
    steady: list[float] = field(default_factory=list)
    world: list[float] = field(default_factory=list)
    whole_bytes: float = 0.0
    steady_bytes: list[float] = field(default_factory=list)
    extra_rss: float = 0.0


@dataclass(slots=True)
class _World(FakeFleet):
    """A fleet whose agents' answers of the next round are made before it begins."""

    chance: random.Random = field(default_factory=lambda: random.Random(1))
    answers: dict[str, Node] = field(default_factory=dict)

    def nodes(self) -> tuple[Node, ...]:
        """All machines, as they were put here: without signals."""
        return tuple(self.nodes_.values())

    def observe(self, nodes: Sequence[Node]) -> Fleet:
        """The same machines with their answers."""
        return Fleet(observed_at=self.clock.now(), nodes=tuple([self.answers[node.id] for node in nodes]))

    def answer_all(self, minute: int) -> None:
        """Make the answers of a minute."""
        now, noise = self.clock.now(), dict[tuple[State, int, int], list[tuple[Activity, GpuUse]]]()
        made = dict[str, Node]()
        for number, (node_id, node) in enumerate(self.nodes_.items()):
            state, begun = _does(number, minute) if node_id != _MEMBER else (State.BUSY, -2 * _SPELLS)
            key = (state, begun, number % _VARIANTS)
            if key not in noise:
                since = begun * _MINUTE - key[2]
                noise[key] = [self._gpu(index, state, minute * _MINUTE, since) for index in range(_GPUS)]
            parts = noise[key]
            gpus = tuple(
                [
                    GpuVerdict(uuid=f"GPU-{node_id}-{index}", index=index, activity=activity, use=use)
                    for index, (activity, use) in enumerate(parts)
                ]
            )
            verdict = a_verdict(node_id, gpus=0, age=self.chance.random(), at=now)
            signal = NodeReport(verdict=replace(verdict, activity=parts[0][0], gpus=gpus), received_at=now)
            made[node_id] = replace(node, signal=signal)
        self.answers = made

    def _gpu(self, index: int, state: State, now: float, begun: float) -> tuple[Activity, GpuUse]:
        signals = (a_signal(self.chance, f"gpu{index}.{name}") for name in ("util", "power", "pcie", "sm"))
        activity = Activity(
            state=state,
            since=NOW + timedelta(seconds=begun),
            held_seconds=now - begun,
            evidence=tuple(signals),
        )
        random_ = self.chance.random
        return activity, GpuUse(over_seconds=300.0, utilization_ratio=random_(), memory_used_ratio=random_())


def _does(number: int, minute: int) -> tuple[State, int]:
    """What a node does in a minute, and since which: one in ten rests, and one in a hundred does for that minute."""
    begun = -2 * _SPELLS - number % _SPELLS
    if number % 10 == 0:
        return State.IDLE, begun
    if number % 10 != 1:
        return State.BUSY, begun
    turn = (minute - number // 10) % 10  # minutes since its last rest
    if minute < turn:
        return State.BUSY, begun
    return (State.BUSY, minute - turn + 1) if turn else (State.IDLE, minute)


def measure() -> Iterator[Figure]:
    """All figures."""
    for count, goal in _GOALS.items():
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:  # a fresh one, for its memory
            seen = process.submit(_story, count).result()
        yield from _figures(count, goal, seen, most=count == max(_GOALS))


def _figures(count: int, goal: float, seen: _Seen, *, most: bool) -> Iterator[Figure]:
    fleet = f"{count:,} nodes" if most else f"{count * _GPUS:,} GPUs ({count:,} nodes)"
    made = "making its answers"
    yield Figure(
        name=f"steady round of {fleet}, CPU",
        unit="s",
        runs=seen.steady,
        floor=made,
        floor_runs=seen.world,
        at_most=goal,
    )
    yield Figure(
        name=f"first round, {seen.notices:,} notices, CPU",
        unit="s",
        runs=[seen.first],
        floor=made,
        floor_runs=[seen.first_world],
    )
    yield Figure(
        name="calls in it before what protects a busy member",
        unit="",
        runs=[float(seen.calls_before_protect)],
        at_most=0.0,
    )
    yield Figure(
        name="memory on top of the world's own",
        unit="MB",
        runs=[seen.extra_rss / _MEGABYTE],
        at_most=_GOAL_MB if most else None,
    )
    yield Figure(
        name="ledger's growth in a steady round",
        unit="KiB",
        runs=[size / _KIB for size in seen.steady_bytes],
        floor="in the first of its hour",
        floor_runs=[seen.whole_bytes / _KIB],
        ratio_at_most=_GOAL_BYTES if most else None,
    )


def _story(count: int) -> _Seen:
    """A first round, and steady ones a minute apart."""
    clock, seen = ManualClock(wall=NOW), _Seen()
    world = _a_world(count, clock)
    world.answer_all(0)
    last: Round | Fleet = world.observe(world.nodes())  # of a round a controller keeps what it saw until the next
    world.answer_all(0)
    own_rss = peak_rss_bytes()
    schedule_collections(SteadyScheduler(clock), _MINUTE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        parts = ControllerContext(
            clock=clock,
            cloud=world,
            signals=world,
            ledger=Ledger.open(path),
            rules=_rules_of(world),
            priced_singly=lambda _now: frozenset(),  # as a book of prices without lines for single machines
        )
        for minute in range(_ROUNDS + 1):
            begin = time.process_time()
            world.answer_all(minute)
            made = time.process_time() - begin
            grown = _used_bytes(path)
            begin = time.process_time()
            last = done = step(parts)
            parts.ledger.compact(clock.now())
            seconds = time.process_time() - begin
            grown = _used_bytes(path) - grown
            if minute == 0:
                seen = _first(done, world, replace(seen, first=seconds, first_world=made, whole_bytes=grown))
            elif done.acts or done.trouble:
                message = f"a steady round made {len(done.acts)} steps; {done.trouble or ''}"
                raise RuntimeError(message)
            else:
                seen.steady.append(seconds)
                seen.world.append(made)
                seen.steady_bytes.append(grown)
            clock.advance(_MINUTE)
        begin = time.process_time()
        gc.collect()
        share = (time.process_time() - begin) / INTERVALS_A_COLLECTION
        seen.steady[:] = [seconds + share for seconds in seen.steady]
        parts.ledger.close()
    del last
    return replace(seen, extra_rss=float(peak_rss_bytes() - own_rss))


def _a_world(count: int, clock: ManualClock) -> _World:
    world = _World(clock=clock)
    for number in range(count - 1):
        node = a_node(f"i-{number:017x}", pool=f"pool-{number % _POOLS:02}", gpu_count=_GPUS, signal=NodeReport())
        world.nodes_[node.id] = node
    group = NodeGroup(id=_GROUP, name="g", pool="pool-z", min_size=0, max_size=1, desired=1, region="us-east-1")
    world.groups_[_GROUP] = replace(group, node_ids=(_MEMBER,), enrolled=True)
    member = a_node(_MEMBER, pool="pool-z", gpu_count=_GPUS, group=_GROUP, signal=NodeReport())
    world.nodes_[_MEMBER] = member
    return world


def _rules_of(world: _World) -> Rulebook:
    pools = dict.fromkeys(sorted({node.pool for node in world.nodes_.values()}), _RULES)
    return Rulebook(pools=pools, limits=Limits(), enforce=True)


def _first(done: Round, world: _World, seen: _Seen) -> _Seen:
    """What the first round did, which must be all that it was to do."""
    verbs = [act.review.step.verb for act in done.acts if act.outcome.status in {Status.SETTLED, Status.ACCEPTED}]
    idle = len(range(0, len(world.nodes_) - 1, 10))
    if sorted(verbs) != sorted([Verb.PROTECT, *[Verb.NOTICE] * idle]):
        message = f"the first round of {len(world.nodes_):,} nodes did {Counter(verbs)}, not {idle} notices"
        raise RuntimeError(message)
    calls = [call for call, _, _ in world.calls]
    return replace(seen, notices=verbs.count(Verb.NOTICE), calls_before_protect=calls.index("protect"))


def _used_bytes(path: Path) -> float:
    """What the ledger's pages hold; the journal goes into the file first."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        figures = ("page_count", "freelist_count", "page_size")
        pages, free, size = (db.execute(f"PRAGMA {each}").fetchone()[0] for each in figures)
    return float((pages - free) * size)
