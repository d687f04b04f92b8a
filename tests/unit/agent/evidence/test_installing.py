"""The machine installs software by itself: a stop in the middle leaves half a driver."""

from pathlib import Path

import pytest

from gpuwatch.agent.evidence.settings import WorkSettings
from gpuwatch.agent.evidence.work import Processes
from gpuwatch.model.activity import State
from tests.support.fakes.host import FolderHost
from tests.support.fakes.proc_files import put_process

UNIT = "/system.slice/apt-daily-upgrade.service"


@pytest.mark.parametrize(("age", "says"), [(20.0, State.UNKNOWN), (3500.0, State.UNKNOWN), (3700.0, State.IDLE)])
def test_an_update_of_the_machine_is_doubt_for_an_hour(tmp_path: Path, age: float, says: State) -> None:
    """One that hangs at a question for hours keeps nothing."""
    host = FolderHost(tmp_path)
    put_process(host.roots.proc, 70, "dpkg", cgroup=UNIT, uid=0, executable="/usr/bin/dpkg", started_seconds=100.0)
    (host.roots.proc / "uptime").write_text(f"{100.0 + age:.2f} 0.00\n")
    found = host.tells(Processes(WorkSettings(), host.roots))

    assert found.says is says
    if says is State.UNKNOWN:
        assert found.note == "root's dpkg (pid 70, apt-daily-upgrade.service) changes the software of the machine"
