"""What each pod does by itself: the cases that docs/adr/0038 names, on made control groups and processes."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.agent.evidence.pods import MOST_PODS
from gpuwatch.model.activity import State
from tests.support.fakes.pod_host import PodHost, uid_of
from tests.support.fakes.proc_files import put_process
from tests.support.nightly import examples

BUSY, UNKNOWN = State.BUSY, State.UNKNOWN


@pytest.fixture
def host(tmp_path: Path) -> PodHost:
    """A node with an idle pod, and one that trains next to it."""
    made = PodHost(tmp_path)
    made.add("idle", 3000)
    made.add("trains", 4000, cores=4.0, program_cores=8.0, disk_rate=5e8, network_rate=1e9, file_rate=1e7)
    made.gpu_pids = frozenset({3000, 4000})
    return made


def test_an_idle_pod_is_quiet_beside_one_that_trains(host: PodHost) -> None:
    """Processors, disks and network of the machine are busy, and none of it is this pod's."""
    assert host.says("idle") == {}
    assert set(host.says("trains")) == {"gpu_process_cpu", "cpu", "disk", "network", "memory"}
    assert host.look()[uid_of("idle")].divided == {
        "processes",
        "gpu_process_cpu",
        "cpu",
        "disk",
        "network",
        "connections",
    }


@pytest.mark.parametrize(
    ("does", "signals"),
    [
        ({"network_rate": 2e6}, {"network"}),  # it downloads
        ({"program_cores": 1.0}, {"processes", "cpu"}),  # a data loader's phase on the processor
        ({"cores": 0.3}, {"cpu"}),  # programs that live for less than a look
        ({"file_rate": 1e6}, {"memory"}),  # it reads a file on NFS: past its disks and its network
        ({"fault_rate": 100.0}, {"memory"}),  # the same, mapped
        ({"disk_rate": 2e7}, {"disk"}),  # it writes a checkpoint
        ({"network_rate": 300.0, "cores": 0.02, "file_rate": 1000.0}, set()),  # probes and a heartbeat
    ],
)
def test_work_of_a_pod_shows_in_what_the_kernel_counts_of_it(
    tmp_path: Path, does: dict[str, object], signals: set[str]
) -> None:
    """Each way of working that needs no GPU."""
    host = PodHost(tmp_path)
    host.add("works", 3000, **does)

    assert host.says("works") == dict.fromkeys(signals, BUSY)


def test_a_container_that_sleeps_before_it_trains_keeps_its_pod(host: PodHost) -> None:
    """`sleep 6h; python train.py` next to the kernel of a notebook is work that waits, by the machine's own rule."""
    put_process(
        host.roots.proc,
        3001,
        "sleep",
        cgroup=host.cgroup("idle"),
        arguments=("sleep", "6h"),
        started_seconds=4900.0,
        moved_bytes=None,
    )
    assert host.says("idle") == {"processes": BUSY}
    assert "processes" not in host.says("trains", 10)


def test_somebody_at_a_terminal_in_the_pod_keeps_it_until_it_is_silent(host: PodHost) -> None:
    """A debugging session by `kubectl exec` is a person, as long as a login would be."""
    host.play(60)
    host.exec_into("idle", 3500)
    assert host.says("idle", 600)["people"] is BUSY
    host.exec_into("idle", 3500, switches=9)  # a key was pressed
    assert host.says("idle", 1700)["people"] is BUSY
    assert host.says("idle", 120) == {}


def test_what_only_looks_and_a_container_with_a_terminal_of_its_own_are_nobody(host: PodHost) -> None:
    """`watch nvidia-smi` is left behind; `tty: true` belongs to the container."""
    host.exec_into("idle", 3500, program="watch")
    host.play(200)
    assert "people" not in host.says("idle", 60)


def test_a_process_that_hangs_makes_its_pod_unknown(host: PodHost) -> None:
    """In the state D it waits for a file server or a driver: what it does once that answers is not known."""
    host.made["idle"].state = "D"

    assert host.says("idle") == {"processes": UNKNOWN}


def test_a_group_that_is_gone_is_unknown_and_never_idle(host: PodHost) -> None:
    """The API server may still call the pod running."""
    host.play(60)
    host.end("idle")

    assert host.says("idle", 10)["pods"] is UNKNOWN


@pytest.mark.parametrize("name", ["cpu.stat", "memory.stat"])
def test_a_counter_that_may_not_be_read_is_unknown(host: PodHost, name: str) -> None:
    """Also where the file is not what the kernel's documentation says."""
    host.play(60)
    (host.group("idle") / name).unlink()
    (host.group("idle") / name).mkdir()
    look = host.look()[uid_of("idle")]

    assert {entry.says for entry in look.evidence if entry.name == "pods"} == {UNKNOWN}


def test_an_agent_that_sees_no_groups_says_nothing_of_any_pod(tmp_path: Path) -> None:
    """The machine's own signals go on to stand for all pods on it."""
    host = PodHost(tmp_path)
    assert host.look() == {}
    host.wanted = {uid_of("idle"): "team-a/idle"}
    assert host.play(60)[-1] == {}


def test_while_it_is_not_known_which_pods_hold_gpus_each_is_unknown(host: PodHost) -> None:
    """So it is while processes cannot be listed, and before they were."""
    host.play(60)
    host.wanted = None
    look = host.look()[uid_of("idle")]

    assert [entry.says for entry in look.evidence] == [UNKNOWN]


def test_restarted_containers_neither_look_idle_nor_busy_for_ever(host: PodHost) -> None:
    """The group counts on; another program in it is one that began."""
    host.play(120)
    host.made["idle"].pid, host.made["idle"].program = 3100, "train"
    put_process(host.roots.proc, 3000, "gone", cgroup="/init.scope", uid=0, parent=1, state="Z")
    states = [look[uid_of("idle")].evidence for look in host.play(300)]

    assert any(entry.says is BUSY and entry.name == "processes" for found in states for entry in found)
    assert all(entry.says is State.IDLE for entry in states[-1])


def test_the_network_of_a_pod_that_uses_the_hosts_stays_the_machines(tmp_path: Path) -> None:
    """Nobody can tell whose bytes they are."""
    host = PodHost(tmp_path)
    host.add("hostnet", 3000, own_network=False, network_rate=1e9)
    assert host.says("hostnet") == {}
    assert not {"network", "connections"} & host.look()[uid_of("hostnet")].divided


def test_groups_of_version_1_leave_the_disks_to_the_machine(tmp_path: Path) -> None:
    """They count no writes for a group."""
    host = PodHost(tmp_path, version=1)
    host.add("works", 3000, cores=0.5, file_rate=1e6, disk_rate=1e9)
    host.add("rests", 4000)
    assert host.says("works") == {"cpu": BUSY, "memory": BUSY}
    assert host.says("rests", 10) == {}
    assert "disk" not in host.look()[uid_of("rests")].divided


def test_work_in_no_pod_counts_for_each(host: PodHost) -> None:
    """A container that a pod began through Docker's socket is below no pod's group."""
    docker = "/system.slice/docker-" + "cd" * 32 + ".scope"
    host.play(60)
    for seconds in range(1, 30):
        put_process(host.roots.proc, 6000, "ffmpeg", cgroup=docker, uid=0, cpu_seconds=10.0 * seconds)
        host.play(10)
    assert host.says("idle", 10) == {"processes": BUSY}


def test_gpu_processes_that_spin_do_not_make_the_group_busy(tmp_path: Path) -> None:
    """Their CPU time is judged by `gpu_process_cpu` alone, which knows what waits in a loop."""
    host = PodHost(tmp_path)
    host.add("spins", 3000, program_cores=1.0)
    host.gpu_pids = frozenset({3000})

    assert host.says("spins") == {"gpu_process_cpu": BUSY}


def test_no_more_pods_are_looked_at_than_the_limit(tmp_path: Path) -> None:
    """So neither memory nor the page grows with what a cluster makes."""
    host = PodHost(tmp_path)
    for number in range(MOST_PODS + 5):
        host.add(f"{'x' * number}pod", 3000 + number)

    assert len(host.look()) == MOST_PODS


RATES = st.fixed_dictionaries(
    {
        "cores": st.floats(0, 2),
        "disk_rate": st.floats(0, 1e8),
        "network_rate": st.floats(0, 1e6),
        "file_rate": st.floats(0, 1e6),
    }
)


@settings(max_examples=examples(3), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(own=RATES, neighbour=RATES, more=RATES)
def test_a_neighbour_never_changes_what_a_pod_is_said_to_do_and_more_work_never_makes_it_idler(
    tmp_path_factory: pytest.TempPathFactory,
    own: dict[str, float],
    neighbour: dict[str, float],
    more: dict[str, float],
) -> None:
    """P8 for pods: only their own counters speak, and they speak one way."""

    def busy(mine: dict[str, float], theirs: dict[str, float]) -> set[str]:
        host = PodHost(tmp_path_factory.mktemp("host"))
        host.add("mine", 3000, **mine)
        host.add("theirs", 4000, **theirs)
        return set(host.says("mine", 30))

    alone = busy(own, dict.fromkeys(own, 0.0))

    assert busy(own, neighbour) == alone
    assert busy({key: own[key] + more[key] for key in own}, neighbour) >= alone
