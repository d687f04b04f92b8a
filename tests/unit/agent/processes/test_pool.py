"""What the pool's machines have in common is the machine's own; what one of them alone is asked for is somebody's."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.agent.processes.pool import ALONE, COMMON, PoolMemory, Question, said_of
from gpuwatch.agent.processes.process import Kind
from gpuwatch.agent.processes.table import ProcessTable
from gpuwatch.model.gpu import GpuProcess, ProcessKind
from gpuwatch.model.pool_programs import PoolPrograms, PoolTally, census_id, key_of, salt_of
from tests.support.builders.fleet import a_verdict
from tests.support.fakes.proc_files import CONTAINER, USER_SESSION, put_process

SALT = salt_of("default")
UPTIME = 400_000.0
ACME = "/system.slice/acme-agent.service"
PID = 77


class Machine:
    """A made /proc with one process, and the table that reads it; `at` is a moment of the monotonic clock."""

    def __init__(self, root: Path, services: tuple[str, ...] = (), workloads: tuple[str, ...] = ()) -> None:
        self.root, self.proc = root, root / "proc"
        (self.proc / "self/ns").mkdir(parents=True)
        (self.proc / "uptime").write_text(f"{UPTIME:.2f} 0.00\n")
        self.pool = PoolMemory(self.proc)
        self.table = ProcessTable(self.proc, root / "etc", root / "usr", root / "run", pool=self.pool)
        self.table.use(workloads, services)
        self.unit("etc", "acme-agent")

    def unit(self, folder: str, name: str) -> None:
        """A unit of the administrator (etc), of a package (usr), or of systemd-run (run)."""
        place = {"etc": "etc/systemd/system", "usr": "usr/lib/systemd/system", "run": "run/systemd/transient"}[folder]
        file = self.root / place / f"{name}.service"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("[Service]\n")

    def look(self, at: float = 0.0) -> tuple[Kind, str]:
        """The kind of the process, and the rule."""
        process = self.table.read_processes(at).processes[PID]
        return process.kind, process.rule

    def hears(self, census: PoolPrograms | None, at: float = 0.0) -> None:
        """What a controller says with a question."""
        self.pool.hear(a_question(census), at)

    def has_ports(self, *ports: int) -> None:
        """The ports on which other machines may ask the process."""
        started = next(iter(self.table.read_processes(0.0).processes.values())).started_ticks
        self.pool.note_ports({(PID, started): frozenset(ports)} if ports else {})

    def hands_over(self, at: float) -> tuple[int, int, tuple[int, ...] | None]:
        """How many services it hands over that lasted, and others, and the ports."""
        verdict = self.pool.answer(a_verdict(), Question(salt=SALT, counts=True), None, at)
        assert verdict.programs is not None
        return len(verdict.programs.lasting) // 12, len(verdict.programs.recent) // 12, verdict.programs.ports


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """It, without a process."""
    return Machine(tmp_path)


def a_question(census: PoolPrograms | None, *, counts: bool = False) -> Question:
    """A question of a controller that says this of the pool."""
    if census is None:
        return Question(salt=SALT, counts=counts)
    return Question(salt=SALT, census_id=census_id(census.text), census=census, counts=counts)


def a_census(*services: str, ports: Mapping[int, int] | None = None, on: int = 212, of: int = 214) -> PoolPrograms:
    """A pool in which so many machines have these services, and those ports."""
    keys = {key_of(SALT, each): on for each in services}
    return PoolPrograms(machines=of, common=keys, ports={22: of, **(ports or {})})


def test_a_companys_own_agent_on_all_machines_is_the_machines_own(machine: Machine) -> None:
    """Without a census it is an administrator's unit; with it, its sentence says on how many machines it is."""
    put_process(machine.proc, PID, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed")
    machine.has_ports()
    before = machine.look()
    machine.hears(a_census("acme-agent /opt/acme/bin/acmed"))
    kind, rule = machine.look(10.0)

    assert before[0] is Kind.PEOPLE
    assert (kind, rule) == (Kind.SERVICE, f"{COMMON}on 212 of 214 machines")
    assert machine.table.view is not None
    said = said_of(machine.table.view.processes.values())
    assert said == "acmed of acme-agent.service runs on 212 of 214 machines of the pool"


# What else runs on every machine of a pool, and whose it is: name, group, user, program, arguments, unit, kind.
_PEOPLES = {
    "torchrun in an SSH session": ("torchrun", USER_SESSION, 1000, "/usr/bin/python3", ("python3", "/opt/t.py"), None),
    "mpirun as root over SSH": ("worker", "/user.slice/user-0.slice/session-9.scope", 0, "/opt/job/worker", (), None),
    "systemd-run on all nodes": ("prep", "/system.slice/run-u9.service", 0, "/opt/acme/prep", (), ("run", "run-u9")),
    "a container on all nodes": ("agent", CONTAINER, 0, "/opt/acme/agent", (), None),
    "a pod of a DaemonSet": (
        "agent",
        "/kubepods.slice/kubepods-pod12345678_1234_1234_1234_123456789abc.slice/cri-containerd-" + "ab" * 32 + ".scope",
        0,
        "/agent",
        (),
        None,
    ),
    "a Slurm job": ("train", "/system.slice/slurmstepd.scope/job_81/step_0", 1000, "/home/a/train", (), None),
    "vLLM as a unit": ("vllm", "/system.slice/serve.service", 0, "/opt/vllm/bin/vllm", (), ("etc", "serve")),
    "a Ray worker": ("raylet", "/system.slice/cluster.service", 0, "/opt/ray/raylet", (), ("etc", "cluster")),
    "Dask's unit": ("python3", "/system.slice/dask-worker.service", 0, "/usr/bin/python3", (), ("etc", "dask-worker")),
    "a unit of a person's": ("indexer", "/system.slice/idx.service", 1000, "/opt/x/indexer", (), ("etc", "idx")),
    "a CI runner": ("buildkite-agent", "/system.slice/ci.service", 0, "/usr/bin/buildkite-agent", (), ("etc", "ci")),
    "a job of cron": ("prep", "/system.slice/cron.service", 0, "/opt/acme/prep", (), ("usr", "cron")),
    "cloud-init's script": ("prep", "/system.slice/cloud-final.service", 0, "/opt/p", (), ("usr", "cloud-final")),
    "a command of a shell": (
        "bash",
        ACME,
        0,
        "/usr/bin/bash",
        ("bash", "-c", "cd /data; run x"),
        ("etc", "acme-agent"),
    ),
    "a module of Python": ("python3", ACME, 0, "/usr/bin/python3", ("python3", "-m", "acme"), ("etc", "acme-agent")),
    "a process of no unit": ("train", "/", 0, "/opt/train", (), None),
}


@pytest.mark.parametrize(("name", "cgroup", "uid", "executable", "arguments", "unit"), _PEOPLES.values(), ids=_PEOPLES)
def test_peoples_work_on_all_machines_is_handed_over_by_none_and_stays_theirs(
    machine: Machine,
    name: str,
    cgroup: str,
    uid: int,
    executable: str,
    arguments: tuple[str, ...],
    unit: tuple[str, str] | None,
) -> None:
    """What a pool is there for is what all of its machines run."""
    if unit is not None:
        machine.unit(*unit)
    put_process(machine.proc, PID, name, cgroup=cgroup, uid=uid, executable=executable, arguments=arguments)
    machine.has_ports()
    machine.look()

    assert machine.table.view is not None
    assert machine.table.view.processes[PID].shared is None
    assert machine.hands_over(0.0)[:2] == (0, 0)


def test_a_service_that_once_held_a_gpu_here_is_never_common_here(machine: Machine) -> None:
    """A queue's worker in its pause: it is not handed over any more, and no census makes it the machine's own."""
    put_process(machine.proc, PID, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed")
    machine.has_ports()
    machine.hears(a_census("acme-agent /opt/acme/bin/acmed"))
    before, handed = machine.look(10.0)[0], machine.hands_over(10.0)
    put_process(machine.proc, 78, "acme-job", cgroup=ACME, uid=0, executable="/opt/acme/bin/job")
    machine.table.service_pids([GpuProcess(pid=78, kind=ProcessKind.COMPUTE)])

    assert (before, machine.look(20.0)[0]) == (Kind.SERVICE, Kind.PEOPLE)
    assert handed[:2] == (0, 1)
    assert machine.hands_over(20.0)[:2] == (0, 0)


def test_a_service_that_works_is_not_handed_over(machine: Machine) -> None:
    """A worker that computes without a GPU is no part of the machine: neither are its threads at rest."""
    half = UPTIME / 2
    put_process(machine.proc, PID, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed", cpu_seconds=half)
    put_process(machine.proc, 78, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed")
    machine.has_ports()
    machine.look()

    assert machine.hands_over(0.0)[:2] == (0, 0)


def test_a_service_lasts_once_it_was_watched_for_a_day(machine: Machine) -> None:
    """By this agent: what ran before it began may have worked then. A long absence begins anew."""
    put_process(machine.proc, PID, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed")
    machine.has_ports(9999)
    for at in range(0, 86_401, 600):
        machine.look(float(at))
    lasting = machine.hands_over(86_400.0)
    machine.look(88_000.0)

    assert lasting == (1, 0, (9999,))
    assert machine.hands_over(88_000.0)[:2] == (0, 1)


def test_a_common_service_with_a_port_that_others_do_not_have_is_somebodys(machine: Machine) -> None:
    """The company's agent that is a relay on this machine, or a server of the same program."""
    put_process(machine.proc, PID, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed")
    census = a_census("acme-agent /opt/acme/bin/acmed", ports={9999: 200, 8443: 100})
    machine.hears(census)

    seen = {}
    for ports in ((), (9999,), (9999, 8443), (40_123,)):
        machine.has_ports(*ports)
        seen[ports] = machine.look()[0]
    assert seen == {
        (): Kind.SERVICE,
        (9999,): Kind.SERVICE,
        (9999, 8443): Kind.PEOPLE,
        (40_123,): Kind.SERVICE,  # a port that the kernel gave it
    }


def test_releases_and_instances_of_a_service_are_the_same_service(machine: Machine) -> None:
    """A roll-out goes on for days."""
    machine.unit("etc", "acme@")
    put_process(
        machine.proc, PID, "acmed", cgroup="/system.slice/acme@node7.service", uid=0, executable="/opt/acme/3.2.1/acmed"
    )
    machine.has_ports()
    machine.hears(a_census("acme@ /opt/acme/0.0.0/acmed"))

    assert machine.look()[0] is Kind.SERVICE


def test_a_script_is_known_by_its_own_file(machine: Machine) -> None:
    """Not by its interpreter: every script of the unit would be the same."""
    put_process(
        machine.proc,
        PID,
        "python3",
        cgroup=ACME,
        uid=0,
        executable="/usr/bin/python3.10",
        arguments=("/usr/bin/python3", "-u", "/opt/acme/inventory.py"),
    )
    machine.has_ports()
    machine.hears(a_census("acme-agent /usr/bin/python0.0"))
    by_interpreter = machine.look()[0]
    machine.hears(a_census("acme-agent /opt/acme/inventory.py"))

    assert (by_interpreter, machine.look()[0]) == (Kind.PEOPLE, Kind.SERVICE)


def test_a_server_that_one_machine_alone_has_is_somebodys_whatever_its_name(machine: Machine) -> None:
    """The one k3s server of twelve machines; on all of them, or where nothing was said, its name decides."""
    machine.unit("usr", "k3s")
    put_process(machine.proc, PID, "k3s-server", cgroup="/system.slice/k3s.service", uid=0, executable="/usr/bin/k3s")
    machine.has_ports(6443, 10250)
    unsaid = machine.look()[0]
    machine.hears(a_census(ports={10250: 12}, of=12))
    alone = machine.look()
    machine.hears(a_census(ports={10250: 12, 6443: 12}, of=12))

    assert unsaid is machine.look()[0] is Kind.SERVICE
    assert alone == (Kind.PEOPLE, f"{ALONE}fewer than a fifth of the machines have port 6443")


def test_the_last_machine_of_another_distribution_has_no_unusual_sshd(machine: Machine) -> None:
    """Its unit and its file are called otherwise, and its port is everybody's."""
    machine.unit("usr", "ssh")
    put_process(machine.proc, PID, "sshd", cgroup="/system.slice/ssh.service", uid=0, executable="/usr/sbin/sshd")
    machine.has_ports(22)
    machine.hears(a_census(of=12))

    assert machine.look()[0] is Kind.SERVICE


def test_what_the_administrator_named_stays_what_it_is(tmp_path: Path) -> None:
    """Entries of agent.workloads and agent.services come before what other machines run."""
    work = Machine(tmp_path / "work", workloads=("program:acmed",))
    own = Machine(tmp_path / "own", services=("program:acmed",))
    for machine in (work, own):
        put_process(machine.proc, PID, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed")
        machine.has_ports(7777)
        machine.hears(a_census("acme-agent /opt/acme/bin/acmed", ports={7777: 214}))
    own.hears(a_census())

    assert work.look()[0] is Kind.PEOPLE
    assert own.look()[0] is Kind.SERVICE


def test_a_census_is_forgotten_fifteen_minutes_after_the_last_question(machine: Machine) -> None:
    """Its protection a day after it; a question that names it again renews both."""
    machine.unit("usr", "k3s")
    put_process(machine.proc, PID, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed")
    put_process(machine.proc, 78, "k3s-server", cgroup="/system.slice/k3s.service", uid=0, executable="/usr/bin/k3s")
    started = machine.table.read_processes(0.0).processes[78].started_ticks
    machine.pool.note_ports({(78, started): frozenset({6443})})
    census = a_census("acme-agent /opt/acme/bin/acmed")
    machine.hears(census)
    machine.pool.hear(Question(salt=SALT, census_id=census_id(census.text)), 600.0)

    def kinds(at: float) -> tuple[Kind, Kind, str | None]:
        view = machine.table.read_processes(at)
        return view.processes[PID].kind, view.processes[78].kind, view.census

    assert kinds(1500.0) == (Kind.SERVICE, Kind.PEOPLE, census_id(census.text))
    assert kinds(1501.0) == (Kind.PEOPLE, Kind.PEOPLE, None)
    assert kinds(87_000.0) == (Kind.PEOPLE, Kind.PEOPLE, None)
    assert kinds(87_001.0) == (Kind.PEOPLE, Kind.SERVICE, None)


def test_a_controller_without_a_census_ends_what_is_common_and_a_new_one_leaves_it(machine: Machine) -> None:
    """One that has just begun has not counted yet; another's id renews nothing."""
    put_process(machine.proc, PID, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed")
    machine.has_ports()
    machine.hears(a_census("acme-agent /opt/acme/bin/acmed"))
    machine.pool.hear(Question(salt=SALT, keeps=True), 100.0)
    machine.pool.hear(Question(salt=SALT, census_id="A" * 12), 100.0)
    kept = machine.look(100.0)[0]
    machine.hears(None, 200.0)

    assert (kept, machine.look(200.0)[0]) == (Kind.SERVICE, Kind.PEOPLE)


def test_without_the_ports_of_its_programs_nothing_is_common(machine: Machine) -> None:
    """The connections are not looked at, or not yet: then nobody knows who may ask."""
    put_process(machine.proc, PID, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed")
    machine.hears(a_census("acme-agent /opt/acme/bin/acmed"))

    assert machine.look()[0] is Kind.PEOPLE
    assert machine.hands_over(0.0) == (0, 0, None)


def test_a_program_whose_file_is_not_shown_is_not_common(machine: Machine) -> None:
    """What it says of itself proves nothing."""
    put_process(machine.proc, PID, "acmed", cgroup=ACME, uid=0, executable="", arguments=("/opt/acme/bin/acmed",))
    machine.has_ports()
    machine.hears(a_census("acme-agent /opt/acme/bin/acmed"))

    assert machine.look()[0] is Kind.PEOPLE


def test_the_verdict_says_by_which_census_it_was_made_only_where_the_question_named_another() -> None:
    """An ordinary round costs no byte."""
    pool, verdict = PoolMemory(), a_verdict()
    census = a_census()
    named = a_question(census)

    assert pool.answer(verdict, named, named.census_id, 0.0) is verdict
    assert pool.answer(verdict, None, None, 0.0) is verdict
    for question, used in ((named, None), (None, named.census_id), (a_question(None), named.census_id)):
        told = pool.answer(verdict, question, used, 0.0).programs
        assert told is not None
        assert (told.census, told.ports) == (used, None)


def test_a_question_is_read_as_it_was_sent() -> None:
    """And one that is no question is refused."""
    census = a_census("acme-agent /opt/acme")
    query = f"fleet={SALT}&census={census_id(census.text)}&pool={census.text}&count=1"

    assert Question.in_query(query) == a_question(census, counts=True)
    assert Question.in_query(f"confirm=abc&fleet={SALT}") == Question(salt=SALT, keeps=True)
    assert Question.in_query(f"fleet={SALT}&census=none") == Question(salt=SALT)
    assert Question.in_query("confirm=abc") is None


@pytest.mark.parametrize(
    "query", ["fleet=x", f"fleet={SALT}&fleet={SALT}", f"fleet={SALT}&census=1", f"fleet={SALT}&census=&pool=12"]
)
def test_what_is_no_question_is_refused(query: str) -> None:
    """With a sentence, and nothing of it is taken."""
    with pytest.raises(ValueError, match="must be"):
        Question.in_query(query)


@given(st.text(max_size=80))
def test_no_query_whatever_breaks_the_reader(query: str) -> None:
    """It is a question, or it is refused."""
    with suppress(ValueError):
        assert Question.in_query(f"fleet={SALT}&{query}") is not None


def test_a_census_under_anothers_id_is_refused() -> None:
    """The controller would believe what it never said."""
    with pytest.raises(ValueError, match="another one"):
        Question.in_query(f"fleet={SALT}&census={SALT}&pool={a_census().text}")


@pytest.mark.parametrize("machines", [1, 9, 10, 12])
def test_twelve_agents_and_a_controllers_count_make_the_agent_common(tmp_path: Path, machines: int) -> None:
    """From what each hands over to what each is told, without a name on the way; nine say nothing."""
    hosts = [Machine(tmp_path / str(number)) for number in range(machines)]
    tally = PoolTally()
    for host in hosts:
        put_process(host.proc, PID, "acmed", cgroup=ACME, uid=0, executable="/opt/acme/bin/acmed")
        host.has_ports(9999)
        for at in range(0, 86_401, 600):
            host.look(float(at))
        tally.add(host.pool.answer(a_verdict(), Question(salt=SALT, counts=True), None, 86_400.0).programs)
    census = tally.census()
    if census is not None:
        assert "acme" not in census.text
        hosts[0].hears(PoolPrograms.from_text(census.text), 86_400.0)

    assert hosts[0].look(86_400.0)[0] is (Kind.SERVICE if machines >= 10 else Kind.PEOPLE)
