"""The local disks in the agent's verdict: looked at in the background, again for a confirmation, never waited for."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.block_devices import BlockDevices, Mount
from gpuwatch.agent.confirm import Confirmations
from gpuwatch.agent.evidence.registry import HostSignals
from gpuwatch.agent.evidence.settings import EvidenceSettings, LocalDiskSettings, SnoozeSettings
from gpuwatch.agent.exporter.exporter import Exporter
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import LocalDisks
from gpuwatch.runtime.clock import SystemClock
from tests.support.builders.gpu import a_cycle, a_reading
from tests.support.fakes import disk_hosts as hosts
from tests.support.fakes.disks import DiskHost
from tests.support.real.agents import eventually

METRIC = "gpuwatch_node_local_disks_used"
NONCE = "n" * 16


class Rig:
    """An agent's parts on a host of folders; its disks are looked at every five minutes, its GPU when asked for."""

    def __init__(self, root: Path, *, deadline: float = 5.0, interval: float = 300.0) -> None:
        self.host = DiskHost(root)
        self.clock = SystemClock()
        (root / "sys/class/net/eth0/device").mkdir(parents=True)
        self.host.write("proc/net/dev", "Inter-|\n face |\n  eth0: 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
        self.signals = HostSignals(
            EvidenceSettings(
                deadline=deadline,
                snooze=SnoozeSettings(directory=str(root / "run/gpuwatch/snoozes")),
                local_disks=LocalDiskSettings(interval=interval),
            ),
            self.clock,
            self.host.roots,
        )
        self.core = AgentCore(
            node_id="n",
            clock=self.clock,
            rules=ActivityRules(),
            interval_seconds=1.0,
            stale_after_seconds=60.0,
            host=self.signals.evidence,
            local_disks=self.signals.local_disks,
        )
        self.confirmations = Confirmations(self.core, self.signals.watcher, self.cycle, self.clock)
        self.cycles = 0

    def start(self) -> None:
        """Look, in the background."""
        self.signals.start(lambda: (a_reading(),))

    def cycle(self) -> None:
        """The probe reads the GPU."""
        self.cycles += 1
        self.core.ingest_messages(a_cycle(self.cycles, self.clock.monotonic(), a_reading()))

    def told(self) -> LocalDisks | None:
        """What the verdict says after a cycle."""
        self.cycle()
        return self.core.verdict(self.clock.monotonic()).local_disks

    def metric(self) -> str | None:
        """The sample on a new page."""
        page = Exporter(self.core, self.clock, node_id="n", top_processes=0, own_process=False).page("")
        lines = page.body.decode().splitlines()
        return next((line.split()[1] for line in lines if line.startswith(f"{METRIC} ")), None)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes one, and stops it in the end."""
    made: list[Rig] = []

    def make(**settings: float) -> Rig:
        made.append(Rig(tmp_path, **settings))
        return made[-1]

    yield make
    for each in made:
        each.signals.stop()


def test_nothing_is_known_before_the_first_look(rig: Callable[..., Rig]) -> None:
    """Not `none`: that would let a machine go."""
    agent = rig()
    hosts.untouched(agent.host)

    assert agent.core.verdict(agent.clock.monotonic()).local_disks is None
    assert agent.told() is None
    assert agent.metric() is None


@pytest.mark.parametrize(
    ("make", "truth", "sample"),
    [
        (hosts.ebs_only, LocalDisks.NONE, "0.0"),
        (hosts.untouched, LocalDisks.UNUSED, "0.0"),
        (hosts.formatted, LocalDisks.USED, "1.0"),
    ],
)
def test_the_verdict_and_the_metric_say_it(
    rig: Callable[..., Rig], make: Callable[[DiskHost], None], truth: LocalDisks, sample: str
) -> None:
    """The disks' use is no evidence of work: the verdict's evidence does not hold it."""
    agent = rig()
    make(agent.host)
    agent.start()
    eventually(lambda: agent.told() is truth)

    assert agent.metric() == sample
    assert "local_disks" not in {entry.name for entry in agent.signals.evidence(agent.clock.monotonic())}


def test_a_confirmation_looks_again(rig: Callable[..., Rig]) -> None:
    """Whatever the interval: a disk written to since the last look is used in the answer."""
    agent = rig()
    hosts.untouched(agent.host)
    agent.start()
    eventually(lambda: agent.told() is LocalDisks.UNUSED)
    looked = agent.clock.monotonic()
    eventually(lambda: agent.signals.watcher.await_looks(looked, 0.0) or agent.clock.monotonic() > looked + 1.5)
    agent.host.write("sys/block/nvme1n1/stat", "82 0 1068 37 14 37 8 14 0 48 65 2 0 32770 0 5 13\n")

    assert agent.told() is LocalDisks.UNUSED
    assert agent.confirmations.answer(NONCE).local_disks is LocalDisks.USED


def test_a_mount_that_hangs_holds_up_nobody(rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its look is late, so it is not known any more whether the disk is used; the verdict is made as ever."""
    hangs, over = threading.Event(), threading.Event()
    real = BlockDevices.names_in

    def names_in(self: BlockDevices, mount: Mount) -> frozenset[str]:
        if hangs.is_set():
            over.wait(30)
        return real(self, mount)

    monkeypatch.setattr(BlockDevices, "names_in", names_in)
    agent = rig(deadline=0.3, interval=0.1)
    hosts.mounted_empty(agent.host)
    agent.start()
    try:
        eventually(lambda: agent.told() is LocalDisks.UNUSED)
        hangs.set()
        eventually(lambda: agent.told() is None)
        answer = agent.confirmations.answer(NONCE)
        assert answer.local_disks is None
        assert answer.looked_seconds is not None
    finally:
        over.set()


@pytest.mark.parametrize(
    ("settings", "own_processes"),
    [
        (EvidenceSettings(enabled=False), True),
        (EvidenceSettings(local_disks=LocalDiskSettings(enabled=False)), True),
        (EvidenceSettings(), False),
    ],
)
def test_disks_that_are_not_looked_at_are_not_known(settings: EvidenceSettings, *, own_processes: bool) -> None:
    """Switched off, or this machine's while the GPUs are another's."""
    assert HostSignals(settings, SystemClock(), own_processes=own_processes).local_disks(0.0) is None
