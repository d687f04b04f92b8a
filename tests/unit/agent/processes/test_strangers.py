"""Programs that look as if a stranger runs them are for an alert; what people start from a login is not."""

from dataclasses import replace

import pytest

from gpuwatch.agent.attribution.cgroup import Placement
from gpuwatch.agent.processes.process import Kind, Process, ProcessView
from gpuwatch.agent.processes.strangers import Mark, cores_of_strangers, mark_of

MINER = Process(
    pid=7,
    started_ticks=1,
    parent=1,
    group=7,
    session=7,
    tty=0,
    state="R",
    name="xm",
    executable="xm",
    uid=33,
    placement=Placement(systemd_unit="nginx.service"),
    strange=Mark.FOLDER,
)


def cores(*processes: Process) -> dict[Mark, float]:
    """What is told of these, each with two cores."""
    listed = {each.pid: each for each in processes}
    return cores_of_strangers(
        ProcessView(monotonic_seconds=0.0, processes=listed, cores=dict.fromkeys(listed, 2.0), doubt=None)
    )


@pytest.mark.parametrize(
    ("path", "names", "mark"),
    [
        ("/tmp/.x/xm", ["xm"], Mark.FOLDER),  # noqa: S108  looked for
        ("/dev/shm/a", ["a"], Mark.FOLDER),  # noqa: S108  as above
        ("/memfd:x", ["x"], Mark.FOLDER),
        ("/usr/bin/kworkerds", ["kworker/0:1"], Mark.NAME),
        ("/usr/local/x", ["x", "[kworker/u8:2-events]"], Mark.NAME),
        (None, ["kthreadd"], Mark.NAME),
        ("/home/ann/bin/migrations", ["migrations"], None),
        ("/usr/bin/python3", ["python3", "/tmp/train.py"], None),  # noqa: S108  as above
        ("/opt/tmp/x", ["x"], None),
        ("/usr/bin/celery", ["celery", "[celeryd: a@b:MainProcess] -active- (worker)"], None),
        (None, ["postgres", "postgres: writer"], None),
        (None, [""], None),
    ],
)
def test_a_mark_is_of_the_file_or_of_the_name(path: str | None, names: list[str], mark: Mark | None) -> None:
    """Folders that everybody may write to, memory, and names of the kernel's threads; nothing that only sounds so."""
    assert mark_of(path, *names) == mark


@pytest.mark.parametrize(
    "other",
    [
        {"tty": 34816},
        {"placement": Placement(systemd_unit="session-3.scope", own_names=True)},
        {"placement": Placement(slurm_job="12")},
        {"placement": Placement(container_id="c" * 64)},
        {"kind": Kind.KERNEL},
        {"strange": None},
    ],
)
def test_what_a_login_a_job_or_a_container_accounts_for_is_not_told(other: dict[str, object]) -> None:
    """People build and run in /tmp, and images have their own."""
    assert cores(replace(MINER, **other)) == {}  # type: ignore[arg-type]


def test_cores_are_added_up_by_mark() -> None:
    """A name of the kernel's is strange in a container, too."""
    named = replace(MINER, pid=9, strange=Mark.NAME, placement=Placement(container_id="c" * 64))

    assert cores(MINER, replace(MINER, pid=8), named) == {Mark.FOLDER: 4.0, Mark.NAME: 2.0}
