"""A real slurmctld with nodes that have no slurmd, and one that has: jobs run there, on GPUs that are no GPUs."""

import os
import pwd
import socket
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.controller.slurm.scontrol import Scontrol
from gpuwatch.controller.slurm.settings import SlurmSettings
from tests.support.components import missing
from tests.support.kubernetes_programs import cache
from tests.support.real.agents import eventually, free_port

_CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
KillWait=1
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
GresTypes=gpu
NodeName=gpu-[1-4] NodeAddr=127.0.1.[1-4] CPUs=1 State=DOWN Reason=new
NodeName=gpu-5 NodeAddr=127.0.0.1 NodeHostName={host} Port={node_port} CPUs=2 Gres=gpu:4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
{more}
"""


@dataclass(frozen=True, slots=True)
class RealSlurm:
    """One running controller of Slurm with the nodes gpu-1 to gpu-4, all idle, and gpu-5, which has a slurmd."""

    folder: Path
    scontrol: Path
    programs: Path
    environment: Mapping[str, str]

    @property
    def cluster(self) -> Scontrol:
        """As the controller of gpuwatch reaches it."""
        return Scontrol(
            SlurmSettings(
                scontrol=str(self.scontrol),
                squeue=str(self.folder / "squeue"),
                conf=str(self.folder / "slurm.conf"),
                pools=("default",),
            )
        )

    def run(self, *arguments: str) -> str:
        """What an administrator types after `scontrol`."""
        return self.command("scontrol", *arguments)

    def command(self, program: str, *arguments: str, stdin: str = "") -> str:
        """One of Slurm's commands."""
        argv = [str(self.programs / "usr/bin" / program), *arguments]
        ended = subprocess.run(
            argv, env=self.environment, input=stdin, capture_output=True, text=True, check=False, cwd=self.folder
        )
        return ended.stdout + ended.stderr

    def submit(self, *options: str, script: str = "exec sleep 60") -> str:
        """The number of a job on gpu-5, which runs."""
        said = self.command("sbatch", "--nodelist=gpu-5", *options, stdin=f"#!/bin/sh\n{script}\n")
        job = said.split()[-1]
        eventually(lambda: "JobState=RUNNING" in self.run("show", "job", job), lambda: said)
        return job

    def state(self, name: str) -> str:
        """`scontrol show node`, its state."""
        found = [word for word in self.run("show", "node", name).split() if word.startswith("State=")]
        return found[0].removeprefix("State=") if found else ""


def second_node() -> str:
    """The line of slurm.conf of the node gpu-6, whose slurmd `slurmd_running` starts."""
    place = f"NodeAddr=127.0.0.1 NodeHostName={socket.gethostname()} Port={free_port()}"
    return f"NodeName=gpu-6 {place} CPUs=2 State=UNKNOWN"


@contextmanager
def slurmd_running(made: RealSlurm, name: str) -> Iterator[None]:
    """The slurmd of a node; its machine is off where the block ends."""
    with _running(made, "slurmd", "-N", name, "-d", str(made.folder / "stepd")):
        yield
        _end_jobs(made, f"--nodelist={name}", "--state=RUNNING")


@contextmanager
def slurm_running(folder: Path, more: str = "") -> Iterator[RealSlurm]:
    """Started in that folder, ended with the block; `more` are lines of slurm.conf.

    Skips the test where Debian's packages are not unpacked.
    """
    programs = cache() / "slurm"
    if not (programs / "usr/sbin/slurmd-wlm").exists():
        missing("slurmctld is not unpacked here (`sh tests/support/slurm_programs.sh`, on Debian)")
    (plugins,) = programs.glob("usr/lib/*/slurm-wlm")
    user = pwd.getpwuid(os.getuid()).pw_name
    host = socket.gethostname()
    (folder / "state").mkdir()
    ports = {"port": free_port(), "node_port": free_port()}
    conf = _CONF.format(host=host, user=user, plugins=plugins, folder=folder, more=more, **ports)
    (folder / "slurm.conf").write_text(conf)
    (folder / "gres.conf").write_text("Name=gpu File=/dev/tty[0-3]\n")  # slurmd wants devices
    libraries = f"{plugins}:{plugins.parent}"
    for name in ("scontrol", "squeue"):
        _script(folder / name, libraries, programs / "usr/bin" / name)
    _script(folder / "stepd", libraries, programs / "usr/sbin/slurmstepd-wlm")
    environment = os.environ | {"LD_LIBRARY_PATH": libraries, "SLURM_CONF": str(folder / "slurm.conf")}
    made = RealSlurm(folder, folder / "scontrol", programs, environment)
    with ExitStack() as daemons:
        daemons.enter_context(_running(made, "slurmctld", "-c"))
        eventually(lambda: "NodeName=gpu-1" in made.run("show", "node"), (folder / "slurmctld.output").read_text)
        daemons.enter_context(slurmd_running(made, "gpu-5"))
        for number in range(1, 5):
            made.run("update", f"NodeName=gpu-{number}", "State=IDLE")
        eventually(lambda: made.state("gpu-5") == "IDLE", (folder / "slurmd.output").read_text)
        yield made
        _end_jobs(made, f"--user={user}")


def _end_jobs(made: RealSlurm, *which: str) -> None:
    """Cancel them and wait for their ends: without its slurmd a step would outlive the test."""
    where = [each for each in which if each.startswith("--nodelist")]
    made.command("scancel", *which)
    asked = ("squeue", "--noheader", *where, "--states=RUNNING,COMPLETING")
    eventually(lambda: not made.command(*asked).strip(), lambda: made.command(*asked))


def _script(path: Path, libraries: str, program: Path) -> None:
    """A program that finds its libraries where they are unpacked."""
    path.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{libraries}" exec "{program}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@contextmanager
def _running(made: RealSlurm, name: str, *options: str) -> Iterator[None]:
    """A daemon under its own name: by another one (Debian's slurmctld-wlm) it does not read the GPUs of its nodes."""
    program = made.programs / f"usr/sbin/{name}-wlm"
    with (made.folder / f"{name}.output").open("wb") as output:
        process = subprocess.Popen(
            [name, "-D", *options], executable=program, env=made.environment, stdout=output, stderr=output
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(10)
