"""Weeks of an agent's life in seconds: neither what it remembers nor what it shows grows with its age."""

import gc
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.devices.messages import Cycle, End, Event, Message, Reading, Unavailable
from gpuwatch.agent.evidence.base import Moment, Roots
from gpuwatch.agent.evidence.settings import SnoozeSettings
from gpuwatch.agent.evidence.snoozes import Snoozes
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.state import AgentCore, Interruption
from gpuwatch.model.activity import Evidence
from gpuwatch.model.gpu import GpuDown, GpuReading
from gpuwatch.runtime.clock import ManualClock
from tests.support.builders.gpu import GIB, a_busy_reading, a_cycle, a_down, a_gpu, a_process, a_reading

GPUS = 4
CYCLES = 20_000
STEP = 60.0  # seconds a cycle: two weeks
WARM = CYCLES // 4
LOOK_EVERY = 500
XIDS = (13, 79, 94)
GROWTH_BLOCKS = 1500  # of the allocator: a tenth of an object for each cycle past the warm-up
BOOT = "11111111-2222-3333-4444-555555555555"


class Life:
    """An agent whose host has every trouble there is, by dice that fall alike in each run."""

    def __init__(self, folder: Path) -> None:
        """Just begun."""
        self.dice = random.Random(7)
        self.clock = ManualClock()
        self.lease_file = folder / "keep" / f"{os.geteuid()}.json"
        self.lease_file.parent.mkdir()
        boot = folder / "proc/sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text(BOOT, encoding="ascii")
        self.snoozes = Snoozes(SnoozeSettings(directory=str(self.lease_file.parent)), Roots(proc=folder / "proc"))
        self.core = AgentCore(
            node_id="node-1",
            clock=self.clock,
            rules=ActivityRules(max_gap=2 * STEP, forget_after=10 * STEP),
            interval_seconds=STEP,
            stale_after_seconds=8 * STEP,
            host=self.look_for_leases,
        )
        self.exporter = Exporter(
            self.core,
            self.clock,
            node_id="node-1",
            top_processes=3,
            own_process=False,
            snoozes=lambda: self.snoozes.current,
        )
        self.pid = 1000
        self.seq = 0

    def look_for_leases(self, now: float) -> tuple[Evidence, ...]:
        """What the host says; a look at files in every cycle would take the test's time."""
        return self.snoozes.find_evidence(self.moment(now)) if self.seq % 50 == 0 else ()

    def moment(self, now: float) -> Moment:
        """Now, as a signal gets it."""
        return Moment(at=self.clock.now(), monotonic_seconds=now)

    def gpu(self, index: int) -> GpuReading | GpuDown:
        """One GPU: at rest, at work for processes that nobody saw before, or lost."""
        fate = self.dice.random()
        if fate < 0.05:
            return a_down(index, detail=f"lost at {self.seq}")
        if fate < 0.6:
            return a_reading(index, energy_joules_total=float(self.seq))
        pids = range(self.pid, self.pid + self.dice.randrange(6))
        self.pid += len(pids)
        return a_busy_reading(index, processes=tuple(a_process(pid, GIB) for pid in pids), energy_joules_total=None)

    def messages(self) -> Iterator[Message]:
        """A cycle's, some GPU now and then no longer listed, some with errors."""
        listed = [gpu for gpu in range(GPUS) if self.dice.random() > 0.02]
        first, *rest = a_cycle(self.seq, self.clock.monotonic(), *(self.gpu(gpu) for gpu in listed))
        yield first
        if listed and self.dice.random() < 0.3:
            yield Event(seq=self.seq, uuid=f"GPU-{self.dice.choice(listed)}", xid=self.dice.choice(XIDS))
        yield from rest

    def cycle(self) -> None:
        """One cycle, or what comes in its place."""
        self.seq += 1
        self.clock.advance(STEP)
        if self.dice.random() < 0.001:
            self.clock.jump(self.dice.choice([-3600.0, 3600.0]))
        if self.seq % 200 == 0:
            self.snooze(60.0 * STEP)
        fate = self.dice.random()
        if fate < 0.01:
            self.core.ingest(
                Unavailable(
                    seq=self.seq,
                    monotonic_seconds=self.clock.monotonic(),
                    cause="driver_not_loaded",
                    detail=f"gone at {self.seq}",
                    remedy="load it",
                )
            )
        elif fate < 0.03:
            for message in list(self.messages())[: self.dice.randrange(1, 4)]:
                self.core.ingest(message)
            self.core.interrupt(self.dice.choice(list(Interruption)), f"broken at {self.seq}")
        else:
            self.core.ingest_messages(self.messages())

    def snooze(self, seconds: float) -> None:
        """Somebody keeps the machine for a while, in place of any snooze before."""
        now = self.clock.monotonic()
        document = {
            "boot_id": BOOT,
            "from_monotonic_seconds": now,
            "until_monotonic_seconds": now + seconds,
            "reason": f"run {self.seq}",
        }
        self.lease_file.write_bytes(msgspec.json.encode(document))

    def series(self) -> int:
        """How many a scrape shows."""
        return sum(len(family.samples) for family in self.exporter.collect())


def remembered(what: Any, seen: set[int]) -> int:  # noqa: ANN401  whatever an agent is made of
    """How many entries all containers hold that are reached from this object."""
    if id(what) in seen or isinstance(what, str | bytes | int | float | type):
        return 0
    seen.add(id(what))
    held: list[Any] = list(what.values()) if isinstance(what, dict) else []
    if isinstance(what, list | tuple | set | frozenset) or type(what).__name__ == "deque":
        held = list(what)
    size = len(held)
    if type(what).__module__.startswith("gpuwatch."):
        names = [name for kind in type(what).__mro__ for name in getattr(kind, "__slots__", ())]
        held += [getattr(what, name, None) for name in names] + list(getattr(what, "__dict__", {}).values())
    return size + sum(remembered(each, seen) for each in held)


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """An agent that has just begun."""
    return Life(tmp_path)


def test_two_weeks(life: Life) -> None:
    """Past its warm-up an agent never remembers or shows more than the most it may, and keeps no memory."""
    series: list[int] = []
    entries: list[int] = []
    blocks: list[int] = []
    for number in range(1, CYCLES + 1):
        life.cycle()
        if number % LOOK_EVERY == 0:
            life.exporter.page("")
            series.append(life.series())
            entries.append(remembered(life.core, set()) + remembered(life.exporter, set()))
        if number in {WARM, CYCLES}:
            for _ in range(3):  # the same state at both ends, so that only what is kept for good differs
                rest(life)
            life.exporter.page("")
            gc.collect()
            blocks.append(sys.getallocatedblocks())
    warm = WARM // LOOK_EVERY

    assert max(series[warm:]) <= max(series[:warm]) * 1.25, f"series: {series}"
    assert max(entries[warm:]) <= max(entries[:warm]) * 1.25, f"entries: {entries}"
    assert blocks[1] - blocks[0] < GROWTH_BLOCKS, f"{blocks[1] - blocks[0]} blocks more than after {WARM} cycles"


def rest(life: Life) -> None:
    """A cycle in which all is well."""
    life.clock.advance(STEP)
    life.seq += 1
    life.core.ingest_messages(a_cycle(life.seq, life.clock.monotonic(), *(a_reading(gpu) for gpu in range(GPUS))))


def test_a_driver_gone_mad(life: Life) -> None:
    """An endless stream of new error numbers gets no endless stream of series."""
    gpu = a_gpu(0)
    shown: list[int] = []
    for seq in range(2000):
        life.clock.advance(STEP)
        now = life.clock.monotonic()
        life.core.ingest(Cycle(seq=seq, monotonic_seconds=now, gpus=(gpu,)))
        life.core.ingest(Event(seq=seq, uuid=gpu.uuid, xid=1000 + seq))
        life.core.ingest(Reading(seq=seq, reading=a_reading()))
        life.core.ingest(End(seq=seq, monotonic_seconds=now, duration_seconds=0.1))
        if seq in {500, 1999}:
            shown.append(life.series())
            shown.append(remembered(life.core, set()))

    assert shown[:2] == shown[2:], "series and entries after 500 and after 2000 different errors"
