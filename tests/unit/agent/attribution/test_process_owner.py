"""agent/attribution: whose the processes on the GPUs are, from a /proc that each test builds as a folder."""

import os
import pwd
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.agent.attribution import process
from gpuwatch.agent.attribution.process import job_in_environment, read_owner, start_time
from tests.support.builders.gpu import GIB, a_process, a_reading
from tests.support.fakes.gpu_users import Host
from tests.support.real.agents import eventually

NOBODYS_UID = 3_999_999_999
CONTAINER = "0::/system.slice/docker-" + "ab" * 32 + ".scope\n"
SLURM = "0::/system.slice/slurmstepd.scope/job_17/step_0\n"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """One with nothing on it but its first process."""
    return Host(tmp_path)


# What is told.


def test_a_process_is_told_with_its_owner_job_and_unit(host: Host) -> None:
    """The info metric joins to the memory by uuid and pid; what is not known has no label."""
    host.process(7, uid=0, cgroup=SLURM)
    host.holding(7)

    assert host.lines("gpuwatch_process_info") == [
        '{pid="7",slurm_job="17",systemd_unit="slurmstepd.scope",user="root"} 1.0'
    ]


def test_nothing_of_it_is_on_the_memory_series(host: Host) -> None:
    """Memory keeps its three labels, so that no label multiplies it."""
    host.process(7, cgroup=SLURM)
    host.holding(7)

    assert host.lines("gpuwatch_process_memory_bytes") == ['{pid="7"} 1.073741824e+09']


def test_an_unknown_user_is_a_number(host: Host) -> None:
    """As on a host whose directory service does not answer for that uid."""
    host.process(7, uid=NOBODYS_UID)
    host.holding(7)

    assert host.told.owners[7].user == str(NOBODYS_UID)


def test_a_containers_user_is_a_number(host: Host) -> None:
    """Uid 0 of a container need not be the host's root, nor uid 1000 the host's first user."""
    host.process(7, uid=0, cgroup=CONTAINER)
    host.holding(7)

    assert host.lines("gpuwatch_process_info") == ['{container_id="abababababab",pid="7",user="0"} 1.0']


@pytest.mark.parametrize(
    ("setting", "missing"), [("user_names", 'user="root"'), ("slurm_environment", 'slurm_job="5"')]
)
def test_a_label_can_be_switched_off(tmp_path: Path, setting: str, missing: str) -> None:
    """Then it is nowhere, while the others stay."""
    lines = []
    for on in (True, False):
        folder = tmp_path / str(on)
        host = Host(folder, settings={setting: on})
        host.process(7, environ=b"SLURM_JOB_ID=5\0", cgroup="0::/system.slice/slurmd.service\n")
        lines += host.holding(7).lines("gpuwatch_process_info")

    assert missing in lines[0]
    assert missing not in lines[1]
    assert 'systemd_unit="slurmd.service"' in lines[1]


def test_only_the_largest_are_told(tmp_path: Path) -> None:
    """As many infos per GPU as there are series of memory; a process of unknown size comes last."""
    host = Host(tmp_path, top_processes=2)
    for pid in (7, 8, 9):
        host.process(pid)
    host.cycle(a_reading(processes=(a_process(7, None), a_process(8, GIB), a_process(9, 2 * GIB))))
    few = host.lines("gpuwatch_process_info")
    host.cycle(a_reading(processes=(a_process(7, None), a_process(8, GIB))))

    assert few == ['{pid="9",user="root"} 1.0', '{pid="8",user="root"} 1.0']
    assert host.lines("gpuwatch_process_info") == ['{pid="8",user="root"} 1.0', '{pid="7",user="root"} 1.0']


def test_no_more_processes_are_looked_up_than_a_host_can_bear(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound they have no owner; their memory is counted all the same."""
    monkeypatch.setattr("gpuwatch.agent.attribution.attribution._MOST_PROCESSES", 2)
    for pid in (7, 8, 9):
        host.process(pid)
    host.holding(7, 8, 9)

    assert set(host.told.owners) == {7, 8}
    assert len(host.lines("gpuwatch_process_memory_bytes")) == 3


# Read once, off the sampling path.


def test_a_process_is_read_once(host: Host) -> None:
    """What is known of a pid that started at that time is not read again."""
    folder = host.process(7, cgroup=SLURM)
    host.holding(7)
    (folder / "cgroup").write_text("0::/system.slice/other.service\n", encoding="utf-8")
    host.holding(7)

    assert host.told.owners[7].placement.slurm_job == "17"


def test_a_pid_used_again_is_another_process(host: Host) -> None:
    """The start time tells them apart, also when the driver listed the pid without a break."""
    host.process(7, start=100, cgroup=SLURM)
    host.holding(7)
    host.process(7, start=200, cgroup="0::/system.slice/a.service\n")
    host.holding(7)

    assert host.told.owners[7].placement.slurm_job is None
    assert host.told.owners[7].placement.systemd_unit == "a.service"


def test_what_the_driver_no_longer_lists_is_forgotten(host: Host) -> None:
    """The memory of owners is as large as the list, however many processes come and go."""
    for pid in range(100, 400):
        host.process(pid)
        host.holding(pid)

    assert set(host.told.owners) == {399}
    assert len(host.attribution._known) == 1


def test_a_view_that_is_not_renewed_is_not_shown(host: Host) -> None:
    """A thread that hangs in a file or in a name service takes the labels away, and nothing else."""
    host.process(7)
    host.holding(7)
    host.clock.advance(19.0)
    assert host.attribution.view() is not None

    host.clock.advance(2.0)

    assert host.attribution.view() is None
    assert host.lines("gpuwatch_process_info") == []


def test_a_running_agent_looks_by_itself(host: Host) -> None:
    """`start` looks in a thread of its own; `stop` ends it."""
    host.process(7)
    host.holding(7)
    host.attribution._view = None

    host.attribution.start()
    eventually(lambda: host.attribution.view() is not None)
    host.attribution.stop()

    assert host.told.owners[7].user == "root"
    assert not host.attribution._thread.is_alive()


def test_switched_off_nobody_is_looked_up(tmp_path: Path) -> None:
    """No thread, no view."""
    host = Host(tmp_path, settings={"enabled": False})
    host.attribution.start()

    assert not host.attribution._thread.is_alive()
    assert host.attribution.view() is None


# The dead.


def test_memory_of_the_dead_is_told(host: Host) -> None:
    """A pid without a process that the driver still lists a cycle later holds memory that nobody can free."""
    host.process(7)
    host.holding(7, 8)
    at_first = host.lines("gpuwatch_gpu_dead_process_memory_bytes")
    host.holding(7, 8)

    assert at_first == []
    assert host.lines("gpuwatch_gpu_dead_process_memory_bytes") == ["{} 1.073741824e+09"]


def test_a_process_that_just_ended_is_not_dead(host: Host) -> None:
    """It was listed before it ended: the next cycle, which lists it no more, decides."""
    host.process(7)
    host.holding(7)
    host.end(7)
    host.attribution.refresh()
    host.attribution.refresh()
    seen = host.told.dead
    host.holding()

    assert seen == frozenset()
    assert host.told.dead == frozenset()


def test_a_dead_pid_that_lives_again_is_not_dead(host: Host) -> None:
    """Another process got the pid: whose the memory is cannot be told any more."""
    host.holding(8)
    host.holding(8)
    assert host.told.dead == frozenset({8})

    host.process(8)
    host.holding(8)

    assert host.told.dead == frozenset()


def test_dead_of_unknown_size_make_the_sum_unknown(host: Host) -> None:
    """Absent, not zero."""
    for _ in range(2):
        host.cycle(a_reading(processes=(a_process(8, None), a_process(9, GIB))))

    assert host.told.dead == frozenset({8, 9})
    assert host.lines("gpuwatch_gpu_dead_process_memory_bytes") == []


# What may not be seen.


@pytest.mark.parametrize(
    "hide",
    [
        lambda host: ((host.proc / "self/ns/pid").unlink(), (host.proc / "self/ns/pid").symlink_to("pid:[4026532201]")),
        lambda host: (host.proc / "self/ns/pid").unlink(),
        lambda host: host.end(1),
    ],
    ids=["a container's own pids", "no namespaces", "hidepid"],
)
def test_pids_of_another_world_are_not_joined(host: Host, hide: Callable[[Host], object]) -> None:
    """Where the driver's pids are not those of /proc, nobody is named and nobody called dead."""
    host.process(7, cgroup=SLURM)
    hide(host)
    host.holding(7, 8)
    host.holding(7, 8)

    assert host.told.owners == {}
    assert host.told.dead is None
    assert host.lines("gpuwatch_process_info") == []
    assert host.lines("gpuwatch_gpu_dead_process_memory_bytes") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without rights")
def test_a_file_without_permission_leaves_out_its_label_only() -> None:
    """An agent without rights tells what it can read."""
    with tempfile.TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        host = Host(Path(open_to_all))
        folder = host.process(7, cgroup="0::/system.slice/slurmd.service\n", environ=b"SLURM_JOB_ID=5\0")
        (folder / "environ").chmod(0)
        os.seteuid(NOBODYS_UID)
        try:
            host.holding(7)
        finally:
            os.seteuid(0)

    assert host.told.owners[7].user == "root"
    assert host.told.owners[7].placement.systemd_unit == "slurmd.service"
    assert host.told.owners[7].placement.slurm_job is None


@pytest.mark.parametrize("stat", [b"", b"7 (x", b"7 (x) S", b"\xff\0)" * 30, b"7 (x) S " + b"a " * 30])
def test_a_process_whose_start_is_unreadable_is_nobodys_and_not_dead(host: Host, stat: bytes) -> None:
    """Without it nothing could tell when the pid is used again."""
    (host.process(7) / "stat").write_bytes(stat)
    host.holding(7)
    host.holding(7)

    assert host.told.owners == {}
    assert host.told.dead == frozenset()


@pytest.mark.parametrize("missing", ["stat", "status", "cgroup", "environ"])
def test_a_process_that_vanishes_while_it_is_read_does_no_harm(host: Host, missing: str) -> None:
    """Each file may be gone when its turn comes; the other processes are told."""
    (host.process(7) / missing).unlink()
    host.process(8)
    host.holding(7, 8)

    assert host.told.owners[8].user == "root"
    assert host.told.dead == frozenset()


def test_a_pid_taken_over_while_it_is_read_is_read_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read may be half of one and half of the other, so it is not kept."""
    host.process(7, start=100, cgroup=SLURM)

    def change_hands(*_: object, **__: object) -> process.Owner:
        host.process(7, start=200, cgroup="0::/system.slice/a.service\n")
        return process.Owner(user="half")

    with monkeypatch.context() as patched:
        patched.setattr("gpuwatch.agent.attribution.attribution.read_owner", change_hands)
        host.holding(7)
    at_first = host.told.owners
    host.holding(7)

    assert at_first == {}
    assert host.told.owners[7].placement.systemd_unit == "a.service"


def test_a_name_in_stat_may_hold_anything(host: Host) -> None:
    """Spaces and brackets of a program's name shift no field."""
    host.process(7, start=4711, name="a) S 1 (b")

    assert start_time(host.proc, 7) == 4711


def test_the_real_proc_is_read_as_well() -> None:
    """Our own process there is ours, and started at some time."""
    proc, pid = Path("/proc"), os.getpid()
    owner = read_owner(proc, pid, users=True, environment=True)

    assert owner.user in {pwd.getpwuid(os.geteuid()).pw_name, str(os.geteuid())}
    assert (start_time(proc, pid) or 0) > 0


# Nothing but the job's number leaves an environment.


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        (b"SLURM_JOB_ID=42\0", "42"),
        (b"A=1\0SLURM_JOB_ID=42", "42"),
        (b"A=1\0SLURM_JOB_ID=42\0B=2\0", "42"),
        (b"", None),
        (b"A=SLURM_JOB_ID=42\0", None),
        (b"XSLURM_JOB_ID=42\0", None),
        (b"SLURM_JOB_ID=\0", None),
        (b"SLURM_JOB_ID=42x\0", None),
        (b"SLURM_JOB_ID=42\n\0", None),
        (b"SLURM_JOB_ID=12345678901\0", None),
        (b"SLURM_JOB_ID=\xd9\xa4\0", None),
    ],
)
def test_the_job_is_the_whole_value_of_its_own_variable(environment: bytes, job: str | None) -> None:
    """Nothing that looks like it is taken for it."""
    assert job_in_environment(environment) == job


def test_the_cgroup_tells_the_job_before_the_environment_does(host: Host) -> None:
    """A user can write what he wants into the environment, and not into the cgroup."""
    host.process(7, cgroup=SLURM, environ=b"SLURM_JOB_ID=99\0")
    host.holding(7)

    assert host.told.owners[7].placement.slurm_job == "17"


@given(st.binary(), st.binary())
@example(b"PASSWORD=hunter2\0", b"\0TOKEN=12345\0")
def test_of_an_environment_only_the_job_gets_out(before: bytes, after: bytes) -> None:
    """Whatever stands around it, the result is the digits of the one variable, or nothing."""
    found = job_in_environment(before + b"\0SLURM_JOB_ID=31337\0" + after)

    assert found is not None
    assert f"SLURM_JOB_ID={found}".encode() in (before + b"\0SLURM_JOB_ID=31337\0" + after).split(b"\0")
    assert found.isascii()
    assert found.isdecimal()


@given(environ=st.binary(min_size=4).filter(lambda data: b"SLURM_JOB_ID" not in data), cgroup=st.binary())
def test_no_page_shows_anything_of_an_environment(
    tmp_path_factory: pytest.TempPathFactory, environ: bytes, cgroup: bytes
) -> None:
    """Two hosts that differ in the environments of their processes only have the same page."""
    pages = []
    for held in (environ, b""):
        host = Host(tmp_path_factory.mktemp("host"))
        folder = host.process(7, environ=held)
        (folder / "cgroup").write_bytes(cgroup)
        pages.append(host.holding(7).lines("gpuwatch_process_info"))

    assert pages[0] == pages[1]


@given(status=st.binary(), cgroup=st.binary(), environ=st.binary())
def test_garbage_in_proc_raises_nothing(
    tmp_path_factory: pytest.TempPathFactory, status: bytes, cgroup: bytes, environ: bytes
) -> None:
    """Whatever the files hold, there is an owner, known or not."""
    folder = tmp_path_factory.mktemp("proc") / "7"
    folder.mkdir()
    for name, data in {"status": status, "cgroup": cgroup, "environ": environ}.items():
        (folder / name).write_bytes(data)

    assert read_owner(folder.parent, 7, users=True, environment=True) is not None
