"""What the ledger costs: recording a round, the view that every round asks for, the audit, and bytes on disk."""

import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

from sqlalchemy import select

from benchmarks.figures import Figure
from benchmarks.processes import peak_rss_bytes
from gpuwatch.ledger import Ledger
from gpuwatch.ledger.tables import BODIES
from gpuwatch.model.activity import Evidence, GpuUse, State
from gpuwatch.model.decision import Decision, Observation, Proposal, Reason, Status, Step, Verb
from gpuwatch.model.duration import format_duration
from gpuwatch.model.fleet import Fleet, Node, NodeReport
from tests.support.builders.fleet import NOW, a_node, a_verdict, an_activity

_COUNTS = (1_000, 12_500)
_GPUS = 8
_RUNS = 3
_INTENTS = 20_000  # of an old ledger
_MIB = 1 << 20
_KIB = 1 << 10
_REASON = Reason(code="young", sentence="It has been idle for 12m, not yet for 30m.")


@dataclass(frozen=True, slots=True)
class _Seen:
    """One process's story: seconds and bytes."""

    record: list[float]
    read: list[float]
    round_bytes: list[float]
    extra_rss: float


@dataclass(slots=True)
class _Aged:
    """An old ledger beside a new one, in seconds."""

    young: list[float] = field(default_factory=list)
    old: list[float] = field(default_factory=list)
    audit: list[float] = field(default_factory=list)


def measure() -> Iterator[Figure]:
    """All figures."""
    seen: dict[int, _Seen] = {}
    for count in _COUNTS:  # each in a fresh process, for its memory
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            seen[count] = process.submit(_story, count).result()
    small, large = _COUNTS
    linear = f"{small:,} nodes; {large / small:g}x is linear"
    yield _figure(f"record a round of {large:,} nodes", "ms", seen[large].record, 1e3, linear, seen[small].record)
    yield _figure(f"read it back ({large:,} nodes)", "ms", seen[large].read, 1e3, linear, seen[small].read)
    yield _figure(
        f"bytes of that round ({large:,} nodes)",
        "KiB",
        seen[large].round_bytes,
        1 / _KIB,
        linear,
        seen[small].round_bytes,
    )
    whole, later = _hour(small)
    yield _figure(
        f"bytes of a round of {small:,} nodes, 9 in 10 busy as before",
        "KiB",
        later,
        1 / _KIB,
        "the first of its hour",
        whole,
    )
    extra = "likewise of " + linear
    rss = ([seen[large].extra_rss], [seen[small].extra_rss])
    yield _figure(f"memory that recording {large:,} nodes takes", "MiB", rss[0], 1 / _MIB, extra, rss[1])
    aged = _age()
    yield _figure(f"view after {_INTENTS:,} intents", "ms", aged.old, 1e3, "after none", aged.young)
    yield _figure(f"audit of {2 * _INTENTS:,} links", "ms", aged.audit, 1e3, "view after none", aged.young)


def _figure(name: str, unit: str, runs: list[float], scale: float, floor: str, floor_runs: list[float]) -> Figure:
    return Figure(
        name=name,
        unit=unit,
        runs=[run * scale for run in runs],
        floor=floor,
        floor_runs=[run * scale for run in floor_runs],
    )


def _story(count: int) -> _Seen:
    """Rounds of a fleet whose every number is noise, which compresses worst."""
    chance = random.Random(count)
    nodes = tuple(_node(chance, number) for number in range(count))
    steps = tuple(Step(node_id=node.id, verb=Verb.HOLD, reason=_REASON, change="More idle time.") for node in nodes)
    proposal = Proposal(policy="idle", pool="default", reason=_REASON, steps=steps)
    decision = Decision(pool="default", steps=steps)
    record: list[float] = []
    read: list[float] = []
    size: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        ledger = Ledger.open(path)
        before = peak_rss_bytes()
        extra = 0.0
        for run in range(_RUNS):
            now = NOW + timedelta(minutes=run)
            began = _size(path)
            observation = Observation(now=now, fleet=Fleet(observed_at=now, nodes=nodes))
            begin = time.perf_counter()
            number = ledger.record_round(observation, (proposal,), (decision,))
            record.append(time.perf_counter() - begin)
            ledger.close()  # the journal goes into the file
            ledger = Ledger.open(path)
            size.append(_size(path) - began)
            extra = extra or peak_rss_bytes() - before  # of recording alone; reading back comes next
            begin = time.perf_counter()
            if ledger.round(number).observation != observation:
                raise RuntimeError("the round came back as another")
            read.append(time.perf_counter() - begin)
        ledger.close()
    return _Seen(record=record, read=read, round_bytes=size, extra_rss=extra)


def _hour(count: int) -> tuple[list[float], list[float]]:
    """Bytes of the first round of an hour, and of a later one; every figure is noise in both."""
    whole: list[float] = []
    later: list[float] = []
    for run in range(_RUNS):
        chance = random.Random(run)
        with closing(Ledger.in_memory()) as ledger:
            for minute, sizes in enumerate((whole, later)):
                now = NOW + timedelta(minutes=minute)
                nodes = tuple(_worker(chance, number, now, minute) for number in range(count))
                steps = tuple(_busy_step(node) for node in nodes)
                decision = Decision(pool="default", steps=steps)
                proposal = Proposal(policy="idle", pool="default", reason=_REASON, steps=steps)
                observation = Observation(now=now, fleet=Fleet(observed_at=now, nodes=nodes))
                number = ledger.record_round(observation, (proposal,), (decision,))
                with ledger.store.reading() as db:
                    body = db.execute(select(BODIES.c.body).where(BODIES.c.round_id == number)).scalar_one()
                sizes.append(float(len(body)))
    return whole, later


def _worker(chance: random.Random, number: int, now: datetime, minute: int) -> Node:
    """A node at work, and every tenth an idle one."""
    state = State.BUSY if number % 10 else State.IDLE
    node = _node(chance, number)
    verdict, held = node.signal.verdict, 7200.0 + number + 60 * minute
    if verdict is None:
        raise RuntimeError("a node of this benchmark has a verdict")
    activity = replace(an_activity(state, held, now=now), evidence=verdict.gpus[0].activity.evidence)
    gpus = tuple(
        replace(
            gpu,
            uuid=f"GPU-{number:x}-{gpu.index}",
            activity=replace(activity, evidence=gpu.activity.evidence),
            use=GpuUse(over_seconds=300.0, utilization_ratio=chance.random(), memory_used_ratio=chance.random()),
        )
        for gpu in verdict.gpus
    )
    at = now - timedelta(seconds=chance.random())
    signal = replace(node.signal, verdict=replace(verdict, at=at, activity=activity, gpus=gpus), received_at=now)
    return replace(node, signal=signal)


def _busy_step(node: Node) -> Step:
    held = format_duration(node.activity.held_seconds)
    reason = Reason(code="busy", sentence=f"It has been busy for {held}.", evidence=node.activity.evidence)
    return Step(node_id=node.id, verb=Verb.HOLD, reason=reason, change="It would have to be idle for 30m.")


def _size(path: Path) -> float:
    return float(path.stat().st_size)


def _node(chance: random.Random, number: int) -> Node:
    """A node with eight GPUs, four signals each."""
    verdict = a_verdict(f"i-{number:017x}", gpus=_GPUS)
    gpus = tuple(
        replace(
            gpu,
            uuid=f"GPU-{chance.getrandbits(128):032x}",
            activity=replace(
                gpu.activity,
                held_seconds=7200 * chance.random(),
                evidence=tuple(a_signal(chance, f"gpu{gpu.index}.{name}") for name in ("util", "power", "pcie", "sm")),
            ),
        )
        for gpu in verdict.gpus
    )
    signal = NodeReport(verdict=replace(verdict, gpus=gpus, age_seconds=chance.random()))
    return a_node(f"i-{number:017x}", gpu_count=_GPUS, signal=signal)


def a_signal(chance: random.Random, name: str) -> Evidence:
    """One signal whose figure is noise."""
    return Evidence(name=name, says=State.IDLE, observed=chance.random(), limit=0.01, unit="ratio", source="NVML")


def _age() -> _Aged:
    """Views of a ledger of years, none of it recent."""
    seen = _Aged()
    ledger = Ledger.in_memory()
    _look(ledger, NOW, seen.young)
    round_id = ledger.record_round(Observation(now=NOW, fleet=Fleet(observed_at=NOW, nodes=())))
    long_ago = NOW - timedelta(days=300)
    for number in range(_INTENTS):
        intent = ledger.intend(Verb.STOP, f"i-{number % 500}", "default", long_ago, _REASON, round_id)
        ledger.settle(intent, Status.CANCELLED, "vetoed at the last moment", long_ago)
    _look(ledger, NOW, seen.old)
    for _ in range(_RUNS):
        begin = time.perf_counter()
        found = ledger.audit()
        seen.audit.append(time.perf_counter() - begin)
        if found.broken is not None:
            raise RuntimeError(str(found.broken))
    ledger.close()
    return seen


def _look(ledger: Ledger, now: datetime, times: list[float]) -> None:
    for _ in range(20):
        begin = time.perf_counter()
        ledger.view(now)
        times.append(time.perf_counter() - begin)
