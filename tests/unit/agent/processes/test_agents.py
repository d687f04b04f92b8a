"""Agents of clouds and vendors, snaps and pods of the cluster's own: by where they lie, not by a unit's name."""

from pathlib import Path

import pytest

from gpuwatch.agent.processes.process import Kind
from gpuwatch.agent.processes.table import ProcessTable
from tests.support.fakes.proc_files import CONTAINER, USER_SESSION, put_process

PEOPLE, SERVICE = Kind.PEOPLE, Kind.SERVICE
JOB = "/system.slice/slurmstepd.scope/job_77/step_0/user/task_0"


def unit(name: str) -> str:
    """The group of a system service."""
    return f"/system.slice/{name}"


@pytest.fixture
def table(tmp_path: Path) -> ProcessTable:
    """A host with one unit of a package, and one that an administrator made."""
    for file in ("usr/lib/systemd/system/shipped.service", "etc/systemd/system/train.service"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("[Service]\n")
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    return ProcessTable(tmp_path / "proc", tmp_path / "etc", tmp_path / "usr", tmp_path / "run", tmp_path / "pods")


CLOUD = unit("aliyun.service")
# What an agent is or runs · its group · its user · its program's file · its arguments · whose work it is.
AGENTS: list[tuple[str, str, int, str, tuple[str, ...], Kind]] = [
    ("oneagentos", unit("train.service"), 0, "/opt/dynatrace/oneagent/agent/lib64/oneagentos", (), SERVICE),
    ("splunkd", unit("train.service"), 1011, "/opt/splunkforwarder/bin/splunkd", (), SERVICE),  # useradd without -r
    ("sgagent", "/user.slice/user-0.slice/session-1.scope", 0, "/usr/local/qcloud/stargate/bin/sgagent", (), SERVICE),
    ("java", unit("train.service"), 0, "/opt/instana/agent/jvm/bin/java", ("java", "-cp", "x.jar", "Main"), SERVICE),
    (
        "java",
        unit("train.service"),
        0,
        "/usr/bin/java",
        ("java", "-cp", "/opt/spm/spm-monitor/lib/spm.jar", "M"),
        SERVICE,
    ),
    ("bash", unit("train.service"), 0, "/usr/bin/bash", ("bash", "/home/kubernetes/bin/health-monitor.sh"), SERVICE),
    ("agent", CONTAINER, 0, "/opt/datadog-agent/bin/agent/agent", (), SERVICE),
    # what one of them runs for somebody
    ("sh", CLOUD, 0, "/usr/bin/dash", ("sh", "/usr/local/share/aliyun-assist/work/script/t-1.sh"), PEOPLE),
    ("python3", unit("walinuxagent.service"), 0, "/usr/bin/python3", ("python3", "/var/lib/waagent/a.py"), PEOPLE),
    ("python3", unit("train.service"), 0, "/opt/datadog-agent/embedded/bin/python3", ("python3", "/srv/a.py"), PEOPLE),
    ("java", unit("train.service"), 0, "/opt/instana/agent/jvm/bin/java", ("java", "-jar", "/srv/a.jar"), PEOPLE),
    ("a", unit("train.service"), 0, "/opt/instana/../../srv/a", (), PEOPLE),
    # what is only called like one
    ("python3", unit("train.service"), 0, "/usr/bin/python3", ("python3", "/opt/jc/train.py"), PEOPLE),
    ("java", unit("train.service"), 0, "/usr/bin/java", ("java", "-jar", "/opt/spm/brain.jar"), PEOPLE),
    # a person's own copy, and a job
    ("splunkd", USER_SESSION, 1000, "/opt/splunkforwarder/bin/splunkd", (), PEOPLE),
    ("splunkd", unit("cron.service"), 1000, "/opt/splunkforwarder/bin/splunkd", (), PEOPLE),
    ("oneagentos", JOB, 0, "/opt/dynatrace/oneagent/agent/lib64/oneagentos", (), PEOPLE),
    # users of snaps and of DynamicUser=, in a unit of a package and in somebody's
    ("gomon", unit("shipped.service"), 584788, "/snap/oracle-cloud-agent/96/gomon", (), SERVICE),
    ("alertd", unit("shipped.service"), 61234, "/usr/bin/alertd", (), SERVICE),
    ("alertd", unit("train.service"), 61234, "/usr/bin/alertd", (), PEOPLE),
]


@pytest.mark.parametrize("case", AGENTS, ids=lambda case: f"{case[0]} in {case[1][-30:]}")
def test_an_agent_is_known_by_where_its_program_lies(
    table: ProcessTable, tmp_path: Path, case: tuple[str, str, int, str, tuple[str, ...], Kind]
) -> None:
    """Whoever made its unit; what it runs for somebody lies elsewhere and is theirs."""
    name, cgroup, uid, file, arguments, expected = case
    put_process(tmp_path / "proc", 77, name, cgroup=cgroup, uid=uid, executable=file, arguments=arguments)
    found = table.read_processes(1.0).processes[77]
    assert (found.kind, found.rule) == (expected, found.rule)


def test_what_an_agents_script_waits_with_is_the_agents(table: ProcessTable, tmp_path: Path) -> None:
    """Its `sleep`; a program of another kind that it began is somebody's, and so is the sleep of somebody's script."""
    proc, monitor = tmp_path / "proc", ("bash", "/home/kubernetes/bin/health-monitor.sh")
    put_process(proc, 70, "bash", cgroup=unit("train.service"), uid=0, executable="/usr/bin/bash", arguments=monitor)
    put_process(
        proc,
        71,
        "bash",
        cgroup=unit("train.service"),
        uid=0,
        executable="/usr/bin/bash",
        arguments=("bash", "/srv/a.sh"),
    )
    for pid, name, parent in ((77, "sleep", 70), (78, "python3", 70), (79, "sleep", 71)):
        put_process(proc, pid, name, cgroup=unit("train.service"), uid=0, executable=f"/usr/bin/{name}", parent=parent)
    found = table.read_processes(1.0).processes
    assert [found[pid].kind for pid in (77, 78, 79)] == [SERVICE, PEOPLE, PEOPLE]


def test_a_pod_of_the_clusters_own_is_known_by_its_namespace(table: ProcessTable, tmp_path: Path) -> None:
    """By the kubelet's folders of logs; not a terminal in one, a model server there, or a pod that is not known."""
    own, other = "0a1b2c3d-0001-0002-0003-0a1b2c3d4e5f", "0a1b2c3d-0001-0002-0003-0a1b2c3d4e60"
    (tmp_path / f"pods/kube-system_netd-4f_{own}").mkdir(parents=True)
    (tmp_path / f"pods/team-a_netd-4f_{other}").mkdir()
    cases = (
        (own, "netd", 0, SERVICE),
        (own, "bash", 34816, PEOPLE),
        (own, "vllm", 0, PEOPLE),
        (other, "netd", 0, PEOPLE),
        (own[:-1] + "0", "netd", 0, PEOPLE),
    )
    for pid, (uid, name, tty, _) in enumerate(cases, start=77):
        group = f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/cri-containerd-{'cd' * 32}.scope"
        put_process(tmp_path / "proc", pid, name, cgroup=group, uid=0, executable=f"/{name}", tty=tty)
    found = table.read_processes(1.0).processes
    assert [found[pid].kind for pid in range(77, 82)] == [case[3] for case in cases]


def test_a_snap_is_a_package_though_its_unit_lies_in_etc(table: ProcessTable, tmp_path: Path) -> None:
    """Its unit says that snapd wrote it; one that an administrator names like that does not."""
    units = tmp_path / "etc/systemd/system"
    (units / "snap.lxd.daemon.service").write_text("[Unit]\n# Auto-generated, DO NOT EDIT\nX-Snappy=yes\n[Service]\n")
    (units / "snap.own.service").write_text("[Service]\n")
    for pid, name, file in (
        (77, "snap.lxd.daemon", "/snap/lxd/29351/bin/lxd"),
        (78, "snap.lxd.daemon", "/srv/train"),
        (79, "snap.own", "/snap/lxd/29351/bin/lxd"),
    ):
        put_process(tmp_path / "proc", pid, "x", cgroup=unit(f"{name}.service"), uid=0, executable=file)
    found = table.read_processes(1.0).processes
    assert [found[pid].kind for pid in (77, 78, 79)] == [SERVICE, PEOPLE, PEOPLE]


def test_anacron_in_a_session_of_roots_waits_for_nobody(table: ProcessTable, tmp_path: Path) -> None:
    """On Red Hat it sleeps for up to 45 minutes there; its jobs count by themselves."""
    group = "/user.slice/user-0.slice/session-c4.scope"
    put_process(tmp_path / "proc", 77, "anacron", cgroup=group, uid=0, executable="/usr/sbin/anacron")
    put_process(tmp_path / "proc", 78, "train", cgroup=group, uid=0, executable="/srv/train", parent=77)
    put_process(tmp_path / "proc", 79, "anacron", cgroup=USER_SESSION, uid=1000, executable="/home/a/anacron")
    found = table.read_processes(1.0).processes
    assert [found[pid].kind for pid in (77, 78, 79)] == [SERVICE, PEOPLE, PEOPLE]


def test_azures_agent_runs_itself_from_where_it_keeps_its_updates(table: ProcessTable, tmp_path: Path) -> None:
    """Its script is named from the folder that it works in; an extension of the same name elsewhere is people's."""
    script = ("python3", "-u", "bin/WALinuxAgent-2.11.1.4-py3.9.egg", "-run-exthandlers")
    for pid, folder in ((77, "/var/lib/waagent"), (78, "/srv/x")):
        put_process(tmp_path / "proc", pid, "python3", cgroup=unit("walinuxagent.service"), uid=0, arguments=script)
        (tmp_path / f"proc/{pid}/cwd").symlink_to(folder)
    found = table.read_processes(1.0).processes
    assert (found[77].kind, found[78].kind) == (SERVICE, PEOPLE)
