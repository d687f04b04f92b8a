"""People's programs: when they work, when they only live, and when nobody's is there."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.agent.evidence.base import Moment
from gpuwatch.agent.evidence.gpu_process_cpu import GpuProcessCpu
from gpuwatch.agent.evidence.host_load import Cpu, Network
from gpuwatch.agent.evidence.jupyter import Jupyter
from gpuwatch.agent.evidence.sessions import People
from gpuwatch.agent.evidence.settings import (
    CpuSettings,
    GpuProcessSettings,
    JupyterSettings,
    NetworkSettings,
    SessionSettings,
)
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.host import utmp_record
from tests.support.fakes.life import LOOK_SECONDS, Life
from tests.support.fakes.proc_files import CONTAINER

CRON = "/system.slice/cron.service"


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A host with a login shell."""
    return Life(tmp_path)


def test_a_login_shell_alone_is_idle(life: Life) -> None:
    """A shell, tmux and sshd are what a login leaves."""
    life.put(2001, "tmux: server", parent=1)
    life.put(2002, "sshd", executable="/usr/sbin/sshd", parent=1)
    assert life.says(300) == {State.IDLE}


@pytest.mark.parametrize(
    ("cores", "rate", "says"),
    [
        (0.5, 2e6, State.BUSY),  # B01: a tokeniser
        (0.005, 0.9e6, State.BUSY),  # B03: wget
        (0.03, 20e3, State.BUSY),  # B06: a script that asks an API
        (0.0, 0.0, State.OCCUPIED),  # B07: waits for a warehouse
        (0.003, 500.0, State.OCCUPIED),  # an idle kernel
    ],
)
def test_a_program_that_does_little_is_busy_and_one_that_does_nothing_occupies(
    life: Life, cores: float, rate: float, says: State
) -> None:
    """Where the host's totals are far below their limits."""
    life.put(3000, "python3", cores=cores, rate=rate)
    life.play(130)
    assert life.says(600) == {says}
    entry = life.look()
    assert entry.owner is not None
    assert (entry.owner.process, entry.owner.pid, entry.owner.unit) == ("python3", 3000, "session-3.scope")


def test_a_program_that_began_is_busy_once(life: Life) -> None:
    """The clock of a machine on which something else rests begins again when somebody starts a program."""
    life.put(3000, "python3")
    life.play(3600)
    life.put(3001, "train.py")
    assert State.BUSY in life.says(80)
    assert life.says(600) == {State.OCCUPIED}


def test_a_loop_that_sleeps_does_not_begin_anything(life: Life) -> None:
    """`while true; do nvidia-smi; sleep 300; done`: each round is the next child of the same shell."""
    life.put(3000, "sleep", arguments=("sleep", "300"))
    life.play(300)
    seen = set()
    for pid in range(3001, 3010):
        life.end(pid - 1)
        life.put(pid, "sleep", arguments=("sleep", "300"))
        seen |= life.says(300)
    assert seen == {State.OCCUPIED}


def test_a_health_check_in_a_container_does_not_begin_anything(life: Life) -> None:
    """It lives for a moment, each half minute."""
    life.put(3000, "server", cgroup=CONTAINER, uid=0, parent=1)
    life.play(300)
    seen = set()
    for pid in range(3001, 3010):
        life.put(pid, "curl", cgroup=CONTAINER, uid=0, parent=3000)
        seen |= life.says(10)
        life.end(pid)
        seen |= life.says(20)
    assert seen == {State.OCCUPIED}


@pytest.mark.parametrize(("words", "hours"), [(("6h",), 6.0), (("21600",), 6.0), (("1d", "2h"), 26.0)])
def test_a_long_sleep_is_busy_until_it_is_over(life: Life, words: tuple[str, ...], hours: float) -> None:
    """`sleep 6h; python train.py` in a detached tmux; the arguments are nowhere in the evidence."""
    life.put(3000, "sleep", arguments=("sleep", *words))
    for _ in range(round(hours) - 1):
        life.host.pass_time(3600 - LOOK_SECONDS)
        (entry,) = life.play(LOOK_SECONDS)
        assert entry.says is State.BUSY
        assert "wait" in (entry.note or "")
    life.host.pass_time(3600)
    assert life.play(70)[-1].says is State.OCCUPIED


@pytest.mark.parametrize("words", [("infinity",), ("300",), ("x",), ()])
def test_a_sleep_without_a_time_worth_waiting_for_occupies(life: Life, words: tuple[str, ...]) -> None:
    """A container's `sleep infinity` keeps it alive and waits for nothing."""
    life.put(3000, "sleep", arguments=("sleep", *words), started_seconds=100.0)
    assert life.says(300) == {State.OCCUPIED}


def test_cpu_of_what_holds_a_gpu_is_not_judged_here(life: Life) -> None:
    """It is another signal's; what it reads and writes counts."""
    life.put(3000, "python3", cores=1.5)
    life.gpu_pids = frozenset({3000})
    life.play(130)
    assert life.says(300) == {State.OCCUPIED}
    life.programs[3000]["rate"] = 1e6
    assert State.BUSY in life.says(300)


def test_children_that_ended_count(life: Life) -> None:
    """A build is many short programs; their parent has their time."""
    life.put(3000, "make")
    life.play(130)
    for _ in range(20):
        life.programs[3000]["reaped_seconds"] = float(life.programs[3000].get("reaped_seconds", 0.0)) + 5.0  # type: ignore[arg-type]
        assert [entry.says for entry in life.play(LOOK_SECONDS)] == [State.BUSY]


def test_a_tunnel_through_a_login_is_work(life: Life) -> None:
    """Sshd that moves data is no idle login."""
    life.put(2002, "sshd", executable="/usr/sbin/sshd", parent=1, rate=1e6)
    life.play(130)
    assert life.says(300) == {State.BUSY}


@pytest.mark.parametrize("name", ["containerd", "postgres"])
@pytest.mark.parametrize(
    ("cores", "rate", "says"), [(0.3, 1e5, State.IDLE), (0.4, 40e6, State.BUSY), (1.0, 0, State.BUSY)]
)
def test_a_runtime_and_a_packages_server_work_for_somebody_when_they_work_much(
    life: Life, name: str, cores: float, rate: float, says: State
) -> None:
    """F15: sidecars at 0.3 core; B26: a pod's image is pulled; B78: a database builds an index."""
    life.host.write(f"usr/lib/systemd/system/{name}.service", "[Service]\n")
    life.put(900, name, cgroup=f"/system.slice/{name}.service", uid=0, parent=1, cores=cores, rate=rate)
    life.play(130)
    assert life.says(300) == {says}


def test_a_viewer_is_never_work(life: Life) -> None:
    """Nvtop uses some CPU for ever."""
    life.put(3000, "nvtop", cores=0.3, rate=300e3, tty=34816)
    assert life.says(600) == {State.IDLE}


def test_a_short_job_of_roots_cron_is_doubt(life: Life) -> None:
    """Ten seconds of doubt stop the clock for ten seconds; a job of an hour is work."""
    life.play(120)
    life.put(3000, "backup", cgroup=CRON, uid=0, parent=1, cores=0.4)
    assert life.says(30) == {State.UNKNOWN}
    life.end(3000)
    assert life.says(120) == {State.IDLE}
    life.put(3001, "backup", cgroup=CRON, uid=0, parent=1, cores=0.4)
    life.play(660)
    assert life.says(600) == {State.BUSY}


def test_processes_that_cannot_be_seen_are_unknown(life: Life) -> None:
    """Absence proves nothing in a PID namespace, and under hidepid; what works is busy all the same."""
    life.play(30)
    life.host.namespace("pid:[4026532000]")
    assert life.says(30) == {State.UNKNOWN}
    life.put(3000, "python3", cores=0.5)
    life.play(70)
    assert life.says(60) == {State.BUSY}


def test_a_process_that_cannot_be_read_is_unknown(life: Life) -> None:
    """Garbage in place of a process is no reason to call anything idle."""
    life.play(30)
    (life.host.roots.proc / "2000/stat").write_text("garbage")
    assert life.look().says is State.UNKNOWN


def test_a_zombie_is_nobody(life: Life) -> None:
    """It waits for its parent to ask, and nothing else."""
    life.put(3000, "python3", state="Z")
    assert life.says(300) == {State.IDLE}


def test_the_machines_own_load_keeps_nothing(life: Life) -> None:
    """F13, F21: a daemon at 0.9 cores, a log shipper at 1.1 MB/s; the same load is work once somebody is there."""
    life.put(900, "fluent-bit", cgroup="/system.slice/fluent-bit.service", uid=0, parent=1, cores=0.9)
    life.play(60)
    cpu, network = Cpu(CpuSettings(), life.host.roots), Network(NetworkSettings(), life.host.roots)
    (life.host.roots.sys / "class/net/ens5/device").mkdir(parents=True)

    def load(second: float) -> tuple[Evidence, Evidence]:
        head = "Inter-|   Receive\n face |bytes\n"
        moved = round(1.1e6 * second)
        life.host.write("proc/net/dev", f"{head} ens5: {moved} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")
        life.host.write("proc/stat", f"cpu  {round(95 * second)} 0 0 0 0 0 0 0 0 0\n")
        (one,), (two,) = cpu.find_evidence(life.moment()), network.find_evidence(life.moment())
        return one, two

    load(life.uptime)
    life.play(60)
    assert [entry.says for entry in load(life.uptime)] == [State.IDLE, State.IDLE]
    life.put(3000, "python3")
    life.play(60)
    assert [entry.says for entry in load(life.uptime)] == [State.IDLE, State.BUSY]  # 0.9 of the cores are fluent-bit's


@pytest.mark.parametrize(
    ("rate", "faults", "readable", "says"),
    [
        (0.0, 0, True, State.IDLE),  # F10: an engine that polls; F22: threads that wait for a GPU
        (5.0, 0, True, State.IDLE),  # and writes a line into its log now and then
        (10e3, 0, True, State.BUSY),  # prepares data
        (0.0, 20, True, State.BUSY),  # computes, and takes memory for it
        (0.0, 0, False, State.BUSY),  # what it reads and writes is not known
    ],
)
def test_a_gpu_process_that_only_spins_is_at_rest_after_ten_minutes(
    life: Life, rate: float, faults: int, *, readable: bool, says: State
) -> None:
    """CPU time alone is no work; before ten minutes are over, it is."""
    signal = GpuProcessCpu(GpuProcessSettings(), life.host.roots)
    life.put(3000, "python3", cores=1.9, rate=rate, moved_bytes=0 if readable else None)

    def looks(seconds: int) -> set[State]:
        found = set()
        for _ in range(seconds // 10):
            life.programs[3000]["faults"] = int(life.programs[3000].get("faults", 0)) + faults  # type: ignore[call-overload]
            life.play(10)
            now = Moment(
                at=life.host.clock.now(),
                monotonic_seconds=life.host.clock.monotonic(),
                gpu_pids=frozenset({3000}),
            )
            (entry,) = signal.find_evidence(now)
            found.add(entry.says)
        return found

    looks(10)
    assert looks(580) == {State.BUSY}
    looks(40)
    assert looks(300) == {says}


def test_a_session_without_a_terminal_occupies_while_processes_are_seen(life: Life) -> None:
    """VS Code over SSH, a desktop: its programs show what it does; without them it is unknown."""
    signal = People(SessionSettings(), life.host.roots)
    known = "USER=alice\nSTATE=active\nTYPE=x11\nCLASS=user\nLEADER=2000\n"
    life.host.write("run/systemd/sessions/4", known)
    life.play(20)
    (seen,) = signal.find_evidence(life.moment())
    assert (seen.says, seen.owner and seen.owner.user) == (State.OCCUPIED, "alice")
    (unseen,) = signal.find_evidence(Moment(at=life.host.clock.now(), monotonic_seconds=life.host.clock.monotonic()))
    assert unseen.says is State.UNKNOWN


def test_a_terminal_that_is_not_there_occupies_while_processes_are_seen(life: Life) -> None:
    """F12: a desktop whose terminal nobody opened; its programs show what it does."""
    life.host.write("run/utmp", utmp_record("carol", "tty2", pid=2000))
    life.look()
    (seen,) = People(SessionSettings(), life.host.roots).find_evidence(life.moment())
    assert (seen.says, seen.owner and seen.owner.user) == (State.OCCUPIED, "carol")


def test_a_jupyter_server_that_cannot_be_asked_occupies_while_processes_are_seen(life: Life) -> None:
    """Its kernels are processes, so that their work shows; where they are not seen, it is unknown."""
    signal = Jupyter(JupyterSettings(), life.host.roots, 1.0)
    life.host.write(
        "home/alice/.local/share/jupyter/runtime/jpserver-2000.json", '{"pid": 2000, "port": 1, "sock": "x"}'
    )
    life.look()
    (seen,) = signal.find_evidence(life.moment())
    assert seen.says is State.OCCUPIED
    (unseen,) = signal.find_evidence(replace(life.moment(), processes=None))
    assert unseen.says is State.UNKNOWN


def test_cpu_of_what_holds_a_gpu_is_left_to_its_own_signal(life: Life) -> None:
    """F22: a deadlocked run spins with two cores; `cpu` alone would keep the node for ever."""
    cpu = Cpu(CpuSettings(), life.host.roots)
    life.put(3000, "python3", cores=2.0)

    def load() -> State:
        life.host.write("proc/stat", f"cpu  {round(210 * life.uptime)} 0 0 0 0 0 0 0 0 0\n")
        (entry,) = cpu.find_evidence(replace(life.moment(), gpu_pids=life.gpu_pids))
        return entry.says

    life.play(60)
    load()
    life.play(60)
    assert load() is State.BUSY
    life.gpu_pids = frozenset({3000})
    for _ in range(3):
        life.play(10)
        assert load() is State.IDLE


def test_somebody_who_types_in_a_container_is_at_work(life: Life) -> None:
    """`docker exec -it … bash`: the terminal is the container's own. Who reads there may sit there for four hours."""
    signal = People(SessionSettings(), life.host.roots)
    life.put(3000, "bash", cgroup=CONTAINER, uid=0, tty=136 << 8 | 3, parent=1)
    terminal = life.host.write("proc/3000/root/dev/pts/3", "")
    stamp = life.host.clock.now().timestamp() - 60
    os.utime(terminal, (stamp, stamp))
    life.look()
    (entry,) = signal.find_evidence(life.moment())
    assert entry.says is State.BUSY
    assert "pts/3 in abababababab" in (entry.note or "")
    for hours, says in ((2, State.OCCUPIED), (5, State.IDLE)):
        os.utime(terminal, (stamp - hours * 3600, stamp - hours * 3600))
        other = People(SessionSettings(), life.host.roots)
        (silent,) = other.find_evidence(life.moment())
        assert silent.says is says
