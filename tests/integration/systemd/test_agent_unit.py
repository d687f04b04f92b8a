"""The agent's unit on a really booted systemd: what it does, what it survives, what it still sees in its sandbox."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from gpuwatch.model.activity import State
from tests.support.real.agents import eventually
from tests.support.real.gpu_host import AGENT, SERVICE, SETTINGS, URL, Host, booted_host
from tests.support.real.systemd_container import GPUWATCH, LIBRARIES, PYTHON

pytestmark = pytest.mark.component("systemd-nspawn")

CAP_SYSLOG, CAP_DAC_READ_SEARCH, READER = 1 << 34, 1 << 2, 1 << 2 | 1 << 19  # with CAP_SYS_PTRACE
# A terminal emulator: its pty's name, and then all that comes onto it.
EMULATOR = """
import os
shown, typed = os.openpty()
print(os.ttyname(typed), flush=True)
while seen := os.read(shown, 4096):
    os.write(1, seen)
"""
NOTICE = '{"key": "n1", "verb": "stop", "stop_at": "2030-01-01T12:00:00Z"}'


@contextmanager
def running(host: Host, user: str, *command: str, properties: Sequence[str] = ()) -> Iterator[int]:
    """A user's program with these properties of a service; its pid."""
    options = [f"--property={each}" for each in properties]
    host.run("systemd-run", "--quiet", "--collect", "--unit=other", f"--uid={user}", *options, *command)
    try:
        yield int(host.show("other", "MainPID"))
    finally:
        host.run("systemctl", "stop", "other")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """It, booted, with a stand-in NVIDIA driver."""
    with booted_host(tmp_path_factory.mktemp("booted")) as made:
        yield made


def test_it_runs_with_no_more_than_it_needs(host: Host) -> None:
    """A user of its own, the right to read the kernel's log, a ceiling for memory; ready means serving."""
    pid = host.restart()
    status = dict(line.split(":\t", 1) for line in host.run("cat", f"/proc/{pid}/status").splitlines())

    assert host.verdict() is not None
    assert host.run("stat", "--format=%U", f"/proc/{pid}").strip() == AGENT
    assert {int(status[f"Cap{kind}"], 16) for kind in ("Eff", "Prm")} == {CAP_SYSLOG}
    assert (int(status["CapAmb"], 16), int(status["CapBnd"], 16)) == (0, CAP_SYSLOG | READER)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(host.show(AGENT, "MemoryMax")) == 192 << 20
    assert [each in host.get(f"{URL}/metrics") for each in ("log_up 1.0", 'at="process_io"')] == [True, False]


def test_the_journal_can_be_read(host: Host) -> None:
    """Lines of its own name without a time of their own, with the priority that they have."""
    host.restart()
    pid = host.agent
    lines = host.journal(AGENT, f"_PID={pid}", "--priority=info..info").splitlines()

    assert any(line.startswith("INFO gpuwatch agent ") for line in lines), host.journal(AGENT)
    assert '"SYSLOG_IDENTIFIER":"gpuwatch-agent"' in host.journal(AGENT, f"_PID={pid}", "--output=json")


def test_killed_it_comes_back_with_the_leases(host: Host) -> None:
    """Whatever ends it, systemd starts it again; who has kept the machine has kept it still, and it is theirs."""
    killed = host.restart()
    host.run(*GPUWATCH, "snooze", "1h", "--reason", "a run", user="alice")
    host.becomes(State.BUSY, "snooze")
    host.run("kill", "-KILL", str(killed))
    eventually(lambda: host.agent not in (0, killed), lambda: host.journal(AGENT))
    host.becomes(State.BUSY, "snooze")
    (kept,) = host.evidence()
    host.run(*GPUWATCH, "snooze", "--end", user="alice")
    # Who came just before the kill is still expected: that is no lease any more.
    eventually(lambda: State.IDLE in [each.says for each in host.evidence() if each.name == "snooze"])

    assert str(kept.note).startswith("alice until ")


def test_one_that_hangs_is_replaced(host: Host) -> None:
    """Its sampling waits for a file that nobody answers for, while its pages are still served: systemd ends it.

    The journal shows where it hung.
    """
    host.restart()
    host.run("systemctl", "stop", AGENT)
    host.install(f"{AGENT}.service", ["agent"], f"{SERVICE}WatchdogSec=10s\n")
    host.run("rm", "--force", "/run/gpuwatch/health.json")
    host.run("mkfifo", "--mode=666", "/run/gpuwatch/health.new")
    try:
        hung = host.restart()
        eventually(lambda: "Watchdog timeout" in host.journal(AGENT), lambda: host.journal(AGENT))
    finally:
        host.run("rm", "/run/gpuwatch/health.new")
        host.install(f"{AGENT}.service", ["agent"], SERVICE)
    eventually(lambda: host.agent not in (0, hung), lambda: host.journal(AGENT))
    text = host.journal(AGENT)

    assert "health/watch.py" in text, text


def test_new_settings_are_taken_without_a_new_process(host: Host) -> None:
    """The same pid, other settings; idle time begins anew. A rest that is longer by them is no hang to the watchdog."""
    pid = host.restart()
    host.becomes(State.IDLE)
    host.settings(SETTINGS.replace("restart_max: 1s", "restart_max: 10m\n  node_id: renamed"))
    host.run("systemctl", "reload", AGENT)  # has sent the signal when it returns, and waits for nobody

    def renamed() -> bool:
        verdict = host.verdict()
        return verdict is not None and verdict.node_id == "renamed"

    eventually(renamed, lambda: host.journal(AGENT))

    assert host.agent == pid, host.journal(AGENT)
    assert host.show(AGENT, "WatchdogUSec") == "20min"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("interval: 200ms\n  deadline", "interval: never\n  deadline", 'agent.interval: "never" is not a duration'),
        pytest.param(
            *("agent:", "agent:\n  tls_certificate: /no.pem\n  tls_key: /no.pem", "/no.pem"), marks=pytest.mark.nightly
        ),
    ],
    ids=["setting", "file"],
)
def test_bad_settings_change_nothing(host: Host, old: str, new: str, told: str) -> None:
    """They are told as an error, each with its remedy, and the agent goes on: idle time with it."""
    pid = host.restart()
    host.becomes(State.IDLE)
    before = host.verdict()
    host.settings(SETTINGS.replace(old, new, 1))
    host.run("systemctl", "reload", AGENT)
    eventually(lambda: told in host.journal(AGENT, f"_PID={pid}", "--priority=err"), lambda: host.journal(AGENT))
    after = host.verdict()

    assert host.agent == pid
    assert before is not None
    assert after is not None
    assert (before.tally and before.tally.since) == (after.tally and after.tally.since), "it began anew"


def test_released_gpus_are_not_taken_by_new_settings(host: Host) -> None:
    """Somebody changes their MIG mode: the order waits until they are acquired."""
    host.restart()
    host.run(*GPUWATCH, "agent", "release", "--socket=/run/gpuwatch/agent.sock")
    host.run("systemctl", "reload", AGENT)
    eventually(lambda: "the GPUs are released" in host.journal(AGENT, "--priority=err"), lambda: host.journal(AGENT))

    host.becomes(State.UNKNOWN)
    assert "read again" in host.run(*GPUWATCH, "agent", "acquire", "--socket=/run/gpuwatch/agent.sock")


def test_it_stops_at_once_and_leaves_nothing(host: Host) -> None:
    """Within five seconds, without being killed, its probe too."""
    host.restart()
    host.becomes(State.IDLE)
    begun = time.perf_counter()
    host.run("systemctl", "stop", AGENT)
    took = time.perf_counter() - begun

    assert took < 5.0
    assert host.show(AGENT, "Result") == "success"
    assert host.run("pgrep", "--full", "gpuwatch probe", check=False) == ""


def test_it_sees_who_is_there(host: Host) -> None:
    """Somebody who types is busy; whose input leaves no trace, unknown; nobody, idle."""
    host.restart()
    host.becomes(State.IDLE)
    terminal = ["TTYPath=/dev/console", "StandardInput=tty", "UtmpIdentifier=con", "UtmpMode=user"]
    with running(host, "alice", "sleep", "1000", properties=["PAMName=people", *terminal]):
        host.becomes(State.BUSY, "people")
    with running(host, "bob", "sleep", "1000", properties=["PAMName=people"]):
        host.becomes(State.UNKNOWN, "people")
    host.becomes(State.IDLE)


def test_it_sees_whose_programs_are_alive(host: Host) -> None:
    """A service that somebody started sleeps: occupied, with its owner; a long sleep is queued work: busy."""
    # The tests ask the agent by a Python program of root, without a unit: nobody knows whose that is.
    settings = SETTINGS.replace("processes: {enabled: false}", "processes: {interval: 200ms}")
    host.settings(settings.replace("agent:\n", "agent:\n  services: ['program:python3*']\n"))
    host.restart_fresh(AGENT)
    host.becomes(State.IDLE)
    with running(host, "alice", "sleep", "1000"):
        host.becomes(State.OCCUPIED)
        found = next(each for each in host.evidence() if each.says is State.OCCUPIED)
    with running(host, "bob", "sleep", "7h"):
        host.becomes(State.BUSY, "processes")
    host.becomes(State.IDLE)

    assert found.owner is not None
    assert (found.owner.user, found.owner.process) == ("alice", "sleep")
    assert str(found.owner.unit).endswith(".service")


def test_it_writes_on_a_terminal_that_is_not_its_own(host: Host) -> None:
    """A notice, by the group that terminals are given to at a login; nothing more after `mesg n`."""
    host.restart()
    emulator = ["--quiet", "--collect", "--unit=emulator", "--property=StandardOutput=file:/run/emulator"]
    host.run("systemd-run", *emulator, f"--setenv=LD_LIBRARY_PATH={LIBRARIES}", PYTHON, "-c", EMULATOR)
    eventually(lambda: host.run("cat", "/run/emulator", check=False), lambda: host.journal("emulator"))
    name = host.run("cat", "/run/emulator").split()[0]
    terminal = [f"TTYPath={name}", "StandardInput=tty", "UtmpIdentifier=pt", "UtmpMode=user"]
    try:
        with running(host, "alice", "sleep", "1000", properties=["PAMName=people", *terminal]):
            # A service counts as started before it has its terminal.
            eventually(lambda: host.run("stat", "--format=%U:%G %a", name).strip() == "alice:tty 620")
            reached = host.post("/v1/notice", NOTICE)
            shown = host.run("cat", "/run/emulator")
            host.run("chmod", "600", name)
            refused = host.post("/v1/notice", '{"key": "n1", "withdrawn": true}')
    finally:
        host.run("systemctl", "stop", "emulator")

    assert '"reached":1,"refused":{}' in reached
    assert "gpuwatch: gpu-host is to be stopped at 2030-01-01 12:00 UTC" in shown
    assert '"reached":0' in refused
    assert "mesg n" in refused


def test_it_sees_who_computes_on_a_gpu(host: Host) -> None:
    """The processor time of another user's process."""
    host.restart()
    with running(host, "bob", "sh", "-c", "while :; do :; done") as pid:
        host.driver.gpu(0).processes({pid: 1000})
        host.becomes(State.BUSY, "gpu_process_cpu")
        host.driver.gpu(0).processes({})
    host.becomes(State.IDLE)


def test_it_sees_who_forbids_a_shutdown(host: Host) -> None:
    """A lock that logind keeps."""
    host.restart()
    lock = ["systemd-inhibit", "--what=shutdown", "--mode=block", "--who=a backup", "--why=it runs"]
    with running(host, "root", *lock, "sleep", "1000"):
        host.becomes(State.BUSY, "inhibitors")
    host.becomes(State.IDLE)


@pytest.mark.nightly  # what else lies in closed homes is looked for each day
def test_a_jupyter_server_in_a_closed_home_is_a_doubt(host: Host) -> None:
    """Whose runtime files the agent may not read: what its kernels do is unknown, as long as it runs."""
    host.restart()
    host.becomes(State.IDLE)
    host.run("install", "--directory", "--owner=alice", "--mode=700", "/home/alice")
    name = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'jupyter-lab'); time.sleep(1000)"  # PR_SET_NAME
    with running(host, "alice", PYTHON, "-c", name, properties=[f"Environment=LD_LIBRARY_PATH={LIBRARIES}"]):
        host.becomes(State.UNKNOWN, "jupyter")
    host.becomes(State.IDLE)


def test_it_sees_what_is_queued_for_later(host: Host) -> None:
    """In a spool that only root and the daemon may list, whose jobs only their owners may read."""
    host.restart()
    host.becomes(State.IDLE)
    spool = "/var/spool/cron/atjobs"
    name = f"a00001{int(time.time()) // 60 + 480:08x}"  # noqa: TID251  as at(1) writes it, of the real clock
    host.run("install", "--directory", "--mode=1770", "/var/spool/cron", spool)
    host.run("install", "--owner=alice", "--mode=700", "/dev/null", f"{spool}/{name}")
    host.becomes(State.BUSY, "scheduled")
    (found,) = host.evidence()
    host.settings(SETTINGS.replace("agent:\n", "agent:\n  node_id: renamed\n"))
    host.run("systemctl", "reload", AGENT)  # under the same pid, and by the same reader
    eventually(lambda: getattr(host.verdict(), "node_id", None) == "renamed", lambda: host.journal(AGENT))
    host.becomes(State.BUSY, "scheduled")
    look = f"for each in {host.agent} $(pgrep gpuwatch-reader); do grep CapPrm /proc/$each/status; done"
    rights = sorted(int(each, 16) for each in host.run("sh", "-c", look).split()[1::2])
    host.run("rm", f"{spool}/{name}")
    host.becomes(State.IDLE)

    assert str(found.note).startswith("alice's at job is due at ")
    assert rights == [CAP_DAC_READ_SEARCH, READER, READER, CAP_SYSLOG]  # one of the two waits


def test_it_sees_notebooks_and_timers_of_closed_homes(host: Host) -> None:
    """Without a right of its own: its reader opens these files, and no other of a home, whatever links are in it."""
    host.restart()
    host.becomes(State.IDLE)
    uid = host.run("id", "-u", "alice").strip()
    units = "/home/alice/.config/systemd/user/timers.target.wants"
    for folder in ("/home/alice", "/home/bob", units, f"/run/user/{uid}"):
        host.run("install", "--directory", "--owner=alice", "--mode=700", folder)
    timer = f"{units}/../train.timer"
    plant = "mkdir /home/bob/diary.wants; touch /home/bob/diary.wants/secret.timer; cd /home/alice/.config/systemd"
    try:
        host.run("sh", "-c", f"printf '[Timer]\\nOnCalendar=*-*-* 00/6:00:00\\n' > {timer}")
        host.run("ln", "--symbolic", "../train.timer", units)
        host.becomes(State.BUSY, "scheduled")
        seen = [str(each.note) for each in host.evidence()]
        host.run("sh", "-c", f"{plant}; rm -r user; ln -s /home/bob user")
        host.becomes(State.UNKNOWN, "scheduled")
        linked = [str(each.note) for each in host.evidence()]
    finally:
        host.run("rm", "--recursive", "/home/alice/.config", f"/run/user/{uid}")
    host.becomes(State.IDLE)

    assert "alice's timer train.timer is due at" in " ".join(seen)
    assert "secret" not in " ".join(linked)


def test_it_sees_what_others_leave_in_tmp(host: Host) -> None:
    """An administrator's command that looks for a file there must find it: not finding it would be idleness."""
    host.settings(
        SETTINGS.replace("  evidence:", "  evidence:\n    command: {argv: [test, -e, /tmp/busy], interval: 200ms}")
    )
    host.run("touch", "/tmp/busy")  # noqa: S108  that is the point
    host.restart_fresh(AGENT)
    host.becomes(State.BUSY, "command")
    host.run("rm", "/tmp/busy")  # noqa: S108  likewise
    host.becomes(State.IDLE)
