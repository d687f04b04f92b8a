"""From control groups to the verdict: the parts of the agent put together as it does it."""

from pathlib import Path

from gpuwatch.agent.activity import ActivityRules
from gpuwatch.agent.evidence.pods import Pods
from gpuwatch.agent.evidence.registry import HostSignals
from gpuwatch.agent.evidence.settings import EvidenceSettings, PodSettings
from gpuwatch.agent.evidence.watcher import HostWatcher
from gpuwatch.agent.evidence.work import Processes
from gpuwatch.agent.state import AgentCore
from gpuwatch.model.activity import State
from gpuwatch.model.fleet import PodVerdict
from tests.support.builders.gpu import a_cycle, a_reading
from tests.support.fakes.pod_host import PodHost, uid_of


class Agent:
    """A node's agent without threads: each second a cycle, each ten a look at all that concerns pods."""

    def __init__(self, host: PodHost, settings: EvidenceSettings) -> None:
        self.host = host
        self.signals = HostSignals(settings, host.clock, host.roots, gpu_pods=lambda: host.wanted)
        watcher: HostWatcher = self.signals.watcher
        self.watched = [each for each in watcher._watched if isinstance(each.signal, (Pods, Processes))]
        watcher._gpu_pids = frozenset
        self.core = AgentCore(
            node_id="n",
            clock=host.clock,
            rules=ActivityRules(),
            interval_seconds=1.0,
            stale_after_seconds=8.0,
            pod_looks=self.signals.pods,
        )
        self._seq = 0

    def play(self, seconds: int, *, looks: bool = True) -> tuple[PodVerdict, ...]:
        """What the verdict says of pods after that time."""
        for _ in range(seconds // 10):
            if looks:
                self.host.play(10)
                for each in self.watched:
                    self.signals.watcher.look_once(each)
            else:
                self.host.pass_time(10)
            self._seq += 1
            self.core.ingest_messages(a_cycle(self._seq, self.host.clock.monotonic(), a_reading()))
        return self.core.verdict(self.host.clock.monotonic()).pods


def test_the_verdict_says_of_each_pod_what_it_does_and_for_how_long(tmp_path: Path) -> None:
    """Busy with the evidence and its setting, idle since it was first known."""
    host = PodHost(tmp_path)
    host.add("idle", 3000)
    host.add("loads", 4000, network_rate=1e6)
    pods = {each.name: each.activity for each in Agent(host, EvidenceSettings()).play(600)}

    assert pods["team-a/idle"].state is State.IDLE
    assert 500.0 <= pods["team-a/idle"].held_seconds <= 600.0
    assert [(each.name, each.setting) for each in pods["team-a/loads"].evidence] == [
        ("network", "agent.evidence.connections.busy_bytes_per_second")
    ]


def test_looks_that_come_late_make_each_pod_unknown(tmp_path: Path) -> None:
    """A thread that hangs in a file must not leave a pod idle."""
    host = PodHost(tmp_path)
    host.add("idle", 3000)
    agent = Agent(host, EvidenceSettings())
    agent.play(300)
    (found,) = agent.play(100, looks=False)

    assert (found.uid, found.activity.state) == (uid_of("idle"), State.UNKNOWN)


def test_a_verdict_of_which_nothing_can_be_believed_says_so_of_pods_too(tmp_path: Path) -> None:
    """No cycle came for too long."""
    host = PodHost(tmp_path)
    host.add("idle", 3000)
    agent = Agent(host, EvidenceSettings())
    agent.play(300)
    host.pass_time(60)

    assert {each.activity.state for each in agent.core.verdict(host.clock.monotonic()).pods} == {State.UNKNOWN}


def test_without_the_setting_nothing_is_said_of_pods(tmp_path: Path) -> None:
    """`agent.evidence.pods.enabled: false`: the machine's signals stand for all of them."""
    host = PodHost(tmp_path)
    host.add("idle", 3000)

    assert Agent(host, EvidenceSettings(pods=PodSettings(enabled=False))).play(60) == ()
