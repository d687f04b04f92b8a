"""Units that are only called like the machine's or a vendor's: what they run decides."""

from pathlib import Path

import pytest

from gpuwatch.agent.processes.process import Kind
from gpuwatch.agent.processes.table import ProcessTable
from tests.support.fakes.proc_files import put_process

# Units of an administrator that begin like one of the machine's: what they run decides.
NAMED_LIKE_THE_MACHINES = (
    "rpc-server", "rpc-inference", "networking-model", "chrony-forecast", "dnf-eval", "yum-train", "postfix-llm",
    "hv-llm-daemon", "systemd-train", "snapd-train", "bluetooth-lab", "apt-daily-train", "sysstat-model", "atop2",
)  # fmt: skip
# And of a vendor: only a program outside of the folders for software is somebody's.
NAMED_LIKE_A_VENDORS = ("datadog-train", "prometheus-llm", "microsoft-phi", "efa-bench", "etcd-train", "telegraf-eval")
# The program's file and its arguments.
OWN_WORK: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("/srv/app/serve", ()),
    ("/home/ann/venv/bin/python3", ("python3", "/home/ann/train.py")),
    ("/usr/bin/python3.11", ("python3", "-m", "train")),
    ("/usr/bin/python3.11", ("python3", "/data/train.py")),
    ("/usr/bin/java", ("java", "-jar", "/srv/app.jar")),
)
ADDED_WORK: tuple[tuple[str, tuple[str, ...]], ...] = (
    *OWN_WORK,
    ("/opt/llama.cpp/rpc-server", ()),
    ("/usr/local/bin/serve", ()),
    ("/usr/bin/java", ("java", "-jar", "app.jar")),
    ("/usr/bin/rsync", ("rsync", "-a", "/data", "nas:/data")),
    ("/usr/bin/bash", ("bash", "-c", "while :; do ./step; sleep 5; done")),
)


@pytest.fixture
def table(tmp_path: Path) -> ProcessTable:
    """A host on which an administrator made all those units."""
    for name in (*NAMED_LIKE_THE_MACHINES, *NAMED_LIKE_A_VENDORS):
        (tmp_path / f"etc/systemd/system/{name}.service").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"etc/systemd/system/{name}.service").write_text("[Service]\n")
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    return ProcessTable(tmp_path / "proc", tmp_path / "etc", tmp_path / "usr", tmp_path / "run")


@pytest.mark.parametrize("uid", [0, 995])
def test_what_an_administrator_calls_like_the_machines_is_somebodys(
    table: ProcessTable, tmp_path: Path, uid: int
) -> None:
    """llama.cpp's `rpc-server.service` is no part of Linux: what no distribution's package can have brought is work."""
    cases = [(name, work) for name in NAMED_LIKE_THE_MACHINES for work in ADDED_WORK]
    cases += [(name, work) for name in NAMED_LIKE_A_VENDORS for work in OWN_WORK]
    for pid, (name, (file, arguments)) in enumerate(cases, start=100):
        group, program = f"/system.slice/{name}.service", file.rpartition("/")[2]
        put_process(
            tmp_path / "proc", pid, program, cgroup=group, uid=uid, executable=file, arguments=arguments
        )  # fmt: skip
    found = table.read_processes(1.0).processes
    assert [
        (case, found[pid].rule) for pid, case in enumerate(cases, start=100) if found[pid].kind is not Kind.PEOPLE
    ] == []


def test_a_unit_of_a_package_that_is_called_like_the_machines_is_the_machines(
    table: ProcessTable, tmp_path: Path
) -> None:
    """A package may bring its unit with a program in /opt."""
    (tmp_path / "usr/lib/systemd/system").mkdir(parents=True)
    (tmp_path / "usr/lib/systemd/system/ipmi-tools.service").write_text("[Service]\n")
    put_process(tmp_path / "proc", 77, "x", cgroup="/system.slice/ipmi-tools.service", uid=0, executable="/opt/ipmi/x")
    assert table.read_processes(1.0).processes[77].kind is Kind.SERVICE
