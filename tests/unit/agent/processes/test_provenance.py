"""Whose work a process is, by whose package brought its unit, its program and its script: the table of real cases."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from gpuwatch.agent.command import CommandError
from gpuwatch.agent.processes import packages
from gpuwatch.agent.processes.kinds import PACKAGED
from gpuwatch.agent.processes.package_owners import find_owners
from gpuwatch.agent.processes.packages import PackageOwners
from gpuwatch.agent.processes.process import Kind, Process
from gpuwatch.agent.processes.table import ProcessTable
from tests.support.fakes.package_databases import COMPANY, APackage, base_files, put_dpkg
from tests.support.fakes.proc_files import CONTAINER, USER_SESSION, put_process

PEOPLE, SERVICE = Kind.PEOPLE, Kind.SERVICE
TTY = 34816
SHIPPED, ADMIN, GENERATED = "usr/lib/systemd/system", "etc/systemd/system", "run/systemd/generator.late"
OF_DISTRIBUTION = (
    *(
        "/usr/bin/python3.11",
        "/usr/bin/bash",
        "/usr/bin/dash",
        "/usr/bin/screen",
        "/usr/bin/top",
        "/usr/bin/supervisord",
    ),
    *("/usr/lib/postgresql/15/bin/postgres", "/usr/lib/systemd/system/postgresql@.service", "/usr/sbin/chronyd"),
    *("/usr/lib/systemd/system/chrony.service", "/usr/sbin/fail2ban-server", "/etc/init.d/exim4"),
    *("/usr/lib/systemd/system/fail2ban.service", "/usr/lib/systemd/system/networkd-dispatcher.service"),
    *("/usr/sbin/exim4", "/usr/lib/systemd/system/hook.service", "/usr/bin/networkd-dispatcher"),
)
OF_COMPANY = (
    *("/usr/lib/systemd/system/acme-inference.service", "/usr/bin/acme-inference", "/usr/bin/rpc-score"),
    *("/usr/lib/systemd/system/rpc-score.service", "/opt/acme/bin/serve", "/usr/lib/systemd/system/acme-py.service"),
    *("/usr/bin/telegraf", "/usr/lib/systemd/system/telegraf.service", "/usr/lib/acme/loop.py"),
    *("/opt/rapid7/ir_agent/ir_agent", "/usr/lib/systemd/system/ir_agent.service"),
    *("/opt/datadog-agent/bin/agent/agent", "/usr/lib/systemd/system/datadog-agent.service"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A process: its kind by the databases and without them, where its unit's file lies, and what it runs."""

    called: str
    kind: Kind
    without: Kind
    folder: str | None
    group: str
    uid: int
    words: tuple[str, ...]

    @classmethod
    def from_row(cls, row: str) -> Self:
        """From a row of the table."""
        kinds, place, words, called = (part.strip() for part in row.split("|"))
        kind, without = map(Kind, kinds.split())
        where, group, uid = place.split()
        folder = {"lib": SHIPPED, "etc": ADMIN, "init": GENERATED}.get(where)
        group = {"session": USER_SESSION, "container": CONTAINER}.get(group, f"/system.slice/{group}")
        return cls(
            called=called,
            kind=kind,
            without=without,
            folder=folder,
            group=group,
            uid=int(uid),
            words=tuple(words.split()),
        )


# The kinds with the databases and without · where the unit's file lies, the unit, the user · the program's file and its
# arguments · what it is.
ROWS = """
people service | lib acme-inference.service 0 | /usr/bin/acme-inference | a company's service
people service | lib acme-py.service 999 | /usr/bin/python3.11 /usr/lib/acme/loop.py | its service in Python
people service | lib rpc-score.service 0 | /usr/bin/rpc-score | its service under a name of the distribution's
service service | lib telegraf.service 999 | /usr/bin/telegraf | Telegraf from its vendor
service service | lib ir_agent.service 0 | /opt/rapid7/ir_agent/ir_agent | Rapid7's agent
service service | lib datadog-agent.service 998 | /opt/datadog-agent/bin/agent/agent | Datadog's agent
people service | lib score.service 0 | /usr/bin/score | make install, and a unit that was copied to /usr/lib
people service | lib fail2ban.service 0 | /usr/bin/python3.11 /usr/bin/serve-model | pip as root: a script in /usr/bin
people people | etc chrony-sim.service 0 | /usr/sbin/chronyd-like | make install, under a name of the distribution's
people service | lib hook.service 0 | /usr/local/bin/nightly | a program that a distribution's unit starts
people service | lib hook.service 0 | /usr/bin/bash /usr/bin/nightly.sh | a script that a distribution's unit starts
people service | lib networkd-dispatcher.service 0 | /usr/sbin/train | what the distribution's dispatcher starts
people service | init sim.service 0 | /usr/bin/sim | an administrator's script in /etc/init.d
people session | - session 1000 | /usr/bin/own/screen 1000 | a screening that make install named screen
service service | lib postgresql@15-main.service 105 | /usr/lib/postgresql/15/bin/postgres | PostgreSQL
service service | lib chrony.service 110 | /usr/sbin/chronyd | chrony
service service | lib fail2ban.service 0 | /usr/bin/python3.11 /usr/sbin/fail2ban-server | fail2ban, a script
service service | lib networkd-dispatcher.service 0 | /usr/bin/python3.11 /usr/bin/networkd-dispatcher | the dispatcher
service service | init exim4.service 106 | /usr/sbin/exim4 | exim by its script in /etc/init.d
session session | - session 1000 | /usr/bin/screen -S work | screen
service service | lib nvidia-persistenced.service 143 | /usr/bin/nvidia-persistenced | NVIDIA's .run
service service | etc kubelet.service 0 | /usr/bin/kubelet | a kubelet that was fetched
service service | etc node_exporter.service 0 | /usr/local/bin/node_exporter | node_exporter from its archive
people people | - container 0 | /usr/bin/python3.12 /app/x.py | a container's program: no database of the host's tells
service service | - container 0 | /usr/bin/telegraf-x/telegraf | a container's Telegraf, of its image
service service | etc snap.lxd.daemon.service 0 | /snap/lxd/1/bin/lxd | a snap
"""
CASES = {case.called: case for case in map(Case.from_row, ROWS.strip().splitlines())}


class Host:
    """A made host with packages, and one process."""

    def __init__(self, root: Path) -> None:
        """It, with its databases."""
        self.root = root
        put_dpkg(
            root,
            base_files(),
            APackage(name="distribution", files=OF_DISTRIBUTION),
            APackage(name="acme", files=OF_COMPANY, by=COMPANY),
        )
        (root / "proc/self/ns").mkdir(parents=True)
        (root / "proc/uptime").write_text("9000.00 0.00\n")

    def put(self, case: Case) -> None:
        """The process of a case, with its unit's file."""
        program = case.words[0]
        if case.folder is not None:
            called = case.group.rpartition("/")[2]
            at, _, rest = called.partition("@")
            path = self.root / case.folder / (f"{at}@.service" if rest else called)
            path.parent.mkdir(parents=True, exist_ok=True)
            source = f"SourcePath=/etc/init.d/{called.removesuffix('.service')}\n" * (case.folder == GENERATED)
            snap = "X-Snappy=yes\n" * called.startswith("snap.")
            path.write_text(f"[Unit]\n{source}{snap}[Service]\nExecStart={' '.join(case.words)}\n")
        put_process(
            self.root / "proc",
            77,
            program.rpartition("/")[2][:15].removesuffix(".11"),
            cgroup=case.group,
            uid=case.uid,
            executable=program,
            arguments=case.words,
            tty=TTY if case.group == USER_SESSION else 0,
            parent=1,
        )

    def table(self, owners: PackageOwners | None) -> ProcessTable:
        """What reads it."""
        root = self.root
        return ProcessTable(root / "proc", root / "etc", root / "usr", root / "run", root / "pods", packages=owners)

    def judged(self, owners: PackageOwners | None) -> Process:
        """The process, as one look sees it."""
        return self.table(owners).read_processes(1.0).processes[77]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """It, without the process; its databases are read here and not by a program."""
    monkeypatch.setattr(packages, "ask_databases", find_owners)
    return Host(tmp_path)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_whose_package_brought_it_tells_whose_work_it_is(host: Host, case: Case) -> None:
    """In the first look already. Where no database can be read, it is as it was."""
    host.put(case)

    assert host.judged(PackageOwners(host.root)).kind is case.kind
    assert host.judged(None).kind is case.without
    assert host.judged(PackageOwners(host.root, lambda: True)).kind is case.without


def test_provenance_makes_nothing_the_machine_s_own_that_was_not() -> None:
    """What was people's stays people's in each case."""
    assert all(case.kind is PEOPLE for case in CASES.values() if case.kind is not case.without)


def test_a_distributions_service_is_known_as_one(host: Host) -> None:
    """So that its much work and its clients count."""
    host.put(CASES["PostgreSQL"])

    assert host.judged(PackageOwners(host.root)).rule == PACKAGED


def test_a_package_that_is_installed_later_is_noticed(host: Host) -> None:
    """Within a minute, also for what runs already."""
    host.put(CASES["make install, and a unit that was copied to /usr/lib"])
    table = host.table(PackageOwners(host.root))
    before = table.read_processes(1.0).processes[77].kind
    files = ("/usr/bin/score", "/usr/lib/systemd/system/score.service")
    put_dpkg(host.root, base_files(), APackage(name="score", files=files))
    table.read_processes(62.0)

    assert before is PEOPLE
    assert table.read_processes(72.0).processes[77].kind is SERVICE


def test_what_a_database_did_not_say_is_asked_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that ends without an answer leaves the process as it was until then."""
    host.put(CASES["a company's service"])
    table = host.table(PackageOwners(host.root))
    monkeypatch.setattr(packages, "ask_databases", _fail)
    before = table.read_processes(1.0).processes[77].kind
    monkeypatch.setattr(packages, "ask_databases", find_owners)

    assert (before, table.read_processes(302.0).processes[77].kind) == (SERVICE, PEOPLE)


def _fail(root: str, paths: object) -> list[str]:
    raise CommandError(f"{root} {paths}")
