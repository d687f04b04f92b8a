"""Whose work a process is: the table of real cases. A mistake towards `people` costs money, the other one a run."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.attribution.cgroup import Placement, parse_cgroup
from gpuwatch.agent.processes.kinds import CRON_JOB, Facts, UnitOrigin, classify
from gpuwatch.agent.processes.patterns import Pattern, PatternText
from gpuwatch.agent.processes.process import Kind
from gpuwatch.agent.processes.table import ProcessTable
from gpuwatch.model.gpu import GpuProcess, ProcessKind
from tests.support.fakes.proc_files import CONTAINER, USER_SESSION, put_process
from tests.support.fakes.shells import MadeShells

PEOPLE, SESSION, SERVICE = Kind.PEOPLE, Kind.SESSION, Kind.SERVICE
TMUX = "/user.slice/user-1000.slice/user@1000.service/tmux-spawn-4f.scope"
POD = "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b2c3d_0001_0002_0003_0a1b2c3d4e5f.slice"
JOB = "/system.slice/slurmstepd.scope/job_77/step_0/user/task_0"


def unit(name: str) -> str:
    """The group of a system service."""
    return f"/system.slice/{name}"


UPGRADES = ("python3", "/usr/share/unattended-upgrades/unattended-upgrade-shutdown", "--wait-for-signal")

# What runs · its group · its user · its program's file · its arguments · whether it has a terminal · whose work it is.
CASES: list[tuple[str, str, int, str, tuple[str, ...], int, Kind]] = [
    # people's work
    ("python3", USER_SESSION, 1000, "/usr/bin/python3.11", ("python3", "prep.py"), 34816, PEOPLE),
    ("wget", TMUX, 1000, "/usr/bin/wget", (), 34817, PEOPLE),
    ("sleep", TMUX, 1000, "/usr/bin/sleep", ("sleep", "6h"), 34817, PEOPLE),
    ("bash", TMUX, 1000, "/usr/bin/bash", ("bash", "-c", "sleep 6h; python train.py"), 34817, PEOPLE),
    ("bash", TMUX, 1000, "/usr/bin/bash", ("bash", "run.sh"), 34817, PEOPLE),
    ("train.sh", TMUX, 1000, "/usr/bin/bash", ("/bin/bash", "./train.sh"), 34817, PEOPLE),
    ("bash", USER_SESSION, 1000, "/usr/bin/bash", (), 0, PEOPLE),  # ssh host bash < script
    ("python3", unit("train.service"), 0, "/usr/bin/python3.11", (), 0, PEOPLE),  # an administrator's own unit
    ("prepare", unit("run-u7.service"), 0, "/opt/prepare", (), 0, PEOPLE),  # systemd-run
    ("ollama", unit("ollama.service"), 998, "/usr/local/bin/ollama", (), 0, PEOPLE),
    ("Runner.Listener", unit("actions.runner.a.service"), 0, "/opt/runner/bin/Runner.Listener", (), 0, PEOPLE),
    ("python", CONTAINER, 0, "/usr/bin/python3.10", (), 0, PEOPLE),
    ("sleep", CONTAINER, 0, "/usr/bin/sleep", ("sleep", "infinity"), 0, PEOPLE),
    ("bash", CONTAINER, 0, "/usr/bin/bash", (), 34816, PEOPLE),
    ("python", f"{POD}/cri-containerd-{'cd' * 32}.scope", 0, "/usr/bin/python3", (), 0, PEOPLE),
    ("python3", JOB, 1001, "/usr/bin/python3", (), 0, PEOPLE),
    ("qemu-system-x86", "/machine.slice/machine-qemu.scope", 107, "/usr/bin/qemu-system-x86_64", (), 0, PEOPLE),
    ("python3", unit("cron.service"), 1000, "/usr/bin/python3", (), 0, PEOPLE),
    ("python3", unit("ssh.service"), 1000, "/usr/bin/python3", (), 0, PEOPLE),  # sshd without PAM
    ("python3", unit("amazon-ssm-agent.service"), 1001, "/usr/bin/python3", (), 0, PEOPLE),  # Session Manager
    ("python3", unit("docker-helper.service"), 1000, "/usr/bin/python3", (), 0, PEOPLE),
    ("python3", "/", 0, "/usr/bin/python3", (), 0, PEOPLE),  # a host without systemd
    ("raylet", TMUX, 1000, "/opt/conda/raylet", (), 0, PEOPLE),
    ("node_exporter", TMUX, 1000, "/home/a/node_exporter", (), 0, PEOPLE),  # a user's own program of that name
    ("nvvs", TMUX, 1000, "/home/a/nvvs", (), 0, PEOPLE),
    ("train.py", unit("cloud-final.service"), 0, "/usr/bin/python3", (), 0, PEOPLE),  # user data
    ("bash", unit("google-startup-scripts.service"), 0, "/usr/bin/bash", ("bash", "/var/x"), 0, PEOPLE),
    ("python3", unit("walinuxagent.service"), 0, "/usr/bin/python3", ("python3", "t.py"), 0, PEOPLE),  # an extension
    ("sh", unit("docker.service"), 0, "/usr/bin/sh", ("sh", "-c", "make"), 0, PEOPLE),  # docker build
    ("tritonserver", unit("nvidia-triton.service"), 0, "/opt/tritonserver/bin/tritonserver", (), 0, PEOPLE),
    ("ollama", unit("gpuwatch-like.service"), 0, "/usr/bin/ollama", (), 0, PEOPLE),
    ("bash", unit("rc-local.service"), 0, "/usr/bin/bash", ("bash", "/etc/rc.local"), 0, PEOPLE),
    # named like something of the machine or of a login, and people's all the same
    ("python3", TMUX, 1000, "/usr/bin/python3.11", ("python3", "localsearch-3"), 34817, PEOPLE),  # their own script
    ("python3", CONTAINER, 0, "/usr/bin/python3.11", ("python3", "/srv/telegraf"), 0, PEOPLE),
    ("python3", TMUX, 1000, "/usr/bin/python3.11", ("python3", "tracker-eval.py"), 34817, PEOPLE),
    ("evolution-es.py", TMUX, 1000, "/home/a/venv/bin/python3.11", ("python3", "./evolution-es.py"), 34817, PEOPLE),
    ("dcvae", TMUX, 1000, "", ("dcvae",), 34817, PEOPLE),
    ("sddm-train", TMUX, 1000, "", ("sddm-train",), 34817, PEOPLE),
    ("python3", unit("xray-cut.service"), 996, "/usr/bin/python3.11", ("python3", "cut.py"), 0, PEOPLE),
    ("python3", unit("falcon-eval.service"), 996, "/usr/bin/python3.11", ("python3", "eval.py"), 0, PEOPLE),
    ("python3", unit("tuned-llama.service"), 996, "/usr/bin/python3.11", ("python3", "serve.py"), 0, PEOPLE),
    ("python3", unit("onnx-exporter.service"), 0, "/usr/bin/python3.11", ("python3", "export.py"), 0, PEOPLE),
    ("watch", TMUX, 1000, "/usr/bin/watch", ("watch", "-n", "60", "-g", "ls", "/nfs/ready"), 34817, PEOPLE),
    ("watch", TMUX, 1000, "/usr/bin/watch", ("watch", "--chgexit", "squeue"), 34817, PEOPLE),
    ("security-agent", CONTAINER, 0, "/app/security-agent", (), 0, PEOPLE),  # an agent of a language model
    ("python3", "/lxc.payload.c1/system.slice/dbus.service", 1000000, "/usr/bin/python3.11", (), 0, PEOPLE),
    ("bash", "/lxc.payload.c1/user.slice/user-0.slice/session-1.scope", 1000000, "/usr/bin/bash", (), 34816, PEOPLE),
    ("screen", TMUX, 1000, "/home/a/dock/build/screen", ("./screen",), 34817, PEOPLE),  # a virtual screening
    ("ps", TMUX, 1000, "/home/a/fed/ps", ("./ps",), 34817, PEOPLE),  # a parameter server
    ("vector", CONTAINER, 0, "/app/vector", (), 0, PEOPLE),  # an index
    ("vector", unit("vector.service"), 995, "/srv/index/vector", (), 0, PEOPLE),
    ("python3", unit("vector.service"), 995, "/usr/bin/python3.11", ("python3", "/srv/index/build.py"), 0, PEOPLE),
    # a daemon from a package that runs what people wrote
    ("celery", unit("supervisor.service"), 0, "/usr/bin/python3.11", ("python3", "/srv/a/bin/celery"), 0, PEOPLE),
    ("ffmpeg", unit("supervisor.service"), 33, "/usr/bin/ffmpeg", ("ffmpeg", "-i", "rtsp://cam"), 0, PEOPLE),
    ("sh", unit("incron.service"), 0, "/usr/bin/dash", ("sh", "/root/score.sh"), 0, PEOPLE),
    ("python3", unit("shipped.service"), 33, "/usr/bin/python3.11", ("python3", "/srv/app/main.py"), 0, PEOPLE),
    ("python3", unit("shipped.service"), 33, "/usr/bin/python3.11", ("python3", "-m", "app"), 0, PEOPLE),
    ("app", unit("shipped.service"), 33, "/srv/app/app", (), 0, PEOPLE),
    ("node", unit("shipped.service"), 33, "/usr/bin/node", ("node", "/srv/app/server.js"), 0, PEOPLE),
    ("java", unit("shipped.service"), 33, "/usr/bin/java", ("java", "-Xmx4g", "-jar", "/srv/a.jar"), 0, PEOPLE),
    # a container that is a machine or a scheduler of somebody's
    ("cron", CONTAINER, 0, "/usr/sbin/cron", (), 0, PEOPLE),
    ("crond", CONTAINER, 0, "/bin/busybox", (), 0, PEOPLE),
    ("systemd", CONTAINER, 0, "/usr/lib/systemd/systemd", (), 0, PEOPLE),
    ("sshd", f"{POD}/cri-containerd-{'cd' * 32}.scope", 0, "/usr/sbin/sshd", (), 0, PEOPLE),
    ("dockerd", f"{POD}/cri-containerd-{'cd' * 32}.scope", 0, "/usr/bin/dockerd", (), 0, PEOPLE),
    # batch systems start jobs in their own unit
    ("condor_exec.exe", unit("condor.service"), 65534, "/var/lib/condor/execute/condor_exec.exe", (), 0, PEOPLE),
    ("python3", unit("slurmd.service"), 1001, "/usr/bin/python3.11", ("python3", "t.py"), 0, PEOPLE),
    ("java", unit("jenkins.service"), 117, "/usr/bin/java", (), 0, PEOPLE),
    # what a login leaves alive
    ("bash", USER_SESSION, 1000, "/usr/bin/bash", ("-bash",), 34816, SESSION),
    ("bash", USER_SESSION, 1000, "/usr/bin/bash", ("bash", "--init-file", "/home/a/.vscode/x.sh"), 34816, SESSION),
    ("sshd", USER_SESSION, 1000, "/usr/sbin/sshd", (), 0, SESSION),
    ("tmux: server", TMUX, 1000, "/usr/bin/tmux", (), 0, SESSION),
    ("systemd", "/user.slice/user-1000.slice/user@1000.service/init.scope", 1000, "/usr/lib/systemd", (), 0, SESSION),
    ("watch", TMUX, 1000, "/usr/bin/watch", ("watch", "nvidia-smi"), 34817, SESSION),
    ("nvtop", TMUX, 1000, "/usr/bin/nvtop", (), 34817, SESSION),
    ("tail", USER_SESSION, 1000, "/usr/bin/tail", ("tail", "-f", "x.log"), 34816, SESSION),
    ("bash", unit("amazon-ssm-agent.service"), 1001, "/usr/bin/bash", ("bash",), 34816, SESSION),
    ("su", USER_SESSION, 0, "/usr/bin/su", ("su", "-", "bob"), 34816, SESSION),
    ("watch", TMUX, 1000, "/usr/bin/watch", ("watch", "-d", "ls", "-g"), 34817, SESSION),  # -g is an option of ls
    ("nvitop", TMUX, 1000, "/usr/bin/python3.11", ("python3", "/home/a/.local/bin/nvitop"), 34817, SESSION),
    ("htop", TMUX, 1000, "/home/a/miniconda3/bin/htop", (), 34817, SESSION),
    # the machine's own
    ("supervisord", unit("supervisor.service"), 0, "/usr/bin/python3.11", ("python3", "/bin/supervisord"), 0, SERVICE),
    ("incrond", unit("incron.service"), 0, "/usr/sbin/incrond", (), 0, SERVICE),
    ("teleport", unit("teleport.service"), 0, "/usr/local/bin/teleport", (), 0, SERVICE),
    ("xrdp", unit("xrdp.service"), 118, "/usr/sbin/xrdp", (), 0, SERVICE),
    ("node_exporter", unit("node_exporter.service"), 0, "/srv/mon/node_exporter", (), 0, SERVICE),
    ("python3", unit("shipped.service"), 33, "/usr/bin/python3.11", ("python3", "/usr/bin/glances"), 0, SERVICE),
    ("java", unit("shipped.service"), 33, "/usr/bin/java", ("java", "-jar", "/usr/share/x.jar"), 0, SERVICE),
    ("condor_startd", unit("condor.service"), 64, "/usr/sbin/condor_startd", (), 0, SERVICE),
    ("nhc", unit("slurmd.service"), 0, "/usr/bin/bash", ("/bin/bash", "/usr/sbin/nhc"), 0, SERVICE),
    ("acme_exporter", unit("acme_exporter.service"), 1003, "/opt/acme_exporter", (), 0, SERVICE),
    ("python3", unit("walinuxagent.service"), 0, "/usr/bin/python3", ("python3", "-u", "/sbin/waagent"), 0, SERVICE),
    ("fluent-bit", unit("fluent-bit.service"), 0, "/opt/fluent-bit/bin/fluent-bit", (), 0, SERVICE),
    ("node_exporter", unit("node_exporter.service"), 65534, "/usr/local/bin/node_exporter", (), 0, SERVICE),
    ("amazon-ssm-agen", unit("amazon-ssm-agent.service"), 0, "/usr/bin/amazon-ssm-agent", (), 0, SERVICE),
    ("containerd-shim", unit("containerd.service"), 0, "/usr/bin/containerd-shim-runc-v2", (), 0, SERVICE),
    ("kubelet", unit("kubelet.service"), 0, "/usr/bin/kubelet", (), 0, SERVICE),
    ("pause", f"{POD}/cri-containerd-{'ef' * 32}.scope", 65535, "/pause", (), 0, SERVICE),
    ("dcgm-exporter", f"{POD}/cri-containerd-{'0f' * 32}.scope", 0, "/usr/bin/dcgm-exporter", (), 0, SERVICE),
    ("systemd", "/init.scope", 0, "/usr/lib/systemd/systemd", (), 0, SERVICE),
    ("cron", unit("cron.service"), 0, "/usr/sbin/cron", (), 0, SERVICE),
    ("python3", unit("unattended-upgrades.service"), 0, "/usr/bin/python3.11", UPGRADES, 0, SERVICE),
    ("falcon-sensor-b", unit("falcon-sensor.service"), 0, "/opt/CrowdStrike/falcon-sensor-bpf", (), 0, SERVICE),
    ("somed", unit("shipped.service"), 0, "/usr/sbin/somed", (), 0, SERVICE),  # a package's unit
    ("sshd", unit("ssh.service"), 0, "/usr/sbin/sshd", (), 0, SERVICE),
    # what an administrator installed by hand, as the page on systemd says
    ("python3", unit("gpuwatch-agent.service"), 990, "/srv/bin/python3.11", ("python3", "-m", "gpuwatch"), 0, SERVICE),
    ("python3", unit("gpuwatch-agent.service"), 990, "/usr/bin/python3.11", ("python3", "/srv/gpuwatch"), 0, SERVICE),
    ("python3", unit("gpu_exporter.service"), 990, "/usr/bin/python3.11", ("python3", "/srv/gpu_exporter"), 0, SERVICE),
    ("elastic-agent", unit("elastic-agent.service"), 0, "/opt/Elastic/Agent/elastic-agent", (), 0, SERVICE),
    ("argusagent", unit("cloudmonitor.service"), 0, "/usr/local/cloudmonitor/bin/argusagent", (), 0, SERVICE),
    ("chronyd", unit("chrony.service"), 996, "/usr/local/sbin/chronyd", (), 0, SERVICE),
    ("master", unit("postfix.service"), 0, "/usr/lib/postfix/sbin/master", (), 0, SERVICE),
    ("python3", unit("dnf-makecache.service"), 0, "/usr/bin/python3", ("python3", "/usr/bin/dnf"), 0, SERVICE),
]  # fmt: skip

HAND_MADE = (
    "vector", "gpuwatch-agent", "gpu_exporter", "elastic-agent", "cloudmonitor", "chrony", "postfix", "dnf-makecache",
)  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> ProcessTable:
    """A host with one unit of a package, and one that an administrator made."""
    files = ("usr/lib/systemd/system/shipped.service", "etc/systemd/system/train.service")
    for file in (*files, *(f"etc/systemd/system/{name}.service" for name in HAND_MADE)):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("[Service]\n")
    (tmp_path / "proc/self/ns").mkdir(parents=True)
    return ProcessTable(tmp_path / "proc", tmp_path / "etc", tmp_path / "usr", tmp_path / "run", shells=MadeShells())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} in {case[1][-30:]}")
def test_whose_work_a_process_is(
    table: ProcessTable, tmp_path: Path, case: tuple[str, str, int, str, tuple[str, ...], int, Kind]
) -> None:
    """Each case of the table, read from /proc."""
    name, cgroup, uid, file, arguments, tty, expected = case
    put_process(tmp_path / "proc", 77, name, cgroup=cgroup, uid=uid, executable=file, arguments=arguments, tty=tty)
    found = table.read_processes(1.0).processes[77]
    assert (found.kind, found.rule) == (expected, found.rule)


def test_a_job_of_roots_cron_is_the_machines_own_for_ten_minutes(table: ProcessTable, tmp_path: Path) -> None:
    """A backup of a few seconds keeps nothing; a job of an hour is somebody's work."""
    proc = tmp_path / "proc"
    put_process(proc, 77, "backup", cgroup="/system.slice/cron.service", uid=0, started_seconds=1000.0)
    kinds = []
    for uptime in (1010.0, 1599.0, 1601.0):
        (proc / "uptime").write_text(f"{uptime:.2f} 0.00\n")
        found = table.read_processes(uptime).processes[77]
        assert found.rule == CRON_JOB
        kinds.append(found.kind)
    assert kinds == [SERVICE, SERVICE, PEOPLE]


def test_a_job_of_roots_cron_in_a_session_is_one_all_the_same(table: ProcessTable, tmp_path: Path) -> None:
    """On Red Hat pam_systemd gives each job of cron a session; a person's job, or root's own work, stays people's."""
    proc = tmp_path / "proc"
    (proc / "uptime").write_text("1010.00 0.00\n")
    session = "/user.slice/user-0.slice/session-812.scope"
    put_process(proc, 70, "crond", cgroup=unit("crond.service"), uid=0, executable="/usr/sbin/crond")
    put_process(proc, 71, "crond", cgroup=session, uid=0, executable="/usr/sbin/crond", parent=70)
    put_process(proc, 72, "sh", cgroup=session, uid=0, arguments=("sh", "-c", "x"), parent=71, started_seconds=1000.0)
    put_process(proc, 73, "rsync", cgroup=session, uid=0, parent=72, started_seconds=1000.0)
    put_process(proc, 74, "rsync", cgroup=session, uid=0, parent=1, started_seconds=1000.0)
    put_process(proc, 75, "rsync", cgroup=USER_SESSION, uid=1000, parent=71, started_seconds=1000.0)

    young = table.read_processes(1.0).processes
    (proc / "uptime").write_text("1601.00 0.00\n")
    old = table.read_processes(600.0).processes

    assert [(young[pid].kind, young[pid].rule == CRON_JOB) for pid in (72, 73, 74, 75)] == [
        (SERVICE, True), (SERVICE, True), (PEOPLE, False), (PEOPLE, False)
    ]  # fmt: skip
    assert old[73].kind is PEOPLE


def test_what_was_not_read_is_peoples(table: ProcessTable, tmp_path: Path) -> None:
    """Without a program's file, a control group and arguments nothing says that it is the machine's own."""
    put_process(tmp_path / "proc", 77, "x", cgroup="/", uid=0, executable="")
    for file in ("cgroup", "cmdline", "status", "io"):
        (tmp_path / "proc/77" / file).unlink()
    assert table.read_processes(1.0).processes[77].kind is PEOPLE


def test_a_program_that_was_executed_is_judged_anew(table: ProcessTable, tmp_path: Path) -> None:
    """A shell that became a training run under the same pid is no shell any more."""
    put_process(tmp_path / "proc", 77, "bash", arguments=("-bash",), tty=34816)
    assert table.read_processes(1.0).processes[77].kind is SESSION
    put_process(tmp_path / "proc", 77, "python3", tty=34816)
    assert table.read_processes(2.0).processes[77].kind is PEOPLE


def test_the_administrators_patterns_come_first(table: ProcessTable, tmp_path: Path) -> None:
    """`agent.workloads` before `agent.services` before the built-in rules."""
    put_process(tmp_path / "proc", 77, "fluent-bit", cgroup=unit("fluent-bit.service"), uid=0)
    put_process(tmp_path / "proc", 78, "mine", cgroup=TMUX)
    table.use(["unit:fluent*"], ["program:fluent-bit", "program:mine"])
    found = table.read_processes(1.0).processes
    assert (found[77].kind, found[78].kind) == (PEOPLE, SERVICE)
    assert found[77].rule == "agent.workloads unit:fluent*"


@pytest.mark.parametrize("wrong", ["fluent-bit", "unit:", "unit:*", "pid:7", "program:a b", 7, None, "slice:**"])
def test_a_pattern_that_is_none_is_refused(wrong: object) -> None:
    """The message names the value and what is expected."""
    with pytest.raises(ValueError, match="expected") as caught:
        PatternText.parse(wrong)
    assert repr(wrong) in str(caught.value)


@given(
    name=st.text(min_size=1, max_size=15),
    uid=st.integers(1000, 60000),
    path=st.sampled_from([USER_SESSION, TMUX, CONTAINER, JOB, unit("a.service")]),
    tty=st.booleans(),
)
def test_a_script_of_a_person_is_never_the_machines_own(name: str, uid: int, path: str, *, tty: bool) -> None:
    """Whatever it is called, in a login, a container or a job; only a container's monitoring by name is not."""
    facts = Facts(
        names=(name, "bash"), uid=uid, user="a", placement=parse_cgroup(f"0::{path}\n"), slice=path.split("/")[1],
        script=True, tty=tty,
    )  # fmt: skip
    kind, _ = classify(facts)
    assert kind in {PEOPLE, SESSION}
    if path != CONTAINER and "a.service" not in path:
        assert kind is PEOPLE


def test_a_units_origin_decides_only_what_no_name_does() -> None:
    """An unknown unit of root is people's unless a package of the distribution brought it."""
    kinds = {}
    for origin in UnitOrigin:
        placement = Placement(systemd_unit="unheard-of.service")
        facts = Facts(names=("x",), uid=0, user="root", placement=placement, slice="system.slice", origin=origin)
        kinds[origin.value], _ = classify(facts)
    assert kinds == {
        "shipped": SERVICE, "another vendor's": PEOPLE, "administrator": PEOPLE, "transient": PEOPLE, "unknown": PEOPLE
    }  # fmt: skip
    assert Pattern.from_text("user:ann").matches(("ann", "1000"))


GPU_CASES: list[tuple[str, str, int, str, bool]] = [
    ("nvvs", unit("nvidia-dcgm.service"), 0, "/usr/libexec/nvvs", True),
    ("dcgmproftester1", unit("cron.service"), 0, "/usr/bin/dcgmproftester12", True),
    ("dcgm-exporter", f"{POD}/cri-containerd-{'0f' * 32}.scope", 0, "/usr/bin/dcgm-exporter", True),
    ("nvidia-cuda-mps", unit("mps.service"), 0, "/usr/bin/nvidia-cuda-mps-server", True),
    ("Xorg", USER_SESSION, 1000, "/usr/lib/xorg/Xorg", True),
    ("nvvs", TMUX, 1000, "/home/a/nvvs", False),  # a user's own program of that name
    ("python3", unit("shipped.service"), 0, "/usr/bin/python3.11", False),  # a service that computes
    ("fluent-bit", unit("fluent-bit.service"), 0, "/opt/fluent-bit/bin/fluent-bit", False),
    ("python3", TMUX, 1000, "/usr/bin/python3.11", False),
]


@pytest.mark.parametrize("case", GPU_CASES, ids=lambda case: f"{case[0]} of {case[2]} in {case[1][-24:]}")
def test_only_health_checks_and_the_screen_are_the_machines_own_on_a_gpu(
    table: ProcessTable, tmp_path: Path, case: tuple[str, str, int, str, bool]
) -> None:
    """Whoever else holds a GPU keeps the node, a service too."""
    name, cgroup, uid, file, own = case
    put_process(tmp_path / "proc", 77, name, cgroup=cgroup, uid=uid, executable=file)
    expected = frozenset({77}) if own else frozenset()
    kind = ProcessKind.GRAPHICS if name == "Xorg" else ProcessKind.COMPUTE
    holders = [GpuProcess(pid=pid, kind=kind, memory_bytes=None) for pid in (77, 78)]
    assert [table.service_pids(holders) for _ in range(2)] == [expected, expected]


def test_a_program_named_like_a_screens_that_computes_is_somebodys(table: ProcessTable, tmp_path: Path) -> None:
    """A training run may call itself `sddm-helper`; only what draws and computes nothing is the screen's."""
    put_process(tmp_path / "proc", 77, "sddm-helper", cgroup=TMUX, executable="/home/a/venv/bin/python3.11")
    drawing, computing = (
        [GpuProcess(pid=77, kind=kind, memory_bytes=None)] for kind in (ProcessKind.GRAPHICS, ProcessKind.COMPUTE)
    )
    assert [table.service_pids(holders) for holders in (drawing, computing, drawing + computing)] == [
        frozenset({77}), frozenset(), frozenset()
    ]  # fmt: skip


def test_a_program_on_a_gpu_that_was_executed_is_judged_anew(table: ProcessTable, tmp_path: Path) -> None:
    """A container begins as a health check and goes on as a training run, with the same pid."""
    held = [GpuProcess(pid=77, kind=ProcessKind.COMPUTE, memory_bytes=None)]
    put_process(tmp_path / "proc", 77, "nvidia-smi", cgroup=CONTAINER, executable="/usr/bin/nvidia-smi")
    assert table.service_pids(held) == frozenset({77})
    put_process(tmp_path / "proc", 77, "python3", cgroup=CONTAINER, executable="/usr/bin/python3.11")
    assert table.service_pids(held) == frozenset()


def test_a_process_that_hangs_on_a_gpu_is_judged_without_its_arguments(table: ProcessTable, tmp_path: Path) -> None:
    """Whoever reads them would hang, too: here they are a pipe without a writer."""
    put_process(tmp_path / "proc", 77, "python3", executable="/usr/bin/python3.11")
    (tmp_path / "proc/77/cmdline").unlink()
    os.mkfifo(tmp_path / "proc/77/cmdline")
    assert table.service_pids([GpuProcess(pid=77, kind=ProcessKind.COMPUTE, memory_bytes=None)]) == frozenset()


def test_the_administrators_patterns_count_on_a_gpu(table: ProcessTable, tmp_path: Path) -> None:
    """A health check that no list knows."""
    put_process(tmp_path / "proc", 77, "acme-check", cgroup=unit("acme.service"), uid=0)
    put_process(tmp_path / "proc", 78, "nvvs", cgroup=unit("nvidia-dcgm.service"), uid=0)
    table.use(["program:nvvs"], ["unit:acme.service"])
    holders = [GpuProcess(pid=pid, kind=ProcessKind.COMPUTE, memory_bytes=None) for pid in (77, 78)]
    assert table.service_pids(holders) == frozenset({77})
