"""The process table over time: what a process becomes, and what `watch` runs."""

from itertools import product
from pathlib import Path

import pytest

from gpuwatch.agent.processes.process import Kind
from gpuwatch.agent.processes.table import ProcessTable
from tests.support.fakes.proc_files import USER_SESSION, put_process
from tests.support.fakes.shells import MadeShells

SSH = "/system.slice/ssh.service"
BEGAN = 1000.0


class Host:
    """A made /proc, and the table that reads it."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        (self.proc / "self/ns").mkdir(parents=True)
        self.table = ProcessTable(self.proc, root / "etc", root / "usr", root / "run", shells=MadeShells())

    def kinds(self, age: float) -> dict[int, Kind]:
        """The kinds of all processes when those that began at BEGAN are so old, in seconds."""
        (self.proc / "uptime").write_text(f"{BEGAN + age:.2f} 0.00\n")
        return {pid: each.kind for pid, each in self.table.read_processes(age).processes.items()}

    def attributed(self) -> dict[int, tuple[Kind, str]]:
        """The kind of each process, and the rule that says so."""
        self.kinds(0.0)
        return (
            {}
            if self.table.view is None
            else {pid: (each.kind, each.rule) for pid, each in self.table.view.processes.items()}
        )

    def users(self) -> set[int]:
        """The users of all processes, as the table knows them."""
        return set() if self.table.view is None else {each.uid for each in self.table.view.processes.values()}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """It, without a process."""
    return Host(tmp_path)


def test_a_process_is_read_again_whenever_its_age_has_doubled(host: Host) -> None:
    """A login moves sshd into the session's group, a server gives up root: under the same name and pid."""
    put_process(host.proc, 77, "sshd", cgroup=SSH, uid=0, started_seconds=BEGAN)
    at_first = host.kinds(10.0)[77]
    put_process(host.proc, 77, "sshd", cgroup=USER_SESSION, uid=0, started_seconds=BEGAN)

    assert at_first is Kind.SERVICE
    assert host.kinds(19.0)[77] is Kind.SERVICE  # as it was read at 10 s
    assert host.kinds(20.0)[77] is Kind.SESSION


def test_the_kind_of_each_process_is_the_same_whatever_runs_beside_it(tmp_path: Path) -> None:
    """A look attributes what is alike once: programs, arguments, groups, users and terminals make a difference."""
    together, alone = Host(tmp_path / "together"), set[tuple[Kind, str]]()
    chosen = product(
        (("bash", "/bin/bash"), ("python3", "/usr/bin/python3"), ("nginx", "/usr/sbin/nginx"), ("top", "/home/a/top")),
        (("x", "-l"), ("x", "/home/alice/train.sh")),
        (SSH, USER_SESSION, "/system.slice/nginx.service"),
        (0, 1000),
        (False, True),
    )
    found = {}
    for pid, ((name, program), arguments, group, uid, tty) in enumerate(chosen, start=100):
        one, terminal = Host(tmp_path / str(pid)), (34816 + pid) * tty
        for host in (together, one):
            put_process(
                host.proc,
                pid,
                name,
                executable=program,
                arguments=arguments,
                cgroup=group,
                uid=uid,
                tty=terminal,
                parent=1,
            )
        found[pid] = one.attributed()[pid]
        alone.add(found[pid])

    assert together.attributed() == found
    assert len(alone) > 4


def test_a_shell_that_became_a_script_is_seen(host: Host) -> None:
    """A look between fork and exec sees the copy of the person's shell; the name stays when it runs a script."""
    put_process(host.proc, 77, "bash", arguments=("-bash",), tty=34816, started_seconds=BEGAN)
    at_first = host.kinds(0.0)[77]
    put_process(host.proc, 77, "bash", arguments=("bash", "train.sh"), tty=34816, started_seconds=BEGAN)

    assert at_first is Kind.SESSION
    assert host.kinds(10.0)[77] is Kind.PEOPLE


def test_a_process_that_hangs_is_not_read_again(host: Host) -> None:
    """Its arguments might never come, and the look with them."""
    put_process(host.proc, 77, "python3", state="D", started_seconds=BEGAN)
    host.kinds(10.0)
    put_process(host.proc, 77, "python3", state="D", cgroup=SSH, uid=0, executable="/sbin/sshd", started_seconds=BEGAN)
    held = host.kinds(100.0)[77], host.users()
    put_process(host.proc, 77, "python3", cgroup=SSH, uid=0, executable="/usr/sbin/sshd", started_seconds=BEGAN)

    assert held == (Kind.PEOPLE, {1000})
    assert host.kinds(110.0)[77] is Kind.SERVICE


def test_an_old_process_is_not_read_at_every_look(host: Host) -> None:
    """Half an hour of looks each ten seconds reads it eight times, and not 180 times."""
    users: set[int] = set()
    for look in range(1, 181):
        put_process(host.proc, 77, "python3", uid=1000 + look, started_seconds=BEGAN)
        host.kinds(look * 10.0)
        users |= host.users()

    assert len(users) == 8


@pytest.mark.parametrize("child", ["sh", "grep", "squeue"])
def test_what_watch_runs_only_looks_for_its_first_seconds(host: Host, child: str) -> None:
    """`watch 'nvidia-smi | grep python'` left in tmux is nobody's work, whatever is alive for a moment."""
    put_process(host.proc, 70, "watch", arguments=("watch", "nvidia-smi"), tty=34816, started_seconds=BEGAN - 500.0)
    put_process(host.proc, 71, "sh", parent=70, arguments=("sh", "-c", "x | y"), tty=34816, started_seconds=BEGAN)
    put_process(host.proc, 72, child, parent=71, arguments=(child, "-c", "x"), tty=34816, started_seconds=BEGAN)

    assert host.kinds(1.0) == dict.fromkeys((70, 71, 72), Kind.SESSION)
    assert host.kinds(11.0) == {70: Kind.SESSION, 71: Kind.PEOPLE, 72: Kind.PEOPLE}


@pytest.mark.parametrize("child", ["rsync", "python3", "poll.sh"])
def test_what_works_under_watch_is_somebodys(host: Host, child: str) -> None:
    """`watch` is a scheduler, too: what copies or computes is work, however short it is."""
    put_process(host.proc, 70, "watch", tty=34816, arguments=("watch", "df; x"), started_seconds=BEGAN - 500.0)
    put_process(host.proc, 71, "sh", parent=70, arguments=("sh", "-c", "x"), tty=34816, started_seconds=BEGAN)
    put_process(host.proc, 72, child, parent=71, arguments=(child,), tty=34816, started_seconds=BEGAN)

    assert host.kinds(1.0) == {70: Kind.SESSION, 71: Kind.SESSION, 72: Kind.PEOPLE}


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (("-n", "600", "rsync -a a: /b"), Kind.PEOPLE),
        (("-n600", "./poll.sh"), Kind.PEOPLE),
        (("-g", "ls /nfs/ready"), Kind.PEOPLE),
        (("-dq", "3", "squeue"), Kind.PEOPLE),
        (("--chgexit", "-n", "5", "ls"), Kind.PEOPLE),
        (("-n", "2", "nvidia-smi"), Kind.SESSION),
        (("-d", "-n", "2", "ls -g"), Kind.SESSION),
        (("--interval", "2", "/usr/bin/squeue", "-e"), Kind.SESSION),
        (("nvidia-smi | grep python",), Kind.SESSION),
        ((), Kind.SESSION),
    ],
    ids=str,
)
def test_a_watch_that_waits_or_works_is_somebodys(host: Host, arguments: tuple[str, ...], kind: Kind) -> None:
    """Until the flag file is there, and between two copies, somebody counts on the machine."""
    put_process(host.proc, 70, "watch", tty=34816, arguments=("watch", *arguments), started_seconds=BEGAN)

    assert host.kinds(1.0) == {70: kind}


def test_a_program_of_the_name_watch_elsewhere_hides_nothing(host: Host) -> None:
    """In a container it is a program like any other, and so is what it runs."""
    group = "/system.slice/docker-" + "ab" * 32 + ".scope"
    put_process(host.proc, 70, "watch", cgroup=group, started_seconds=BEGAN)
    put_process(host.proc, 71, "python3", cgroup=group, parent=70, started_seconds=BEGAN)

    assert host.kinds(1.0) == dict.fromkeys((70, 71), Kind.PEOPLE)


def test_without_the_uptime_nothing_is_young(host: Host) -> None:
    """How old the children of `watch` are is then not known, so they are somebody's."""
    put_process(host.proc, 70, "watch", tty=34816)
    put_process(host.proc, 71, "sh", parent=70, arguments=("sh", "-c", "x"), tty=34816)
    found = host.table.read_processes(1.0).processes

    assert found[71].kind is Kind.PEOPLE
