"""agent/evidence/slurm.py and command.py: what other programs say of the machine."""

import os
import resource
import sys
from pathlib import Path

import pytest

from gpuwatch.agent.evidence.registry import Command
from gpuwatch.agent.evidence.settings import CommandSettings, SlurmSettings
from gpuwatch.agent.evidence.slurm import Slurm
from gpuwatch.model.activity import Evidence, State
from tests.support.fakes.host import FolderHost
from tests.support.real.agents import eventually, is_running


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderHost:
    """A host without Slurm."""
    made = FolderHost(tmp_path)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return made


def script(host: FolderHost, text: str, name: str = "busy") -> str:
    """A program on the PATH."""
    path = host.write(f"bin/{name}", f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# The administrator's command.


def ran(host: FolderHost, *argv: str, deadline_seconds: float = 10.0) -> Evidence:
    """What a command says."""
    return host.tells(Command(CommandSettings(argv=argv), deadline_seconds))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("exit 0", State.BUSY),
        ("echo secret; echo secret >&2; exit 0", State.BUSY),
        ("exit 1", State.IDLE),
        ("echo nothing runs; exit 1", State.IDLE),
        ("echo Traceback >&2; exit 1", State.UNKNOWN),
        ("exit 2", State.UNKNOWN),
        ("exit 255", State.UNKNOWN),
        ("kill -9 $$", State.UNKNOWN),
        ("no-such-program", State.UNKNOWN),
    ],
)
def test_what_an_exit_status_says(host: FolderHost, text: str, says: State) -> None:
    """0 is busy; 1 is idle if nothing went to standard error; all else is unknown. What it prints is dropped."""
    found = ran(host, script(host, text))

    assert found.says is says
    assert "secret" not in str(found)


def test_a_python_script_that_dies_is_not_idle(host: FolderHost) -> None:
    """An uncaught exception ends with status 1, too."""
    assert ran(host, sys.executable, "-c", "import nothing_of_that_name").says is State.UNKNOWN


@pytest.mark.parametrize("argv", [("/no/such/program",), ("/etc/passwd",), ("/",)])
def test_a_command_that_cannot_be_started_is_unknown(host: FolderHost, argv: tuple[str, ...]) -> None:
    """With its name and the system's reason."""
    found = ran(host, *argv)

    assert found.says is State.UNKNOWN
    assert f"{argv[0]} could not be started: " in (found.note or "")


def test_no_shell_looks_at_its_arguments(host: FolderHost) -> None:
    """They arrive as they were written."""
    check = script(host, 'test "$1" = \'$(reboot); "a b"\'')

    assert ran(host, check, '$(reboot); "a b"').says is State.BUSY


def test_a_command_that_hangs_is_killed_with_all_it_started(host: FolderHost) -> None:
    """At its deadline."""
    pids = host.root / "pids"
    found = ran(host, script(host, f"sleep 1000 & echo $$ $! > {pids}; wait"), deadline_seconds=1.0)

    assert (found.says, (found.note or "").partition(" ")[2]) == (State.UNKNOWN, "did not end within 1s")
    eventually(lambda: not any(is_running(int(pid)) for pid in pids.read_text().split()))


def test_a_command_that_ends_takes_along_what_it_started(host: FolderHost) -> None:
    """And what that holds open keeps nobody waiting."""
    pids = host.root / "pids"
    found = ran(host, script(host, f"sleep 1000 & echo $! > {pids}; exit 1"))

    assert found.says is State.IDLE
    eventually(lambda: not is_running(int(pids.read_text())))


def test_a_command_does_not_hear_of_systemds_socket_or_the_settings(
    host: FolderHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it could say that the agent is alive, and read what the agent's variables hold; the rest it inherits."""
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "GPUWATCH_AGENT__BASIC_AUTH_USERS__ANN"):
        monkeypatch.setenv(name, "secret")
    monkeypatch.setenv("SITE", "here")

    assert ran(host, script(host, 'env | grep -q secret && exit 2; test "$SITE" = here')).says is State.BUSY


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_a_command_without_end_takes_no_memory(host: FolderHost, stream: str) -> None:
    """What it says is read and dropped; it misses its deadline."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = ran(host, script(host, f"exec yes {stream}"), deadline_seconds=0.5)

    assert found.says is State.UNKNOWN
    assert "did not end within" in (found.note or "")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 * 1024  # KiB


def test_more_than_a_list_of_jobs_can_be_is_unknown(host: FolderHost) -> None:
    """Its begin alone would be taken for all of it."""
    script(host, "yes 12 | head -c 2000000", "squeue")

    assert "wrote more than" in (host.tells(Slurm(SlurmSettings(), host.roots, 10.0)).note or "")


def test_a_complaint_by_another_way_to_standard_error_is_heard(host: FolderHost) -> None:
    """Opened anew by its name, before something else is left running that keeps it open."""
    assert ran(host, script(host, "echo no > /dev/stderr; sleep 60 & exit 1")).says is State.UNKNOWN


# Slurm.


def slurm(host: FolderHost) -> tuple[Evidence, ...]:
    """What the signal says for node gpu-7."""
    return host.told(Slurm(SlurmSettings(node_name="gpu-7"), host.roots, deadline_seconds=10.0))


def test_without_slurm_it_says_nothing(host: FolderHost) -> None:
    """A machine without it has no jobs of it."""
    assert slurm(host) == ()


def test_slurmd_without_squeue_is_unknown(host: FolderHost) -> None:
    """A Slurm node whose jobs cannot be listed may have one."""
    script(host, "", "slurmd")

    assert [each.says for each in slurm(host)] == [State.UNKNOWN]


@pytest.mark.parametrize("daemon", ["slurmd", "slurmstepd"])
def test_slurm_that_runs_from_another_folder_is_unknown(host: FolderHost, daemon: str) -> None:
    """ParallelCluster and many sites have it in /opt: a service's PATH does not, and jobs run all the same."""
    host.write("proc/7/comm", f"{daemon}\n")
    (found,) = slurm(host)

    assert found.says is State.UNKNOWN
    assert "PATH" in (found.note or "")


@pytest.mark.parametrize(
    ("text", "says", "note"),
    [
        ("echo 1234; echo 77_3; echo 9+1", State.BUSY, "jobs 1234, 77_3, 9+1"),
        ("true", State.IDLE, "no job on gpu-7"),
        ("echo 1234; exit 1", State.UNKNOWN, "squeue failed with status 1 for node gpu-7"),
        ("echo slurm_load_jobs error: Unable to contact", State.UNKNOWN, "squeue's output is not a list of jobs"),
    ],
)
def test_what_squeue_says(host: FolderHost, text: str, says: State, note: str) -> None:
    """Jobs are busy, none is idle, and a failure is neither."""
    script(host, text, "squeue")
    script(host, "echo idle", "sinfo")
    (found,) = slurm(host)

    assert (found.says, found.note) == (says, note)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo mixed; echo idle", State.BUSY),
        ("echo allocated*", State.BUSY),
        ("echo completing", State.BUSY),
        ("echo idle~", State.UNKNOWN),
        ("echo planned", State.BUSY),
        ("echo idle; echo idle-", State.BUSY),
        ("echo drained", State.IDLE),
        ("echo draining", State.BUSY),
        ("echo draining@", State.BUSY),
        ("echo failing", State.BUSY),
        ("echo down*", State.UNKNOWN),
        ("echo unknown", State.UNKNOWN),
        ("echo idle; echo maint", State.UNKNOWN),
        ("true", State.UNKNOWN),
        ("echo idle; exit 1", State.UNKNOWN),
        ("echo slurm_load_partitions: Unable to contact", State.UNKNOWN),
        (None, State.UNKNOWN),
    ],
)
def test_jobs_that_squeue_hides_are_seen_by_the_nodes_state(host: FolderHost, text: str | None, says: State) -> None:
    """PrivateData=jobs hides other users' jobs; without a word on the node nobody knows."""
    script(host, "true", "squeue")
    if text is not None:
        script(host, text, "sinfo")

    assert [each.says for each in slurm(host)] == [says]


def test_a_pending_job_that_could_start_here_keeps_the_node(host: FolderHost) -> None:
    """Not on a drained one; a queue that cannot be read is unknown. Partitions that are hidden are asked about, too."""
    line = "PD|ann|N/A|(null)|0|(null)||812_[5-9%1]|gpu|JobArrayTaskLimit|N/A|1|||||x"
    asked = f'echo "$1 $3" > {host.root}/asked; echo "{line}"'
    script(host, f'case "$*" in *--states=PD*" --all") {asked};; esac', "squeue")
    script(host, 'case "$*" in *" --all") echo \'idle|gpu|x|gpu:a10g:4\';; esac', "sinfo")
    (found,) = slurm(host)

    assert found.says is State.BUSY
    assert found.note == "no job on gpu-7; pending, and could start here: 812_[5-9%1] (JobArrayTaskLimit)"
    assert (host.root / "asked").read_text() == "--noheader --partition=gpu\n"
    idle = "echo 'gpu-{}|idle|gpu|x|gpu:a10g:4'; echo 'gpu-7|idle|gpu|x|gpu:a10g:4'"
    for other, says in ((6, State.IDLE), (8, State.BUSY)):  # one task needs one node: the first
        script(host, f'case "$*" in *--Node*) {idle.format(other)};; *) echo "idle|gpu|x|gpu:a10g:4";; esac', "sinfo")
        assert [each.says for each in slurm(host)] == [says]
    script(host, "echo 'drained|gpu|x|gpu:a10g:4'", "sinfo")
    assert [each.says for each in slurm(host)] == [State.IDLE]
    script(host, "echo 'idle|gpu|x|gpu:a10g:4'", "sinfo")
    script(host, 'case "$*" in *--states=PD*) exit 1;; esac', "squeue")
    assert [each.says for each in slurm(host)] == [State.UNKNOWN]


def test_squeue_is_asked_for_the_jobs_that_this_node_has(host: FolderHost) -> None:
    """What is about to start there, and what is suspended, included; pending ones, and others' nodes, are not."""
    script(host, f'echo "$@" > {host.root}/asked', "squeue")
    slurm(host)

    assert (host.root / "asked").read_text() == "--noheader --states=R,CG,CF,S --nodelist=gpu-7 --format=%i --all\n"


def test_without_a_name_the_node_is_the_short_host_name(host: FolderHost) -> None:
    """As Slurm itself assumes."""
    script(host, f'echo "$@" > {host.root}/asked', "squeue")
    host.told(Slurm(SlurmSettings(), host.roots, deadline_seconds=10.0))

    assert f"--nodelist={os.uname().nodename.partition('.')[0]} " in (host.root / "asked").read_text()
