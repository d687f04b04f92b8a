"""Whose a process is cannot be made up by its user: chargeback and reports go by these labels."""

from pathlib import Path

import pytest

from tests.support.fakes.gpu_users import Host

ID = "4c01db0b339c4cc1b7de4a2b0f1c8a9d5e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b"
UID = "2d2ac6b4_4e3b_4f2a_9d5c_0c1b2a3d4e5f"
USER = "/user.slice/user-7.slice"


@pytest.mark.parametrize(
    ("cgroup", "job"),
    [
        ("0::/system.slice/slurmd.service", "5"),
        ("0::/system.slice/n1_slurmd.service", "5"),
        ("0::/", "5"),
        (f"0::{USER}/session-3.scope", None),
        (f"0::{USER}/user@7.service/app.slice/slurmd.service", None),
        ("0::/system.slice/cron.service", None),
        ("0::/system.slice/slurmd.service.d", "5"),  # no unit at all: as without systemd
        (f"0::/system.slice/docker-{ID}.scope", None),
        (f"0::/kubepods.slice/kubepods-pod{UID}.slice/crio-{ID}.scope", None),
        (f"9:devices:/\n1:name=systemd:{USER}/session-3.scope", None),
    ],
)
def test_a_job_in_the_environment_is_believed_where_slurm_may_have_put_it(
    tmp_path: Path, cgroup: str, job: str | None
) -> None:
    """In the service of slurmd, or where no systemd tells; anybody else sets the variable for himself."""
    host = Host(tmp_path)
    host.process(7, environ=b"SLURM_JOB_ID=5\0", cgroup=f"{cgroup}\n")
    host.holding(7)

    assert host.told.owners[7].placement.slurm_job == job
