"""agent/slurm_jobs/groups: what a job's control group counts, from trees that each test makes."""

from pathlib import Path

import pytest

from gpuwatch.agent.slurm_jobs.groups import Usage, group_of

GIB = 1 << 30
V2 = "0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n"
V1 = "".join(
    f"{number}:{names}:/slurm/uid_1000/job_17/step_0\n"
    for number, names in ((9, "memory"), (5, "cpu,cpuacct"), (4, "cpuset"), (3, "freezer"))
)


def made(folder: Path, **files: str) -> Path:
    """A group with these files; `__` stands for a dot."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="ascii")
    return folder


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    """Where the job's group of version 2 is."""
    return made(
        tmp_path / "system.slice/slurmstepd.scope/job_17",
        cpu__stat="usage_usec 2500000\nuser_usec 2000000\n",
        memory__current=f"{GIB}\n",
        memory__peak=f"{2 * GIB}\n",
        memory__max=f"{8 * GIB}\n",
        cpuset__cpus__effective="0-2,8\n",
        cgroup__events="populated 1\nfrozen 0\n",
    )


def test_version_2(tmp_path: Path, unified: Path) -> None:
    """All of it is in one folder, which is the job's and not the step's."""
    group = group_of(tmp_path, V2, "17")

    assert group is not None
    assert list(group.folders.values()) == [unified]
    assert group.read() == Usage(cpu_seconds=2.5, cores=4, memory_bytes=2 * GIB, memory_limit_bytes=8 * GIB)


def test_without_a_peak_it_is_what_is_held_now(tmp_path: Path, unified: Path) -> None:
    """Kernels before 5.19 do not count the peak; a job without a limit has no limit."""
    (unified / "memory.peak").unlink()
    (unified / "memory.max").write_text("max\n", encoding="ascii")
    group = group_of(tmp_path, V2, "17")

    assert group is not None
    assert group.read() == Usage(cpu_seconds=2.5, cores=4, memory_bytes=GIB)


@pytest.mark.parametrize("garbage", ["", "x\n", "-1\n", "0-\n", "usage_usec x\n", "9" * 4000])
def test_files_of_another_form_are_not_known(tmp_path: Path, unified: Path, garbage: str) -> None:
    """Nothing is made up, and nothing fails."""
    for name in ("cpu.stat", "memory.max", "cpuset.cpus.effective"):
        (unified / name).write_text(garbage, encoding="ascii")
    group = group_of(tmp_path, V2, "17")

    assert group is not None
    assert group.read().cpu_seconds is None
    assert group.read().cores is None


@pytest.mark.parametrize("cpuacct", ["cpuacct", "cpu,cpuacct"])
def test_version_1(tmp_path: Path, cpuacct: str) -> None:
    """Each controller has a tree of its own; a limit that is the largest number is no limit."""
    below = "slurm/uid_1000/job_17"
    made(tmp_path / cpuacct / below, cpuacct__usage="2500000000\n", cgroup__procs="")
    made(
        tmp_path / "memory" / below,
        memory__max_usage_in_bytes=f"{2 * GIB}\n",
        memory__limit_in_bytes="9223372036854771712\n",
        cgroup__procs="",
    )
    made(tmp_path / "cpuset" / below, cpuset__cpus="0-3\n", cgroup__procs="")
    group = group_of(tmp_path, V1, "17")

    assert group is not None
    assert group.read() == Usage(cpu_seconds=2.5, cores=4, memory_bytes=2 * GIB)
    assert not group.lives()

    made(tmp_path / "memory" / below / "step_0", cgroup__procs="41\n42\n")

    assert group.lives()
    assert group.pids() == {41, 42}


def test_a_group_without_processes_is_over(tmp_path: Path, unified: Path) -> None:
    """A folder that could not be removed stays behind."""
    group = group_of(tmp_path, V2, "17")
    assert group is not None
    assert group.lives()

    (unified / "cgroup.events").write_text("populated 0\nfrozen 0\n", encoding="ascii")

    assert not group.lives()


def test_a_group_that_is_gone_is_over(tmp_path: Path, unified: Path) -> None:
    """Its last figures are those that were read before."""
    group = group_of(tmp_path, V2, "17")
    for file in unified.iterdir():
        file.unlink()
    unified.rmdir()

    assert group is not None
    assert not group.lives()
    assert group.read() == Usage()


@pytest.mark.parametrize(
    "text",
    [
        "0::/system.slice/slurmstepd.scope/job_18/step_0\n",  # another job's
        "0::/user.slice/slurmstepd.scope/job_17/step_0\n",  # a user's own names
        "0::/a/../slurmstepd.scope/job_17/step_0\n",
        "0::/system.slice/elsewhere/slurmstepd.scope/job_17/step_0\n",  # not to be seen here
        "",
    ],
)
@pytest.mark.usefixtures("unified")
def test_a_group_that_is_not_the_jobs_is_not_read(tmp_path: Path, text: str) -> None:
    """Figures of another group would be wrong; without them the line is shorter."""
    assert group_of(tmp_path, text, "17") is None


@pytest.mark.usefixtures("unified")
def test_from_another_cgroup_namespace(tmp_path: Path) -> None:
    """The path climbs out of the agent's own group first."""
    assert group_of(tmp_path, V2.replace("::/", "::/../../"), "17") is not None
